#include "consumer/letters.h"

#include <utility>

#include "consumer/applying.h"

namespace outbox::consumer {
namespace {

constexpr std::size_t kMaxWaiting = 10'000;  // then their waits begin anew

}  // namespace

Means Letters::settle(std::string_view id, const Attempt& attempt, std::uint64_t random) {
    Means means =
        is_nobodys_fault(id, attempt) ? Means::kWaits : Executor::meaning_of(attempt, 1, retry_);
    if (means == Means::kWaits || means == Means::kStop) {
        if (waiting_.size() > kMaxWaiting) {
            std::erase_if(waiting_, [](const auto& entry) { return !entry.second.is_owed; });
        }
        Waiting& waiting = waiting_[std::string(id)];
        waiting.delay_us = retry_.delay_us(++waiting.tries, random);
        // While the database is down, or another session holds it, it stays owed.
        static_cast<void>(put_back(std::string(id), waiting).ok());
        return means;
    }
    waiting_.erase(std::string(id));
    if (means == Means::kApplied) return means;
    // A letter that fails once more stays one.
    const ErrorInfo& error = attempt.status.error();
    const std::string text = storable(error);
    static_cast<void>(inbox_.bury_again(id, {1, error_code_name(error.code), text}).ok());
    return Means::kDead;
}

// An outage is nobody's fault, but a letter that loses its session again and again is. Nor is it
// the letter's that another session holds it.
bool Letters::is_nobodys_fault(std::string_view id, const Attempt& attempt) {
    if (attempt.ended == Attempt::Ended::kBegin && is_conflict(attempt.status)) return true;
    if (!attempt.is_outage()) return false;
    if (attempt.ended == Attempt::Ended::kBegin) return true;
    return ++waiting_[std::string(id)].lost <= kMaxLostSessions;
}

Status Letters::put_back(const std::string& id, Waiting& waiting) {
    Status status = inbox_.put_request_back(id, waiting.delay_us);
    waiting.is_owed = !status.ok();
    return status;
}

Status Letters::put_back_rest() {
    for (auto& [id, waiting] : waiting_) {
        if (!waiting.is_owed) continue;
        Status status = put_back(id, waiting);
        if (!status.ok() && !is_conflict(status)) return status;
    }
    return {};
}

}  // namespace outbox::consumer
