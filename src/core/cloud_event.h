#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

/// What writers and readers of CloudEvents 1.0 share (cloudevents/spec.md and its bindings).
namespace outbox::cloud_event {

/// The attributes that Outbox writes, in the order of `kNames`.
enum class Attribute : std::uint8_t {
    kSpecVersion,
    kId,
    kSource,
    kType,
    kTime,
    kSubject,
    kPartitionKey,
    kDataSchema,
    kAggregateType,
    kTenantId,
    kSchemaId,
    kSchemaVersion,
    kDataContentType,
};
inline constexpr std::array<std::string_view, 13> kNames = {
    "specversion",    "id",         "source",        "type",     "time",     "subject",
    "partitionkey",   "dataschema", "aggregatetype", "tenantid", "schemaid", "schemaversion",
    "datacontenttype"};

inline constexpr std::string_view kVersion = "1.0";
/// What a record's media type begins with where the value is a whole event.
inline constexpr std::string_view kEventType = "application/cloudevents";
inline constexpr std::string_view kJsonEventType = "application/cloudevents+json; charset=UTF-8";

/// What attributes' names begin with in the headers of any protocol.
inline constexpr std::array<std::string_view, 4> kPrefixes = {"ce_", "ce-", "cloudEvents_",
                                                              "cloudEvents:"};

/// Lower-case ASCII letters and digits, one at least, and not "data".
[[nodiscard]] bool is_attribute_name(std::string_view name);

/// As `is_attribute_text`, of what has something else in it than U+0020 to U+007E.
[[nodiscard]] bool is_other_attribute_text(std::string_view text);

/// UTF-8 without control characters (U+0000 to U+001F, U+007F to U+009F) and noncharacters.
[[nodiscard]] inline bool is_attribute_text(std::string_view text) {
    // Nearly all is printable ASCII: eight bytes at a time, those at the end once more.
    constexpr std::uint64_t kOnes = 0x0101010101010101U;
    constexpr std::size_t kWord = sizeof(std::uint64_t);
    std::uint64_t other = 0;  // high bits where a byte is below 0x20 or above 0x7E
    const auto look = [&](const char* at) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, kWord);
        other |= ((word - kOnes * 0x20) & ~word) | (word + kOnes) | word;
    };
    if (text.size() >= kWord) {
        for (std::size_t at = 0; at + kWord < text.size(); at += kWord) look(text.data() + at);
        look(text.data() + text.size() - kWord);
    } else {
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            if (byte < 0x20 || byte > 0x7E) other |= kOnes << 7U;
        }
    }
    return (other & (kOnes << 7U)) == 0 || is_other_attribute_text(text);
}

/// A media type (RFC 2045) of JSON: its subtype is "json" or ends in "+json".
[[nodiscard]] bool is_json_type(std::string_view media_type);

/// Whether a media type begins with `kEventType`, in whatever case.
[[nodiscard]] bool is_event_type(std::string_view media_type);

/// True for what a value in a header of HTTP or NATS is written as itself: U+0021 to U+007E but for
/// '"' and '%'.
[[nodiscard]] bool is_plain_value(std::string_view text);
/// Appends `text` as such a header has it (HTTP binding, section 3.1.3.2).
void append_percent_encoded(std::string_view text, std::string& out);

/// A URI-reference (RFC 3986, section 4.1) by its characters; not empty.
[[nodiscard]] bool is_uri_reference(std::string_view text);
/// One with a scheme and something behind it.
[[nodiscard]] bool is_absolute_uri(std::string_view text);

}  // namespace outbox::cloud_event
