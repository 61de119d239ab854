#include "consumer/apply_spans.h"

#include <algorithm>
#include <utility>

#include "tracing/span_queue.h"
#include "tracing/trace_context.h"

namespace outbox::consumer {
namespace {

std::string_view word_of(ApplySpans::Outcome outcome) {
    switch (outcome) {
        case ApplySpans::Outcome::kApplied:
            return "applied";
        case ApplySpans::Outcome::kRepeat:
            return "repeat";
        case ApplySpans::Outcome::kFailed:
            break;
    }
    return "failed";
}

}  // namespace

ApplySpans::ApplySpans(SpanExport spans, std::string consumer, const Env& env)
    : spans_(std::move(spans)), consumer_(std::move(consumer)) {
    if (spans_.queue == nullptr) return;
    clock_ = &env.clock;
    random_.seed(env.seed);
}

// The names of attributes that begin with "messaging." are OpenTelemetry's.
void ApplySpans::tell(const Message& message, std::int64_t began_us, Outcome outcome,
                      const ErrorInfo* error) {
    if (clock_ == nullptr) return;
    const auto context = tracing::find_trace_context(message.headers_json);
    if (!context || !context->sampled) return;
    tracing::Span span;
    span.trace_id = context->trace_id;
    span.parent_id = context->span_id;
    span.id = std::max<std::uint64_t>(random_(), 1);
    span.name = "outbox.apply";
    span.kind = tracing::Span::Kind::kConsumer;
    span.start_us = began_us;
    span.end_us = clock_->wall_us();
    span.attributes = {{"messaging.operation.type", "process"},
                       {"messaging.message.id", std::string(message.id)},
                       {"messaging.destination.name", std::string(message.topic)},
                       {"messaging.consumer.group.name", consumer_},
                       {"outbox.outcome", std::string(word_of(outcome))},
                       {"outbox.attempt", std::to_string(message.attempt)}};
    if (error != nullptr) {
        span.attributes.emplace_back("error.type", error_code_name(error->code));
        span.error = describe(*error);
    }
    spans_.queue->offer(std::move(span));
}

}  // namespace outbox::consumer
