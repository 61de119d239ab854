#include <algorithm>
#include <utility>

#include "core/utf8.h"
#include "webhook/endpoint_queue.h"

// What outcomes mean for a delivery, and for its endpoint.
namespace outbox::webhook {
namespace {

constexpr std::size_t kMaxErrorBytes = 500;
constexpr std::size_t kMaxSuspects = 1'000;
// That are in memory for it, as no attempt of theirs is counted yet.
constexpr std::ptrdiff_t kMaxUnblamed = 50;
// Once may be chance: what was under way as an endpoint went down was overtaken, too.
constexpr std::uint32_t kEvidence = 2;

}  // namespace

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
