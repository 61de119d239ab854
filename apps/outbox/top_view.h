#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "core/operations.h"

namespace outbox::app {

/// What one look at the database found.
struct TopSample {
    std::int64_t at_us = 0;
    std::string source;
    LeaseInfo lease;
    std::vector<std::string> standbys;
    std::int64_t backlog = 0;
    double oldest_age_s = 0;
    std::int64_t scheduled = 0;
    std::vector<RouteInfo> routes;   ///< `rate_per_s` as `TopRates` has it.
    std::vector<WaitingEvent> keys;  ///< The longest first.
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
