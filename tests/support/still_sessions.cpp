#include "tests/support/still_sessions.h"

#include <chrono>

namespace outbox::test {

bool StillSessions::keep_waiting(const std::function<void()>& ask, std::future<void>& waiting) {
    holder_.exec("BEGIN; LOCK " + table_);
    waiting = std::async(std::launch::async, ask);
    bool stopped = false;
    while (!stopped &&
           waiting.wait_for(std::chrono::milliseconds(10)) != std::future_status::ready) {
        stopped = stop_one();
    }
    holder_.exec("ROLLBACK");
    return stopped;
}

bool StillSessions::stop_one() {
    const auto rows = look_.query(
        "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name "
        "= '" +
        application_ + "' AND state = 'active' AND wait_event_type = 'Lock' LIMIT 1");
    if (rows.empty()) return false;
    stopped_.push_back(std::make_unique<StoppedBackend>(rows[0][0].value()));
    return true;
}

}  // namespace outbox::test
