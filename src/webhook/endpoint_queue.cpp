#include "webhook/endpoint_queue.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/utf8.h"

namespace outbox::webhook {
namespace {

constexpr std::size_t kMaxErrorBytes = 500;

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

bool same_order(const Endpoint& one, const Endpoint& other) {
    return one.revision == other.revision && one.url == other.url && one.events == other.events &&
           one.tenant == other.tenant && one.secrets == other.secrets;
}

}  // namespace

EndpointQueue::EndpointQueue(Endpoint endpoint, const DispatchOptions& options)
    : options_(options), endpoint_(std::move(endpoint)), circuit_(options.outage_retry) {}

void EndpointQueue::update(Endpoint endpoint) {
    const bool mine = endpoint.state == endpoint_.state || disabled_revision_ == endpoint.revision;
    if (mine && same_order(endpoint, endpoint_)) return;
    endpoint_ = std::move(endpoint);
    begin_afresh();
}

void EndpointQueue::begin_afresh() {
    drop_waiting();
    circuit_ = core::Circuit(options_.outage_retry);
    proven_ = false;
    refused_in_row_ = 0;
    disabled_because_.reset();
    due_at_us_ = 0;
    expect_more(true);
}

void EndpointQueue::expect_more(bool everywhere) {
    more_ = true;
    if (stuck_ == Stuck::kAlone) stuck_ = Stuck::kNo;
    if (everywhere) after_ = 0;
}

bool EndpointQueue::paused(const Now& now) const {
    return now.wall_us < endpoint_.paused_until_us ||
           (circuit_.state() == core::Circuit::State::kOpen &&
            now.boot_us < circuit_.opens_until_us());
}

bool EndpointQueue::may_send(std::size_t share, const Now& now) {
    if (!endpoint_.enabled() || now.wall_us < endpoint_.paused_until_us) return false;
    circuit_.tick(now.boot_us);
    if (circuit_.state() == core::Circuit::State::kOpen) return false;
    if (circuit_.state() == core::Circuit::State::kHalfOpen) return probe_ == 0;
    return under_way_.size() < (proven_ ? std::max<std::size_t>(share, 1) : 1);
}

bool EndpointQueue::busy() const {
    return endpoint_.enabled() && (more_ || !held_.empty());
}

bool EndpointQueue::wants_slice(std::size_t share, const Now& now) {
    if (!may_send(share, now)) return false;
    if (now.wall_us >= due_at_us_ || stuck_ == Stuck::kAsks) return true;
    const std::size_t wanted = proven_ ? std::max<std::size_t>(share, 1) : 1;
    return more_ && held_.size() - under_way_.size() < wanted;
}

Slice EndpointQueue::slice() const {
    Slice slice;
    slice.endpoint_id = endpoint_.id;
    slice.after = after_;
    // As many as may be under way: what hangs must not fill the memory.
    slice.max_rows = proven_ ? options_.slice_rows : 1;
    for (const Held& held : held_) {
        slice.held.push_back(held.delivery.position);
        if (stuck_ == Stuck::kAsks && held.delivery.key) {
            slice.without_keys.push_back(*held.delivery.key);
        }
    }
    slice.around = stuck_ == Stuck::kAsks;
    return slice;
}

void EndpointQueue::admit(std::vector<Delivery> deliveries, const Slice& slice, bool cut) {
    std::int64_t last = 0;
    Limit due{slice.max_rows, options_.slice_bytes};
    Limit fresh = due;
    for (Delivery& delivery : deliveries) {
        (delivery.attempts == 0 ? fresh : due).add(delivery);
        if (delivery.attempts == 0) last = std::max(last, delivery.position);
        const auto place = std::find_if(held_.begin(), held_.end(), [&](const Held& held) {
            return held.delivery.position >= delivery.position;
        });
        if (place != held_.end() && place->delivery.position == delivery.position) continue;
        bytes_ += delivery.bytes();
        held_.insert(place, {std::move(delivery)});
    }
    due_at_us_ = cut || due.reached() ? 0 : kNever;
    if (slice.around) {
        stuck_ = deliveries.empty() ? Stuck::kAlone : Stuck::kNo;
        return;
    }
    after_ = std::max(after_, last);
    more_ = cut || fresh.reached();
    if (!more_) misses_ = false;
}

EndpointQueue::Place EndpointQueue::startable(bool culprits) {
    std::unordered_set<std::string_view> passed;
    for (auto held = held_.begin(); held != held_.end(); ++held) {
        if (held->under_way) continue;
        const auto& key = held->delivery.key;
        if (key && (busy_keys_.contains(*key) || passed.contains(*key))) continue;
        if (culprits || !circuit_.is_culprit(held->delivery.position)) return held;
        if (key) passed.insert(*key);
    }
    return held_.end();
}

const Delivery* EndpointQueue::take(std::size_t share, const Now& now) {
    if (!may_send(share, now) || held_.size() == under_way_.size()) return nullptr;
    const bool probes = circuit_.state() == core::Circuit::State::kHalfOpen;
    auto place = startable(!probes);
    if (place == held_.end() && stuck_ == Stuck::kAlone && probes) place = startable(true);
    if (place == held_.end()) {
        if (stuck_ == Stuck::kNo) stuck_ = Stuck::kAsks;
        return nullptr;
    }
    const Delivery& delivery = place->delivery;
    place->under_way = true;
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
    after_ = std::min(after_, position - 1);
    more_ = true;
}

void EndpointQueue::end_attempt(Held& held) {
    held.under_way = false;
    std::erase(under_way_, held.delivery.position);
    if (held.delivery.key) busy_keys_.erase(*held.delivery.key);
    if (probe_ == held.delivery.position) probe_ = 0;
    stuck_ = Stuck::kNo;
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
    changed_ = true;
    if (attempted.verdict.kind == Verdict::Kind::kDone) {
        circuit_.answered(position, true);
        succeeded(attempted);
        endpoint_.last_attempt_at_us = now.wall_us;
        Outcome done;
        done.endpoint_id = endpoint_.id;
        done.event_id = place->delivery.event_id;
        // Others of its key were left out while it failed.
        if (place->delivery.attempts > 0) read_again_from(position);
        erase(place);
        return {.outcome = std::move(done)};
    }
    failed(attempted, now);
    if (!endpoint_.enabled()) {
        drop_waiting();
        return {};
    }
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

void EndpointQueue::succeeded(const Attempted& attempted) {
    proven_ = true;
    refused_in_row_ = 0;
    endpoint_.failing_since_us = 0;
    endpoint_.failures = 0;
    endpoint_.last_status = attempted.status;
    endpoint_.last_error.clear();
    ++delivered_;
}

// Time in which nobody tried, as no relay ran, is no failing.
void EndpointQueue::failed(const Attempted& attempted, const Now& now) {
    const std::int64_t longest_us =
        2 * std::max(options_.outage_retry.max_ms, options_.event_retry.max_ms) * 1'000;
    const std::int64_t tried_until_us =
        std::max(endpoint_.last_attempt_at_us + longest_us, endpoint_.paused_until_us);
    if (endpoint_.failing_since_us == 0) {
        endpoint_.failing_since_us = now.wall_us;
    } else if (now.wall_us > tried_until_us) {
        endpoint_.failing_since_us += now.wall_us - tried_until_us;
    }
    ++endpoint_.failures;
    endpoint_.last_attempt_at_us = now.wall_us;
    endpoint_.last_status = attempted.status;
    endpoint_.last_error = to_storable_text(attempted.verdict.text, kMaxErrorBytes);
    proven_ = false;
}

// No attempt is counted, unless this event alone is what the endpoint fails on.
EndpointQueue::Judged EndpointQueue::outage(Place place, const Attempted& attempted, const Now& now,
                                            std::uint64_t random) {
    const bool follows_event = circuit_.failed(place->delivery.position, now.boot_us, random);
    // Beside the back-off, as an endpoint may ask for no time at all.
    if (attempted.verdict.wait) {
        endpoint_.paused_until_us = std::max(
            endpoint_.paused_until_us, now.wall_us + attempted.verdict.wait->count() * kSecondUs);
        return {};
    }
    return follows_event ? refused(place, attempted, now, random) : Judged{};
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
                    .attempts = delivery.attempts + 1,
                    .first_failed_at_us = delivery.first_failed_at_us == 0
                                              ? now.wall_us
                                              : delivery.first_failed_at_us,
                    .last_status = attempted.status,
                    .last_error = to_storable_text(attempted.verdict.text, kMaxErrorBytes)};
    outcome.next_attempt_at_us =
        now.wall_us +
        options_.event_retry.delay_us(static_cast<std::uint32_t>(outcome.attempts), random);
    if (now.wall_us - outcome.first_failed_at_us >= options_.give_up_after_us &&
        outcome.attempts >= options_.least_failures) {
        outcome.kind = Outcome::Kind::kDead;
        read_again_from(delivery.position);
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
    drop_waiting();
    return {.outcome = {}, .disabled = true};
}

std::optional<EndpointChange> EndpointQueue::change(const Now& now) {
    const bool due = disabled_because_ || now.boot_us - told_us_ >= kSecondUs;
    if (!due || (!changed_ && delivered_ == 0 && missed_ == 0)) return {};
    EndpointChange change{.endpoint_id = endpoint_.id,
                          .failing_since_us = endpoint_.failing_since_us,
                          .failures = endpoint_.failures,
                          .last_attempt_at_us = endpoint_.last_attempt_at_us,
                          .paused_until_us = endpoint_.paused_until_us,
                          .last_status = endpoint_.last_status,
                          .last_error = endpoint_.last_error,
                          .delivered = std::exchange(delivered_, 0),
                          .missed = std::exchange(missed_, 0),
                          .disabled_because = std::exchange(disabled_because_, {}),
                          .revision = endpoint_.revision};
    changed_ = false;
    told_us_ = now.boot_us;
    return change;
}

void EndpointQueue::untold(const EndpointChange& change) {
    changed_ = true;
    delivered_ += change.delivered;
    missed_ += change.missed;
    if (!disabled_because_ && change.revision == endpoint_.revision) {
        disabled_because_ = change.disabled_because;
    }
}

bool EndpointQueue::missed(std::int64_t events) {
    missed_ += events;
    return !std::exchange(misses_, true);
}

}  // namespace outbox::webhook
