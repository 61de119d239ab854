#include "webhook/endpoint_queue.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

#include "webhook/endpoint_url.h"
#include "webhook/retry_after.h"

namespace outbox::webhook {
namespace {

constexpr std::size_t kManyPlaces = 4;  // so many leave some beside half of them

// What one part of a slice may hold.
struct Limit {
    std::size_t rows;
    std::size_t bytes;
    void add(const Delivery& delivery) {
        rows -= std::min<std::size_t>(rows, 1);
        bytes -= std::min(bytes, delivery.payload.size());
    }
    [[nodiscard]] bool reached() const { return rows == 0 || bytes == 0; }
};

std::string host_of(const Endpoint& endpoint) {
    const auto url = parse_endpoint_url(endpoint.url, {.allow_http = true});
    return url.ok() ? url->host : endpoint.url;
}

// As the last relay saw it.
bool is_proven(const Endpoint& endpoint) {
    return endpoint.failing_since_us == 0 && endpoint.last_status / 100 == 2;
}

bool same_order(const Endpoint& one, const Endpoint& other) {
    return one.revision == other.revision && one.url == other.url && one.events == other.events &&
           one.tenant == other.tenant && one.secrets == other.secrets;
}

}  // namespace

EndpointQueue::EndpointQueue(Endpoint endpoint, const DispatchOptions& options)
    : options_(options),
      endpoint_(std::move(endpoint)),
      host_(host_of(endpoint_)),
      circuit_(options.outage_retry),
      proven_(is_proven(endpoint_)),
      rows_(options.slice_rows),
      told_failing_(endpoint_.failing_since_us != 0) {}

void EndpointQueue::update(Endpoint endpoint) {
    const bool mine = endpoint.state == endpoint_.state || disabled_revision_ == endpoint.revision;
    if (mine && same_order(endpoint, endpoint_)) return;
    endpoint_ = std::move(endpoint);
    host_ = host_of(endpoint_);
    // Where an operator begins it anew, it has not recovered yet.
    if (endpoint_.failing_since_us == 0) told_failing_ = false;
    begin_afresh();
}

void EndpointQueue::begin_afresh() {
    ++generation_;
    drop_waiting();
    circuit_ = core::Circuit(options_.outage_retry);
    probe_ = 0;
    proven_ = false;
    own_faults_ = 0;
    rests_until_us_ = 0;
    refused_in_row_ = 0;
    suspects_.clear();
    suspects_rest_until_us_ = 0;
    disabled_because_.reset();
    due_at_us_ = 0;
    expect_more(true);
}

void EndpointQueue::expect_more(bool everywhere) {
    more_ = true;
    if (stuck_ == Stuck::kAlone) stuck_ = Stuck::kNo;
    if (everywhere) after_ = around_ = {};
}

// One that is further away than any wait lasts is due: the clock was set back.
void EndpointQueue::expect_due(std::int64_t at_us, const Now& now) {
    const bool possible = at_us <= now.wall_us + options_.longest_wait_us();
    due_at_us_ = at_us == 0 ? kNever : possible ? at_us : 0;
}

// Where the clock was set back, what is left of a pause is not known, but for the longest that
// there is.
void EndpointQueue::bound_pause(const Now& now) {
    const std::int64_t latest_us = now.wall_us + std::chrono::microseconds(kMostRetryAfter).count();
    if (endpoint_.paused_until_us <= latest_us) return;
    endpoint_.paused_until_us = latest_us;
    changed_ = true;
}

bool EndpointQueue::paused(const Now& now) const {
    return now.wall_us < endpoint_.paused_until_us || now.boot_us < rests_until_us_ ||
           (circuit_.state() == core::Circuit::State::kOpen &&
            now.boot_us < circuit_.opens_until_us());
}

bool EndpointQueue::may_send(std::size_t share, const Now& now) {
    bound_pause(now);
    if (!endpoint_.enabled() || now.wall_us < endpoint_.paused_until_us ||
        now.boot_us < rests_until_us_) {
        return false;
    }
    circuit_.tick(now.boot_us);
    if (circuit_.state() == core::Circuit::State::kOpen) return false;
    if (circuit_.state() == core::Circuit::State::kHalfOpen) return probe_ == 0;
    const Room places = room(share, now);
    return places.others || places.suspects;
}

// Those that may hang again get half of its places, and of these only what does not hang already:
// the others that were overtaken may. Where there are few places they take a quarter of the time,
// as one that is not known yet may hang beside them.
EndpointQueue::Room EndpointQueue::room(std::size_t share, const Now& now) const {
    const std::size_t places = std::max<std::size_t>(share, 1);
    if (under_way_.size() >= places) return {};
    const auto overtaken =
        std::lower_bound(others_under_way_.begin(), others_under_way_.end(), last_accepted_) -
        others_under_way_.begin();
    const std::size_t hang =
        under_way_.size() - others_under_way_.size() + static_cast<std::size_t>(overtaken);
    return {.others = others_under_way_.size() < (proven_ ? places : 1),
            .suspects = hang < std::max<std::size_t>(proven_ ? places / 2 : 1, 1) &&
                        (places >= kManyPlaces || now.boot_us >= suspects_rest_until_us_)};
}

// What failed before may hang again, whatever it failed of.
bool EndpointQueue::is_suspect(const Delivery& delivery) const {
    return delivery.attempts > 0 || suspects_.contains(delivery.position);
}

bool EndpointQueue::waits(const Delivery& delivery, const Now& now) const {
    const auto found = suspects_.find(delivery.position);
    return found != suspects_.end() && now.boot_us < found->second.due_at_us;
}

EndpointQueue::Standing EndpointQueue::standing() const {
    if (proven_) return Standing::kProven;
    return endpoint_.failing_since_us == 0 ? Standing::kUnknown : Standing::kFailing;
}

bool EndpointQueue::busy() const {
    return endpoint_.enabled() && (more_ || !held_.empty());
}

bool EndpointQueue::wants_slice(std::size_t share, const Now& now) {
    if (!may_send(share, now)) return false;
    if (stuck_ == Stuck::kAsks) return true;
    if (now.wall_us >= due_at_us_ && retried_ < options_.slice_rows) return true;
    const std::size_t wanted = proven_ ? std::max<std::size_t>(share, 1) : 1;
    return more_ && held_.size() - under_way_.size() < wanted;
}

bool EndpointQueue::has_room() const {
    return proven_ && more_ && held_.size() - under_way_.size() <= rows_ / 2;
}

Slice EndpointQueue::slice() const {
    Slice slice;
    slice.endpoint_id = endpoint_.id;
    slice.created_at_us = endpoint_.created_at_us;
    slice.revision = endpoint_.revision;
    slice.around = stuck_ == Stuck::kAsks;
    slice.after = after_.settled();
    if (slice.around) slice.after = std::max(slice.after, around_.settled());
    // As many as may be under way: what hangs must not fill the memory.
    slice.max_rows = proven_ ? rows_ : 1;
    for (const Held& held : held_) {
        slice.held.push_back({held.delivery.position, held.delivery.event_id});
        if (slice.around && held.delivery.key) slice.without_keys.push_back(*held.delivery.key);
    }
    return slice;
}

void EndpointQueue::admit(std::vector<Delivery> deliveries, const Slice& slice,
                          const Looked& looked, core::Frontier::Writers writers, bool cut) {
    std::int64_t last = 0;
    Limit due{slice.max_rows, options_.slice_bytes};
    Limit fresh = due;
    bool leaves_due = cut;
    bool admitted = false;
    for (Delivery& delivery : deliveries) {
        (delivery.attempts == 0 ? fresh : due).add(delivery);
        if (delivery.attempts == 0) last = std::max(last, delivery.position);
        // Most are behind all that is held.
        auto place = held_.end();
        while (place != held_.begin() && std::prev(place)->delivery.position >= delivery.position) {
            --place;
        }
        if (place != held_.end() && place->delivery.position == delivery.position) continue;
        // They may be read faster than they may go.
        if (delivery.attempts > 0 && retried_ >= options_.slice_rows) {
            leaves_due = true;
            continue;
        }
        bytes_ += delivery.bytes();
        retried_ += delivery.attempts > 0 ? 1 : 0;
        admitted = true;
        held_.insert(place, {std::move(delivery)});
    }
    due_at_us_ = leaves_due || due.reached() ? 0 : kNever;
    const bool to_the_limits = cut || fresh.reached();
    const bool whole = !to_the_limits && !looked.more;
    if (!to_the_limits) last = std::max(last, looked.position);
    if (slice.around) {
        around_.reach(last, whole, writers);
        if (admitted) {
            stuck_ = Stuck::kNo;
        } else if (whole) {
            stuck_ = Stuck::kAlone;
        }
        return;
    }
    after_.reach(last, whole, writers);
    more_ = !whole;
    if (fresh.rows == 0 && proven_) rows_ = std::min(rows_ * 2, options_.max_slice_rows);
}

template <typename May>
EndpointQueue::Place EndpointQueue::startable(May may) {
    std::unordered_set<std::string_view> passed;
    for (auto held = held_.begin(); held != held_.end(); ++held) {
        if (held->under_way) continue;
        const auto& key = held->delivery.key;
        if (key && (busy_keys_.contains(*key) || passed.contains(*key))) continue;
        if (may(held)) return held;
        if (key) passed.insert(*key);
    }
    return held_.end();
}

// One that hangs must not go again and again before the others.
template <typename May>
EndpointQueue::Place EndpointQueue::longest_untried(May may) {
    Place best = held_.end();
    std::int64_t best_us = 0;
    static_cast<void>(startable([&](Place held) {
        if (!may(held)) return false;
        const auto found = suspects_.find(held->delivery.position);
        const std::int64_t failed_us = found == suspects_.end() ? 0 : found->second.failed_at_us;
        if (best == held_.end() || failed_us < best_us) {
            best = held;
            best_us = failed_us;
        }
        return false;
    }));
    return best;
}

EndpointQueue::Place EndpointQueue::next_to_send(std::size_t share, const Now& now) {
    if (circuit_.state() == core::Circuit::State::kHalfOpen) {
        const auto place = startable([this](Place held) {
            return !is_suspect(held->delivery) && !circuit_.is_culprit(held->delivery.position);
        });
        if (place != held_.end() || stuck_ != Stuck::kAlone) return place;
        return longest_untried([](Place /*held*/) { return true; });
    }
    const Room places = room(share, now);
    if (places.suspects && (retried_ > 0 || !suspects_.empty())) {
        const auto place = longest_untried(
            [&](Place held) { return is_suspect(held->delivery) && !waits(held->delivery, now); });
        if (place != held_.end()) return place;
    }
    if (!places.others) return held_.end();
    return startable([this](Place held) { return !is_suspect(held->delivery); });
}

const Delivery* EndpointQueue::take(std::size_t share, const Now& now) {
    if (!may_send(share, now) || held_.size() == under_way_.size()) return nullptr;
    const bool probes = circuit_.state() == core::Circuit::State::kHalfOpen;
    const auto place = next_to_send(share, now);
    if (place == held_.end()) {
        const bool others_may = probes || room(share, now).others;
        if (stuck_ == Stuck::kNo && others_may) stuck_ = Stuck::kAsks;
        return nullptr;
    }
    const Delivery& delivery = place->delivery;
    place->under_way = true;
    place->generation = generation_;
    place->attempt = ++attempts_;
    place->sent_at_us = now.boot_us;
    if (!is_suspect(delivery)) others_under_way_.push_back(place->attempt);
    under_way_.push_back(delivery.position);
    if (delivery.key) busy_keys_.insert(*delivery.key);
    if (probes) {
        probe_ = delivery.position;
        circuit_.probing(delivery.position);
    }
    return &delivery;
}

EndpointQueue::Place EndpointQueue::find(std::int64_t position) {
    return std::find_if(held_.begin(), held_.end(), [position](const Held& held) {
        return held.delivery.position == position;
    });
}

void EndpointQueue::erase(Place place) {
    bytes_ -= place->delivery.bytes();
    retried_ -= place->delivery.attempts > 0 ? 1 : 0;
    held_.erase(place);
}

void EndpointQueue::drop_key(const std::string& key) {
    for (auto held = held_.begin(); held != held_.end();) {
        const auto here = held++;
        if (!here->under_way && here->delivery.key == key) erase(here);
    }
}

void EndpointQueue::drop_waiting() {
    for (auto held = held_.begin(); held != held_.end();) {
        const auto here = held++;
        if (here->under_way) continue;
        // One that failed before is found by the time at which it is due.
        if (here->delivery.attempts > 0) {
            due_at_us_ = 0;
        } else {
            read_again_from(here->delivery.position);
        }
        erase(here);
    }
}

void EndpointQueue::read_again_from(std::int64_t position) {
    after_.go_back_to(position - 1);
    around_.go_back_to(position - 1);
    more_ = true;
}

void EndpointQueue::end_attempt(Held& held) {
    held.under_way = false;
    std::erase(others_under_way_, held.attempt);
    std::erase(under_way_, held.delivery.position);
    if (held.delivery.key) busy_keys_.erase(*held.delivery.key);
    if (probe_ == held.delivery.position) probe_ = 0;
    stuck_ = Stuck::kNo;
    around_.go_back_to(held.delivery.position);  // behind it are others of its key
}

void EndpointQueue::forget(std::int64_t position) {
    const auto place = find(position);
    if (place != held_.end() && place->under_way) end_attempt(*place);
}

}  // namespace outbox::webhook
