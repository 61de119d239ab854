#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox::tracing {

/// One thing that was done to an event, in the trace of its writer.
struct Span {
    enum class Kind : std::uint8_t { kProducer = 4, kConsumer = 5 };  // as in OTLP

    std::string trace_id;   ///< As `TraceContext`.
    std::string parent_id;  ///< The writer's span.
    std::uint64_t id = 0;   ///< Random, never 0.
    std::string_view name;  ///< Lives for ever.
    Kind kind = Kind::kProducer;
    std::int64_t start_us = 0;  ///< Microseconds since the Unix epoch.
    std::int64_t end_us = 0;
    std::vector<std::pair<std::string_view, std::string>> attributes;  ///< Names live for ever.
    std::string error;                                                 ///< Empty: it went well.
};

}  // namespace outbox::tracing
