#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/consumer/mailbox.h>

namespace outbox {

/// A consumer's figures in Prometheus' text format, for the service's own page of metrics:
/// outbox_inbox_applied_total, outbox_inbox_repeats_total, outbox_inbox_failed_total,
/// outbox_inbox_dead_total, outbox_inbox_conflicts_total and, where it is given, outbox_inbox_lag
/// (messages not applied yet), each with the label `consumer`. Thread safety: any; does not block.
[[nodiscard]] std::string consumer_metrics(std::string_view consumer, const ConsumerStats& stats,
                                           std::optional<std::int64_t> lag = std::nullopt);

}  // namespace outbox
