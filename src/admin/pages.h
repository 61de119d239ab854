#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "admin/server.h"

namespace outbox::admin {

/// What the health pages tell.
struct HealthReport {
    bool database = false;
    std::string database_error = {};
    bool leading = false;
    std::uint64_t epoch = 0;
    std::int64_t loop_age_us = 0;  ///< Since the slowest loop last moved.
    std::vector<std::string> open_circuits = {};
};

/// A loop that has not moved for this long hangs. Longer than any bounded wait of the relay: a
/// statement may take a minute, and the end of a term waits for those that are under way.
inline constexpr std::int64_t kMaxLoopAgeUs = 180'000'000;

/// /health/live: 200 while the loops move, else 503.
[[nodiscard]] HttpResponse live_page(const HealthReport& report);

/// /health/ready: 200 while the database answers, also on a standby; else 503. The body names the
/// routes whose circuit is open, and with `show_error` why the database does not answer.
[[nodiscard]] HttpResponse ready_page(const HealthReport& report, bool show_error = true);

}  // namespace outbox::admin
