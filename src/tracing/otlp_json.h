#pragma once

#include <span>
#include <string>
#include <string_view>

#include "tracing/span.h"

namespace outbox::tracing {

/// Who tells of spans.
struct SpanSource {
    std::string service;   ///< `service.name`
    std::string instance;  ///< `service.instance.id`
    std::string version;   ///< `service.version`
};

/// The body of a POST to /v1/traces: an ExportTraceServiceRequest in JSON
/// (opentelemetry.io/docs/specs/otlp, "JSON Protobuf Encoding").
[[nodiscard]] std::string write_otlp(const SpanSource& source, std::span<const Span> spans);

/// How many spans a receiver that answered 200 has refused all the same, and why.
struct PartialSuccess {
    std::uint64_t refused = 0;
    std::string why;  ///< Printable.
};
[[nodiscard]] PartialSuccess read_partial_success(std::string_view body);

}  // namespace outbox::tracing
