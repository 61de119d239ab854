#include "consumer/executor.h"

#include <utility>

namespace outbox::consumer {

// Of what is gone, or could not be begun, nothing was tried.
void Executor::tell(const Message& message, std::int64_t began_us, const Attempt& attempt) {
    using Outcome = ApplySpans::Outcome;
    if (!attempt.status.ok()) {
        spans_.tell(message, began_us, Outcome::kFailed, &attempt.status.error());
    } else if (attempt.taken != Taken::kGone) {
        const bool is_new = attempt.taken == Taken::kNew;
        spans_.tell(message, began_us, is_new ? Outcome::kApplied : Outcome::kRepeat);
    }
}

bool Executor::handler_fails(std::span<const Message> messages, Attempt& attempt) {
    std::optional<ErrorInfo> cause = thrown_by([&] {
        const CallersClock scope(clock_);
        handler_(messages);
    });
    if (!cause) return false;
    roll_back(*std::move(cause), attempt);
    return true;
}

void Executor::roll_back(ErrorInfo cause, Attempt& attempt) {
    attempt.status = inbox_.roll_back(cause);
    if (!attempt.status.ok()) return not_ended(attempt);
    attempt.ended = Attempt::Ended::kHandler;
    attempt.status = Status(std::move(cause));
}

void Executor::not_ended(Attempt& attempt) {
    attempt.ended = Attempt::Ended::kSession;
    attempt.is_blamed =
        attempt.taken == Taken::kNew && inbox_.may_be_messages_doing(attempt.status.error());
}

Status Executor::fetch_payload(Message& message, std::string& payload) {
    const auto claim = claims_.of(message);
    if (!claim.ok()) return claim.error();
    if (!*claim) return {};
    auto bytes = claims_.get(**claim, stop_);
    if (!bytes.ok()) return bytes.error();
    payload = *std::move(bytes);
    message.payload = payload;
    return {};
}

bool Executor::is_elsewhere(const spi::EventView& event) const {
    const auto claim = claims_.of(message_of(event, 1));
    return !claim.ok() || claim->has_value();
}

Means Executor::meaning_of(const Attempt& attempt, std::uint32_t attempts,
                           const core::RetryPolicy& retry) {
    if (attempt.status.ok()) return Means::kApplied;
    const Advice advice = attempt.status.error().advice;
    if (advice == Advice::kStop) return Means::kStop;
    if (!attempt.counts()) return Means::kWaits;
    return advice == Advice::kDeadLetter || retry.exhausted(attempts) ? Means::kDead
                                                                      : Means::kFailed;
}

}  // namespace outbox::consumer
