#pragma once

#include <optional>
#include <string_view>

namespace outbox::tracing {

/// Whose work something is a part of (W3C Trace Context, level 1). Views into what was read.
struct TraceContext {
    std::string_view trace_id;  ///< 32 hexadecimal digits in lower case, not all of them 0.
    std::string_view span_id;   ///< 16 of them: the writer's span.
    bool sampled = false;       ///< The writer records it, and so are we to.
};

/// What a `traceparent` says; nothing where it is malformed, which is as if there were none.
[[nodiscard]] std::optional<TraceContext> read_traceparent(std::string_view text);

/// The same for the member `traceparent` of an event's headers, a JSON object or null. Costs a
/// search through the text where there is none.
[[nodiscard]] std::optional<TraceContext> find_trace_context(std::string_view headers);

}  // namespace outbox::tracing
