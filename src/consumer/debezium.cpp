#include "consumer/debezium.h"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <string>

#include "claim/relay_headers.h"
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
    bool is_decimal = false;
    std::size_t scale = 0;  // digits behind the point
};

// Of a Decimal, whose parameter it is; one below 0 is no column's.
std::optional<std::size_t> scale_in(std::string_view parameters) {
    std::optional<std::size_t> scale;
    const bool whole =
        for_each_json_member(parameters, [&](std::string_view name, std::string_view value) {
            if (name != R"("scale")" || value.size() < 3 || value.front() != '"') return;
            const char* const end = value.data() + value.size() - 1;
            std::size_t number = 0;
            const auto read = std::from_chars(value.data() + 1, end, number);
            if (read.ec == std::errc{} && read.ptr == end) scale = number;
        });
    return whole ? scale : std::nullopt;
}

bool take_schema(std::string_view schema, Described& out) {
    if (schema == kNull) return true;
    bool typed = false;
    std::optional<std::size_t> scale;
    bool told = false;  // whether it may be null, which each schema of Kafka Connect tells
    const bool whole =
        for_each_json_member(schema, [&](std::string_view name, std::string_view value) {
            if (name == R"("type")") {
                typed = value.starts_with('"');
                out.is_bytes = value == R"("bytes")";
            }
            if (name == R"("name")") {
                out.is_decimal = value == R"("org.apache.kafka.connect.data.Decimal")";
            }
            if (name == R"("parameters")") scale = scale_in(value);
            told = told || name == R"("optional")";
        });
    out.is_decimal = out.is_decimal && out.is_bytes && scale;
    out.scale = scale.value_or(0);
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

// Of whom no header `id` tells: each that the table placed has its schema.
bool are_described(const HeaderList& headers) {
    std::size_t placed = 0;
    for (const auto& [name, value] : headers) {
        if (claim::is_relay_header(name)) continue;
        if (!described(value)) return false;
        ++placed;
    }
    return placed > 0;
}

bool are_json(const HeaderList& headers) {
    return std::all_of(headers.begin(), headers.end(), [](const auto& header) {
        return claim::is_relay_header(header.first) || is_json(header.second);
    });
}

// Of a whole number in two's complement, highest byte first. None: it is longer than that of any
// column (numeric(1000)), or no number.
std::optional<std::string> decimal_text(std::string_view bytes, std::size_t scale) {
    constexpr std::size_t kMost = 1'000;
    if (bytes.empty() || bytes.size() > kMost || scale > 2 * kMost) return std::nullopt;
    const bool negative = (static_cast<unsigned char>(bytes.front()) & 0x80U) != 0;
    std::string digits;  // the last one first
    for (const char byte : bytes) {
        // The digits so far times 256, and the byte; of a negative one its complement.
        const auto bits = static_cast<unsigned char>(byte);
        unsigned carry = negative ? 0xFFU - bits : bits;
        for (char& digit : digits) {
            carry += static_cast<unsigned>(digit - '0') * 256U;
            digit = static_cast<char>('0' + carry % 10U);
            carry /= 10U;
        }
        for (; carry > 0; carry /= 10U) digits += static_cast<char>('0' + carry % 10U);
    }
    if (negative) {  // which is one less
        const std::size_t nines = std::min(digits.find_first_not_of('9'), digits.size());
        std::fill_n(digits.begin(), nines, '0');
        if (nines == digits.size()) digits += '0';
        ++digits[nines];
    }
    digits.resize(std::max(digits.size(), scale + 1), '0');
    if (scale > 0) digits.insert(scale, 1, '.');
    if (negative) digits += '-';
    return std::string(digits.rbegin(), digits.rend());
}

// None: it is null. Bytes stay Base64: a header is text.
std::optional<std::string> text_of(const Described& one) {
    if (one.payload == kNull) return std::nullopt;
    auto text = unquoted(one.payload);
    if (!text) return std::string(one.payload);
    if (one.is_decimal) {
        const auto bytes = base64_decode(*text);
        if (auto number = bytes ? decimal_text(*bytes, one.scale) : std::nullopt) return number;
    }
    return text;
}

// The same as a payload, which is bytes.
std::optional<std::string> bytes_of(const Described& one) {
    auto text = text_of(one);
    if (!text || !one.is_bytes || one.is_decimal) return text;
    auto bytes = base64_decode(*text);
    return bytes ? std::move(bytes) : text;
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
    if (payload) out.payload = bytes_of(*payload);
    return out;
}

}  // namespace outbox::consumer
