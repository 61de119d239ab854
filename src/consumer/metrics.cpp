#include <outbox/consumer/metrics.h>

#include "core/metrics_text.h"

namespace outbox {

std::string consumer_metrics(std::string_view consumer, const ConsumerStats& stats,
                             std::optional<std::int64_t> lag) {
    MetricsText page;
    const auto add = [&](std::string_view name, std::string_view type, std::string_view help,
                         const std::string& value) {
        page.metric("outbox_inbox_" + std::string(name), type, help);
        page.sample({{"consumer", consumer}}, value);
    };
    const auto count = [&](std::string_view name, std::string_view help, std::uint64_t value) {
        add(name, "counter", help, std::to_string(value));
    };
    count("applied_total", "Messages applied for the first time.", stats.applied);
    count("repeats_total", "Messages dropped because the inbox knew them.", stats.repeats);
    count("failed_total", "Attempts that failed and counted.", stats.failed);
    count("dead_total", "Messages moved to the dead letters.", stats.dead);
    count("conflicts_total", "Transactions run again after a conflict.", stats.conflicts);
    if (lag) add("lag", "gauge", "Messages that are not applied yet.", std::to_string(*lag));
    return page.text();
}

}  // namespace outbox
