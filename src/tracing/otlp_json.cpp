#include "tracing/otlp_json.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "core/json_text.h"
#include "core/utf8.h"

namespace outbox::tracing {
namespace {

constexpr std::size_t kMaxErrorBytes = 1'000;
constexpr int kStatusError = 2;

void append_attribute(std::string_view name, std::string_view value, std::string& out) {
    out += R"({"key":)";
    append_json_string(name, out);
    out += R"(,"value":{"stringValue":)";
    append_json_string(to_utf8(value), out);
    out += "}}";
}

void append_attributes(std::span<const std::pair<std::string_view, std::string>> attributes,
                       std::string& out) {
    out += R"("attributes":[)";
    for (const auto& [name, value] : attributes) {
        if (out.back() == '}') out += ',';
        append_attribute(name, value, out);
    }
    out += ']';
}

void append_time(std::string_view name, std::int64_t us, std::string& out) {
    out.append(",\"").append(name).append("\":\"").append(std::to_string(us)).append("000\"");
}

std::string hex_of(std::uint64_t number) {
    std::array<char, 16> digits;
    digits.fill('0');
    std::array<char, 16> text;
    const auto end = std::to_chars(text.data(), text.data() + text.size(), number, 16).ptr;
    const std::size_t length = static_cast<std::size_t>(end - text.data());
    std::copy_n(text.data(), length, digits.data() + digits.size() - length);
    return {digits.data(), digits.size()};
}

void append_span(const Span& span, std::string& out) {
    out += R"({"traceId":")" + span.trace_id + R"(","spanId":")" + hex_of(span.id) +
           R"(","parentSpanId":")" + span.parent_id + R"(","name":)";
    append_json_string(span.name, out);
    out += ",\"kind\":" + std::to_string(static_cast<int>(span.kind));
    append_time("startTimeUnixNano", span.start_us, out);
    // The clock may have been set back meanwhile.
    append_time("endTimeUnixNano", std::max(span.start_us, span.end_us), out);
    out += ',';
    append_attributes(span.attributes, out);
    if (!span.error.empty()) {
        out += ",\"status\":{\"code\":" + std::to_string(kStatusError) + ",\"message\":";
        append_json_string(to_storable_text(span.error, kMaxErrorBytes), out);
        out += '}';
    }
    out += '}';
}

}  // namespace

std::string write_otlp(const SpanSource& source, std::span<const Span> spans) {
    const std::array<std::pair<std::string_view, std::string>, 3> resource = {
        {{"service.name", source.service},
         {"service.instance.id", source.instance},
         {"service.version", source.version}}};
    std::string out = R"({"resourceSpans":[{"resource":{)";
    append_attributes(resource, out);
    out += R"(},"scopeSpans":[{"scope":{"name":"outbox"},"spans":[)";
    for (const Span& span : spans) {
        if (&span != &spans.front()) out += ',';
        append_span(span, out);
    }
    out += "]}]}]}";
    return out;
}

PartialSuccess read_partial_success(std::string_view body) {
    const auto json = nlohmann::json::parse(body, nullptr, false);
    if (!json.is_object()) return {};
    const auto partial = json.find("partialSuccess");
    if (partial == json.end() || !partial->is_object()) return {};
    PartialSuccess told;
    // A number of 64 bits, which is written as a string.
    const auto refused = partial->find("rejectedSpans");
    if (refused == partial->end()) return {};
    if (refused->is_number_unsigned()) told.refused = refused->get<std::uint64_t>();
    if (refused->is_string()) {
        const auto& text = refused->get_ref<const std::string&>();
        std::from_chars(text.data(), text.data() + text.size(), told.refused);
    }
    const auto why = partial->find("errorMessage");
    if (why != partial->end() && why->is_string()) told.why = to_printable(why->get<std::string>());
    return told;
}

}  // namespace outbox::tracing
