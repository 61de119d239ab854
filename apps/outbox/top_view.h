#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "core/operations.h"

namespace outbox::app {

inline constexpr std::size_t kMaxTopTenants = 10;

/// A tenant that is paused, or of whom most waits.
struct TopTenant {
    std::string name;
    std::int64_t waiting = 0;
    std::string paused_by = {};  ///< Empty: it is not paused.
    std::string reason = {};
    std::int64_t paused_since_us = 0;
};

/// Those that are paused, the longest backlog first, then the others likewise; at most
/// `kMaxTopTenants` of each. None where there is but the tenant of events that name none. Pure.
[[nodiscard]] std::vector<TopTenant> top_tenants(const std::vector<PausedTenant>& paused,
                                                 const TenantBacklogs& backlogs,
                                                 const std::string& default_tenant);

[[nodiscard]] nlohmann::ordered_json json_of(const TopTenant& tenant);

/// What one look at the database found.
struct TopSample {
    std::int64_t at_us = 0;
    std::string source;
    std::vector<LeaseInfo> leases;  ///< See `Operations::leases`.
    std::vector<std::string> standbys;
    std::int64_t backlog = 0;
    double oldest_age_s = 0;
    std::int64_t scheduled = 0;
    std::int64_t owed = 0;
    std::string remark;              ///< What `outbox status` remarks of the table; or empty.
    std::vector<RouteInfo> routes;   ///< `rate_per_s` as `TopRates` has it.
    std::vector<WaitingEvent> keys;  ///< The longest first.
    std::vector<TopTenant> tenants;
    std::size_t paused = 0;         ///< Tenants in all.
    bool tenants_are_more = false;  ///< More waits than was counted by tenant.
};

/// Rates out of counters, over the last few seconds. Pure.
class TopRates {
  public:
    /// Sets the routes' rates. Where a counter has begun anew, and at the first look, it is what
    /// the relay says of itself.
    void measure(double now_s, std::vector<RouteInfo>& routes);

  private:
    struct Point {
        double at_s;
        std::int64_t total;
    };
    std::map<std::string, std::deque<Point>> seen_;
};

/// What is shown.
struct TopState {
    TopSample sample;  ///< The last one.
    double age_s = 0;  ///< Its.
    std::string away;  ///< What the database answers instead; empty: it is not away.
    std::int64_t now_us = 0;
};

/// Lines of at most `columns` on at most `rows`, whatever is in them. Pure.
[[nodiscard]] std::vector<std::string> top_screen(const TopState& state, std::size_t columns,
                                                  std::size_t rows, bool colours);

/// A line for each route, fields "name=value" in one order; without routes one line of the table.
[[nodiscard]] std::vector<std::string> top_lines(const TopState& state);

/// One line of JSON.
[[nodiscard]] std::string top_json(const TopState& state);

}  // namespace outbox::app
