#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace outbox {

namespace tracing {
class SpanQueue;
}  // namespace tracing

/// Where a consumer tells of what it applies, for tracing. Set in its options: a message whose
/// `traceparent` is sampled gets a span `outbox.apply` below its writer's for each attempt, from
/// the begin of the transaction to its end. Nothing waits for it: spans for which there is no room
/// are dropped. Several consumers may share one.
struct SpanExport {
    std::shared_ptr<tracing::SpanQueue> queue = {};
};

/// Sends them to a receiver of OTLP over HTTP, `http://collector:4318` (or https, with the
/// parameters of docs/tracing.md), in batches, by a thread of its own, which ends with the last
/// that uses it and then takes up to 2 s for what is left. `service`: `service.name`. `on_change`,
/// if any, is called on that thread with why spans are not taken, or with "" when they are again;
/// must not throw. Throws `Error` `kConfigInvalid` for a URL that it cannot read. Needs the library
/// outbox_tracing_otlp to be linked.
SpanExport otlp_spans(std::string_view url, std::string service,
                      std::function<void(const std::string& error)> on_change = {});

}  // namespace outbox
