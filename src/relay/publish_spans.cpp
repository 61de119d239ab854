#include "relay/publish_spans.h"

#include <algorithm>
#include <utility>

#include "tracing/trace_context.h"

namespace outbox::relay {

// The names of attributes that begin with "messaging." are OpenTelemetry's.
void PublishSpans::tell(const Attempt& attempt, std::uint64_t random,
                        const ErrorInfo* error) const {
    if (queue_ == nullptr) return;
    const spi::EventView& event = attempt.event;
    const auto context = tracing::find_trace_context(event.headers);
    if (!context || !context->sampled) return;
    tracing::Span span;
    span.trace_id = context->trace_id;
    span.parent_id = context->span_id;
    span.id = std::max<std::uint64_t>(random, 1);
    span.name = "outbox.publish";
    span.kind = tracing::Span::Kind::kProducer;
    span.start_us = attempt.start_us;
    span.end_us = attempt.end_us;
    span.attributes = {{"messaging.operation.type", "send"},
                       {"messaging.system", system_},
                       {"messaging.message.id", std::string(event.id)},
                       {"outbox.route", route_},
                       {"outbox.event_type", std::string(event.event_type)},
                       {"outbox.attempt", std::to_string(attempt.number)}};
    if (!attempt.topic.empty()) {
        span.attributes.emplace_back("messaging.destination.name", attempt.topic);
    }
    if (error != nullptr) {
        span.attributes.emplace_back("error.type", error_code_name(error->code));
        span.error = describe(*error);
    }
    queue_->offer(std::move(span));
}

}  // namespace outbox::relay
