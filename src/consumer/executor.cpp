#include "consumer/executor.h"

namespace outbox::consumer {

bool Executor::handler_fails(std::span<const Message> messages, Attempt& attempt) {
    std::optional<ErrorInfo> cause = thrown_by([&] { handler_(messages); });
    if (!cause) return false;
    attempt.status = inbox_.roll_back(*cause);
    attempt.ended = attempt.status.ok() ? Attempt::Ended::kHandler : Attempt::Ended::kSession;
    if (attempt.status.ok()) attempt.status = Status(*std::move(cause));
    return true;
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
