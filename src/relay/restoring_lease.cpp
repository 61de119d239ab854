#include "relay/restoring_lease.h"

namespace outbox::relay {

Result<std::optional<std::uint64_t>> RestoringLease::acquire(const std::string& owner,
                                                             std::chrono::milliseconds ttl) {
    auto epoch = lease_->acquire(owner, ttl);
    if (epoch.ok() || epoch.error().code != ErrorCode::kNoSuchTable) return epoch;
    ErrorInfo error = epoch.error();
    const auto made = make_();
    if (made.ok() && *made) {
        return ErrorInfo{ErrorCode::kServerChanged,
                         Advice::kStop,
                         {},
                         "the database came back without the relay's side tables (" +
                             error.message + "); they were made anew"};
    }
    // It is not there yet, or another relay has just made them.
    if (!made.ok()) error = made.error();
    error.advice = Advice::kRetryDestination;
    return error;
}

}  // namespace outbox::relay
