#include "webhook/endpoint_queue.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <string_view>
#include <utility>

#include "core/utf8.h"
#include "webhook/endpoint_url.h"
#include "webhook/retry_after.h"

namespace outbox::webhook {
namespace {

constexpr std::size_t kMaxErrorBytes = 500;
constexpr std::size_t kManyPlaces = 4;  // so many leave some beside half of them
constexpr std::size_t kMaxSuspects = 1'000;
// That are in memory for it, as no attempt of theirs is counted yet.
constexpr std::ptrdiff_t kMaxUnblamed = 50;
// Once may be chance: what was under way as an endpoint went down was overtaken, too.
constexpr std::uint32_t kEvidence = 2;

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

EndpointQueue::Judged EndpointQueue::judge(std::int64_t position, const Attempted& attempted,
                                           const Now& now, std::uint64_t random) {
    const auto place = find(position);
    if (place == held_.end() || !place->under_way) return {};
    end_attempt(*place);
    if (place->generation != generation_) return late(place, attempted);
    changed_ = true;
    if (attempted.verdict.kind == Verdict::Kind::kOwnFault) {
        return own_fault(attempted, now, random);
    }
    own_faults_ = 0;
    if (attempted.verdict.kind == Verdict::Kind::kDone) {
        circuit_.answered(position, true);
        last_accepted_ = std::max(last_accepted_, place->attempt);
        ++accepted_;
        succeeded(attempted, now);
        endpoint_.last_attempt_at_us = now.wall_us;
        return done(place);
    }
    if (attempted.verdict.kind == Verdict::Kind::kDown) return down(place, attempted, now, random);
    return endpoint_failed(place, attempted, now, random);
}

EndpointQueue::Judged EndpointQueue::endpoint_failed(Place place, const Attempted& attempted,
                                                     const Now& now, std::uint64_t random) {
    failed(attempted, now);
    if (attempted.verdict.kind == Verdict::Kind::kGone) return disable(attempted.verdict.text);
    if (now.wall_us - endpoint_.failing_since_us >= options_.give_up_after_us &&
        endpoint_.failures >= options_.least_failures) {
        return disable("no attempt has succeeded for " +
                       std::to_string(options_.give_up_after_us / (3600 * kSecondUs)) +
                       " h; the last: " + attempted.verdict.text);
    }
    Judged judged = attempted.verdict.kind == Verdict::Kind::kRefused
                        ? refused(place, attempted, now, random)
                        : outage(place, attempted, now, random);
    if (circuit_.state() == core::Circuit::State::kOpen) {
        endpoint_.paused_until_us = std::max(
            endpoint_.paused_until_us,
            now.wall_us + std::max<std::int64_t>(0, circuit_.opens_until_us() - now.boot_us));
    }
    if (paused(now)) drop_waiting();
    return judged;
}

EndpointQueue::Judged EndpointQueue::done(Place place) {
    const Delivery& delivery = place->delivery;
    Outcome outcome;
    outcome.endpoint_id = endpoint_.id;
    outcome.event_id = delivery.event_id;
    outcome.position = delivery.position;
    suspects_.erase(delivery.position);
    // Others of its key were left out while it failed.
    if (delivery.attempts > 0) read_again_from(delivery.position);
    erase(place);
    ++delivered_;
    return {.outcome = std::move(outcome)};
}

// Of the endpoint as it was: whether it may be sent to now, and how it fares, the answer does not
// say.
EndpointQueue::Judged EndpointQueue::late(Place place, const Attempted& attempted) {
    if (attempted.verdict.kind == Verdict::Kind::kDone) return done(place);
    due_at_us_ = 0;
    read_again_from(place->delivery.position);
    erase(place);
    return {};
}

// While it is paused the cause of that stays to be read.
void EndpointQueue::succeeded(const Attempted& attempted, const Now& now) {
    proven_ = true;
    refused_in_row_ = 0;
    endpoint_.failing_since_us = 0;
    endpoint_.failures = 0;
    endpoint_.last_status = attempted.status;
    if (now.wall_us >= endpoint_.paused_until_us) endpoint_.last_error.clear();
}

// Time in which nobody tried, as no relay ran, is no failing.
void EndpointQueue::failed(const Attempted& attempted, const Now& now) {
    const std::int64_t tried_until_us = std::max(
        endpoint_.last_attempt_at_us + options_.longest_wait_us(), endpoint_.paused_until_us);
    if (endpoint_.failing_since_us == 0 || endpoint_.failing_since_us > now.wall_us) {
        endpoint_.failing_since_us = now.wall_us;
    } else if (now.wall_us > tried_until_us) {
        endpoint_.failing_since_us += now.wall_us - tried_until_us;
    }
    ++endpoint_.failures;
    ++untold_failures_;
    endpoint_.last_attempt_at_us = now.wall_us;
    endpoint_.last_status = attempted.status;
    endpoint_.last_error = to_storable_text(attempted.verdict.text, kMaxErrorBytes);
    proven_ = false;
    rows_ = options_.slice_rows;
}

// It says nothing of the endpoint, and is tried again when the fault may be over.
EndpointQueue::Judged EndpointQueue::own_fault(const Attempted& attempted, const Now& now,
                                               std::uint64_t random) {
    rests_until_us_ = now.boot_us + options_.own_retry.delay_us(++own_faults_, random);
    endpoint_.last_error = to_storable_text(attempted.verdict.text, kMaxErrorBytes);
    drop_waiting();
    return {};
}

EndpointQueue::Suspect& EndpointQueue::suspect(std::int64_t position, const Now& now) {
    if (!suspects_.contains(position) && suspects_.size() == kMaxSuspects) {
        suspects_.erase(suspects_.begin());
    }
    Suspect& suspect = suspects_[position];
    suspect.accepted = accepted_;
    suspect.failed_at_us = now.boot_us;
    return suspect;
}

// It failed before while others were accepted, and nothing else was sent since: whether the
// endpoint is down now, the next one shows.
bool EndpointQueue::says_nothing(std::int64_t position) const {
    const auto found = suspects_.find(position);
    return circuit_.state() == core::Circuit::State::kClosed && found != suspects_.end() &&
           found->second.evidence > 0;
}

// Not longer than an endpoint that is down waits: that may be what it is.
void EndpointQueue::put_off(Suspect& suspect, const Now& now, std::uint64_t random) const {
    const std::int64_t most_us = options_.outage_retry.max_ms * 1'000;
    suspect.due_at_us =
        now.boot_us +
        std::min(options_.event_retry.delay_us(std::max(suspect.failures, 1U), random), most_us);
}

// Where others were accepted that were sent later, or since it failed before, the endpoint is not
// down for what hangs on this event.
EndpointQueue::Judged EndpointQueue::down(Place place, const Attempted& attempted, const Now& now,
                                          std::uint64_t random) {
    const std::int64_t position = place->delivery.position;
    const bool closed = circuit_.state() == core::Circuit::State::kClosed;
    const auto known = suspects_.find(position);
    const bool others_since =
        closed && known != suspects_.end() && known->second.accepted < accepted_;
    const bool is_its_own = place->attempt < last_accepted_ || others_since;
    suspects_rest_until_us_ = now.boot_us + 3 * (now.boot_us - place->sent_at_us);
    Suspect& suspect = this->suspect(position, now);
    if (is_its_own) return its_own(place, suspect, attempted, now, random);
    if (says_nothing(position)) ++suspect.failures;
    put_off(suspect, now, random);
    return endpoint_failed(place, attempted, now, random);
}

EndpointQueue::Judged EndpointQueue::its_own(Place place, Suspect& suspect,
                                             const Attempted& attempted, const Now& now,
                                             std::uint64_t random) {
    ++suspect.failures;
    ++suspect.evidence;
    put_off(suspect, now, random);
    if (!must_blame(place->delivery, suspect)) return {};
    suspect.evidence = kEvidence - 1;  // Its next needs new evidence.
    suspect.due_at_us = 0;             // The table says when.
    return refused(place, attempted, now, random);
}

bool EndpointQueue::must_blame(const Delivery& delivery, const Suspect& suspect) const {
    if (suspect.evidence >= kEvidence || delivery.attempts > 0) return true;
    return std::count_if(held_.begin(), held_.end(), [this](const Held& held) {
               const auto found = suspects_.find(held.delivery.position);
               return held.delivery.attempts == 0 && found != suspects_.end() &&
                      found->second.evidence > 0;
           }) > kMaxUnblamed;
}

// No attempt is counted, unless this event alone is what the endpoint fails on.
EndpointQueue::Judged EndpointQueue::outage(Place place, const Attempted& attempted, const Now& now,
                                            std::uint64_t random) {
    const std::int64_t position = place->delivery.position;
    const bool is_down = attempted.verdict.kind == Verdict::Kind::kDown;
    const bool follows_event =
        !(is_down && says_nothing(position)) && circuit_.failed(position, now.boot_us, random);
    // Beside the back-off, as an endpoint may ask for no time at all.
    if (attempted.verdict.wait) {
        endpoint_.paused_until_us = std::max(
            endpoint_.paused_until_us, now.wall_us + attempted.verdict.wait->count() * kSecondUs);
    }
    return follows_event ? refused(place, attempted, now, random) : Judged{};
}

// As of the endpoint, time in which nobody tried it is no failing.
std::int64_t EndpointQueue::failing_since(const Delivery& delivery, const Now& now) const {
    const std::int64_t first_us = delivery.first_failed_at_us;
    if (first_us == 0 || first_us > now.wall_us) return now.wall_us;
    const std::int64_t tried_until_us = delivery.next_attempt_at_us + options_.longest_wait_us();
    return first_us + std::max<std::int64_t>(0, now.wall_us - tried_until_us);
}

// Goes again later, and its key waits for it.
EndpointQueue::Judged EndpointQueue::refused(Place place, const Attempted& attempted,
                                             const Now& now, std::uint64_t random) {
    const Delivery& delivery = place->delivery;
    if (attempted.verdict.kind == Verdict::Kind::kRefused) {
        if (++refused_in_row_ >= options_.open_after) {
            static_cast<void>(circuit_.failed(delivery.position, now.boot_us, random));
        } else {
            circuit_.answered(delivery.position, false);
        }
    }
    Outcome outcome{.kind = Outcome::Kind::kFailed,
                    .endpoint_id = endpoint_.id,
                    .event_id = delivery.event_id,
                    .position = delivery.position,
                    .attempts = delivery.attempts + 1,
                    .first_failed_at_us = failing_since(delivery, now),
                    .last_status = attempted.status,
                    .last_error = to_storable_text(attempted.verdict.text, kMaxErrorBytes),
                    .created_at_us = endpoint_.created_at_us,
                    .revision = endpoint_.revision};
    outcome.next_attempt_at_us =
        now.wall_us +
        options_.event_retry.delay_us(static_cast<std::uint32_t>(outcome.attempts), random);
    if (now.wall_us - outcome.first_failed_at_us >= options_.give_up_after_us &&
        outcome.attempts >= options_.least_failures) {
        outcome.kind = Outcome::Kind::kDead;
        suspects_.erase(delivery.position);
        read_again_from(delivery.position);
        ++untold_dead_;
        last_dead_ = outcome.event_id;
        last_dead_error_ = outcome.last_error;
    } else {
        due_at_us_ = std::min(due_at_us_, outcome.next_attempt_at_us);
    }
    const auto key = delivery.key;
    erase(place);
    if (key) drop_key(*key);
    return {.outcome = std::move(outcome)};
}

EndpointQueue::Judged EndpointQueue::disable(std::string_view reason) {
    endpoint_.state = Endpoint::State::kDisabled;
    endpoint_.reason = to_storable_text(reason, kMaxErrorBytes);
    disabled_because_ = endpoint_.reason;
    disabled_revision_ = endpoint_.revision;
    ++generation_;
    drop_waiting();
    return {.outcome = {}, .disabled = true};
}

std::optional<Remark> EndpointQueue::news(const Now& now) {
    using Level = Remark::Level;
    const bool failing = endpoint_.failing_since_us != 0;
    if (told_failing_ && !failing && endpoint_.enabled()) {
        told_failing_ = false;
        return Remark{Level::kInfo, "webhook_recovered", {{"endpoint", endpoint_.id}}};
    }
    const bool fails = failing && !told_failing_ && untold_failures_ > 0;
    if ((untold_dead_ == 0 && !fails) || now.boot_us < quiet_until_us_) return {};
    quiet_until_us_ = now.boot_us + kQuietUs;
    if (untold_dead_ > 0) {
        return Remark{Level::kError,
                      "webhook_dead",
                      {{"endpoint", endpoint_.id},
                       {"id", last_dead_},
                       {"deliveries", std::to_string(std::exchange(untold_dead_, 0))},
                       {"error", last_dead_error_}}};
    }
    told_failing_ = true;
    return Remark{Level::kWarning,
                  "webhook_failing",
                  {{"endpoint", endpoint_.id},
                   {"failures", std::to_string(std::exchange(untold_failures_, 0))},
                   {"error", endpoint_.last_error}}};
}

std::optional<EndpointChange> EndpointQueue::change(const Now& now, bool last) {
    const bool due = last || disabled_because_ || now.boot_us - told_us_ >= kSecondUs;
    if (!due || (!changed_ && delivered_ == 0)) return {};
    EndpointChange change{.endpoint_id = endpoint_.id,
                          .created_at_us = endpoint_.created_at_us,
                          .failing_since_us = endpoint_.failing_since_us,
                          .failures = endpoint_.failures,
                          .last_attempt_at_us = endpoint_.last_attempt_at_us,
                          .paused_until_us = endpoint_.paused_until_us,
                          .last_status = endpoint_.last_status,
                          .last_error = endpoint_.last_error,
                          .delivered = std::exchange(delivered_, 0),
                          .disabled_because = std::exchange(disabled_because_, {}),
                          .revision = endpoint_.revision};
    changed_ = false;
    told_us_ = now.boot_us;
    return change;
}

void EndpointQueue::untold(const EndpointChange& change) {
    changed_ = true;
    delivered_ += change.delivered;
    if (!disabled_because_ && change.revision == endpoint_.revision) {
        disabled_because_ = change.disabled_because;
    }
}

}  // namespace outbox::webhook
