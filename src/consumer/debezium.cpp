#include "consumer/debezium.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "consumer/queue/headers_json.h"
#include "core/base64.h"
#include "core/json_scan.h"

namespace outbox::consumer {
namespace {

constexpr std::string_view kBegin = R"({"schema":)";
constexpr std::string_view kNull = "null";

// What stands beside its schema.
struct Described {
    std::string_view payload;  // JSON
    bool is_bytes = false;
};

bool take_schema(std::string_view schema, Described& out) {
    if (schema == kNull) return true;
    bool typed = false;
    bool told = false;  // whether it may be null, which each schema of Kafka Connect tells
    const bool whole =
        for_each_json_member(schema, [&](std::string_view name, std::string_view value) {
            if (name == R"("type")") {
                typed = value.starts_with('"');
                out.is_bytes = value == R"("bytes")";
            }
            told = told || name == R"("optional")";
        });
    return whole && typed && told;
}

std::optional<Described> described(std::string_view text) {
    if (!may_have_schema(text)) return std::nullopt;
    Described out;
    std::size_t members = 0;
    bool fits = true;
    const bool whole =
        for_each_json_member(text, [&](std::string_view name, std::string_view value) {
            ++members;
            if (members == 1) {
                fits = take_schema(value, out);
            } else {
                fits = fits && members == 2 && name == R"("payload")";
                out.payload = value;
            }
        });
    if (!whole || !fits || members != 2) return std::nullopt;
    return out;
}

std::optional<std::string> unquoted(std::string_view json) {
    if (!json.starts_with('"')) return std::nullopt;
    const auto parsed = nlohmann::json::parse(json, nullptr, false);
    if (!parsed.is_string()) return std::nullopt;
    return parsed.get<std::string>();
}

bool is_claim(std::string_view name) {
    return name.starts_with("claim-check");  // which the relay adds as it is
}

// Of whom no header `id` tells: each that the table placed has its schema.
bool are_described(const HeaderList& headers) {
    std::size_t placed = 0;
    for (const auto& [name, value] : headers) {
        if (is_claim(name)) continue;
        if (!described(value)) return false;
        ++placed;
    }
    return placed > 0;
}

bool are_json(const HeaderList& headers) {
    return std::all_of(headers.begin(), headers.end(), [](const auto& header) {
        return is_claim(header.first) || is_json(header.second);
    });
}

// None: it is null.
std::optional<std::string> text_of(const Described& one) {
    if (one.payload == kNull) return std::nullopt;
    auto text = unquoted(one.payload);
    if (!text) return std::string(one.payload);
    if (one.is_bytes) {
        if (auto bytes = base64_decode(*text)) return bytes;
    }
    return text;
}

// None: it says so, or is no text.
std::optional<std::string> header_text(const std::string& value, bool json) {
    if (const auto one = described(value)) return text_of(*one);
    if (!json) return value;
    if (value == kNull) return std::nullopt;
    auto text = unquoted(value);
    return text ? std::move(text) : std::optional(value);
}

}  // namespace

bool may_have_schema(std::string_view text) {
    return text.starts_with(kBegin);
}

std::optional<std::string> debezium_id(std::string_view header_id) {
    if (const auto one = described(header_id)) return text_of(*one);
    return unquoted(header_id);
}

std::optional<Translated> read_debezium(bool sure, std::string_view known_id,
                                        const HeaderList& headers, std::string_view value) {
    const auto found = std::find_if(headers.rbegin(), headers.rend(),
                                    [](const auto& header) { return header.first == "id"; });
    const std::string header_id = found == headers.rend() ? std::string() : found->second;
    const bool has_id = found != headers.rend();
    const bool schemas = has_id ? described(header_id).has_value()
                                : (sure || !known_id.empty()) && are_described(headers);
    if (!sure && !schemas) return std::nullopt;
    // An id that is a number has no quotes, and a broker may keep the id alone.
    const bool json = sure && (unquoted(header_id) || are_json(headers));
    const auto payload = described(value);
    if (!schemas && !json && !payload) return std::nullopt;
    Translated out;
    out.id = header_text(header_id, json).value_or("");
    if (!known_id.empty() && known_id != header_id) out.id = known_id;
    HeadersJson all;
    for (const auto& [name, text] : headers) {
        if (name == "id") continue;
        if (const auto plain = header_text(text, json)) all.add(name, *plain);
    }
    out.headers = std::move(all).text();
    out.in_value = payload.has_value();
    if (payload) out.payload = text_of(*payload);
    return out;
}

}  // namespace outbox::consumer
