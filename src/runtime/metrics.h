#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/spi/source.h>

#include "relay/route_stats.h"

namespace outbox::runtime {

/// Most values of the label `route`; a configuration has no more routes than that.
inline constexpr std::size_t kMaxRouteLabels = 64;

/// What is measured, at the moment of a scrape. The relay counts in plain atomics once per batch;
/// only a scrape makes metrics of them.
struct MetricsSnapshot {
    std::string source;  ///< The outbox table.
    spi::Recorder::Stats database_stats;
    bool leading = false;
    bool database = false;
    std::uint64_t epoch = 0;
    std::size_t max_unrecorded = 0;
    std::size_t max_in_flight_bytes = 0;
    struct Spans {
        std::uint64_t sent = 0;
        std::uint64_t dropped = 0;
    };
    std::optional<Spans> spans;  ///< Only where they are sent somewhere.
    struct Route {
        std::string name;
        const relay::RouteStats* stats = nullptr;
    };
    std::vector<Route> routes;
};

/// The page of /metrics in Prometheus' text format.
[[nodiscard]] std::string render_metrics(const MetricsSnapshot& snapshot);

struct MetricSpec {
    std::string_view name;
    std::string_view type;    ///< "gauge", "counter", "histogram".
    std::string_view labels;  ///< Besides `source`.
    std::string_view help;
};
[[nodiscard]] std::span<const MetricSpec> metric_table();

}  // namespace outbox::runtime
