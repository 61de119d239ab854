#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace orders {

/// One field of a JSON object, with a number's text as it was written: money must not pass through
/// a binary fraction.
struct JsonField {
    enum class Type : std::uint8_t { kText, kInteger, kDecimal, kOther };
    Type type = Type::kOther;
    std::string text;

    [[nodiscard]] bool is_number() const {
        return type == Type::kInteger || type == Type::kDecimal;
    }
};

/// The fields of the outermost object; nested values are `kOther`.
struct JsonFields {
    std::map<std::string, JsonField> fields;
    std::string problem;  ///< Why the text is not one object with distinct names; empty: it is.
};

[[nodiscard]] JsonFields read_json_fields(std::string_view text);

/// `text` as a JSON string, quotes included.
[[nodiscard]] std::string json_string(std::string_view text);

}  // namespace orders
