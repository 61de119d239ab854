#include "tracing/trace_context.h"

#include <algorithm>

#include "core/json_scan.h"

namespace outbox::tracing {
namespace {

constexpr std::string_view kQuotedName = "\"traceparent\"";
constexpr std::size_t kTraceDigits = 32;
constexpr std::size_t kSpanDigits = 16;
constexpr std::size_t kLength = 2 + 1 + kTraceDigits + 1 + kSpanDigits + 1 + 2;

int value_of(char c) {
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool is_hex(std::string_view text) {
    return std::all_of(text.begin(), text.end(), [](char c) { return value_of(c) >= 0; });
}

bool is_id(std::string_view text) {
    return is_hex(text) && text.find_first_not_of('0') != std::string_view::npos;
}

}  // namespace

std::optional<TraceContext> read_traceparent(std::string_view text) {
    if (text.size() < kLength || text[2] != '-') return std::nullopt;
    const std::string_view version = text.substr(0, 2);
    if (!is_hex(version) || version == "ff") return std::nullopt;
    // Later versions may add to it.
    if (text.size() > kLength && (version == "00" || text[kLength] != '-')) return std::nullopt;
    TraceContext context;
    context.trace_id = text.substr(3, kTraceDigits);
    context.span_id = text.substr(4 + kTraceDigits, kSpanDigits);
    const std::string_view flags = text.substr(kLength - 2, 2);
    if (text[3 + kTraceDigits] != '-' || text[kLength - 3] != '-') return std::nullopt;
    if (!is_id(context.trace_id) || !is_id(context.span_id) || !is_hex(flags)) return std::nullopt;
    context.sampled = (value_of(flags[1]) & 1) != 0;
    return context;
}

std::optional<TraceContext> find_trace_context(std::string_view headers) {
    if (headers.find(kQuotedName) == std::string_view::npos) return std::nullopt;
    std::string_view quoted;
    const bool read =
        for_each_json_member(headers, [&](std::string_view name, std::string_view value) {
            if (name == kQuotedName) quoted = value;
        });
    if (!read || quoted.size() < 2 || quoted.front() != '"') return std::nullopt;
    return read_traceparent(quoted.substr(1, quoted.size() - 2));
}

}  // namespace outbox::tracing
