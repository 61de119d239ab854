#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace outbox::postgres {

/// The types whose binary form (the type's send function) is understood.
enum class WireType : std::uint8_t {
    kUnknown,
    kText,         ///< Sent as the text that a cast to text gives: text, varchar, enum, citext.
    kBlankPadded,  ///< char(n): a cast to text drops the blanks at the end.
    kUuid,
    kInt2,
    kInt4,
    kInt8,
    kBool,
    kNumeric,
    kJson,
    kJsonb,
    kBytea,
    kDate,
    kTimestamp,
    kTimestamptz,
};

/// By oid, or by name within pg_catalog; kUnknown for any other type.
[[nodiscard]] WireType built_in_type(std::uint32_t oid);
[[nodiscard]] WireType built_in_type(std::string_view name);

/// True where `text_of_value` gives what `value::text` is in SQL.
[[nodiscard]] bool has_text(WireType type);
/// True where `append_json` gives what jsonb_build_object makes of the value.
[[nodiscard]] bool has_json(WireType type);

/// The value as `value::text`. The result points into `bytes` or into `buffer`, which is
/// overwritten. False: `bytes` are not such a value.
[[nodiscard]] bool text_of_value(WireType type, std::string_view bytes, std::string& buffer,
                                 std::string_view& text);

/// An integer of any size. False: `bytes` are not such a value.
[[nodiscard]] bool integer_of_value(WireType type, std::string_view bytes, std::int64_t& value);

/// date, timestamp and timestamptz as the bytes of a timestamptz (in UTC, as the relay's sessions
/// have it). The result points into `bytes` or into `buffer`.
[[nodiscard]] bool timestamptz_of_value(WireType type, std::string_view bytes, std::string& buffer,
                                        std::string_view& timestamptz);

/// Appends the value as jsonb_build_object would print it. False: `bytes` are not such a value.
[[nodiscard]] bool append_json(WireType type, std::string_view bytes, std::string& out);

/// True where `append_printed` knows the type.
[[nodiscard]] bool can_print(WireType type);

/// Appends what the type's output function prints, as a JSON string. False: `bytes` are not such a
/// value.
[[nodiscard]] bool append_printed(WireType type, std::string_view bytes, std::string& out);

/// jsonb_strip_nulls over a jsonb as PostgreSQL prints it.
void strip_json_nulls(std::string_view jsonb, std::string& out);

}  // namespace outbox::postgres
