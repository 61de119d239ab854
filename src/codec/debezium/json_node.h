#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::codec::debezium {

/// A JSON value as Jackson's tree holds it: members in their order, numbers by their size.
struct JsonNode {
    enum class Kind : std::uint8_t {
        kNull,
        kBoolean,
        kInt,     ///< Fits 32 bits.
        kLong,    ///< Fits 64 bits.
        kBig,     ///< A whole number beyond.
        kDouble,  ///< Written with a point or an exponent.
        kString,
        kArray,
        kObject,
    };
    Kind kind = Kind::kNull;
    std::string text;  ///< Of a string; of a whole number its digits, of a boolean its word.
    double number = 0;
    std::vector<JsonNode> items;     ///< Of an array; of an object the values of its members.
    std::vector<std::string> names;  ///< Of the members, each once: the last value counts.

    [[nodiscard]] bool is_number() const { return kind >= Kind::kInt && kind <= Kind::kDouble; }
    /// Null when there is none. `hint`: where to begin, then what comes behind the one found.
    [[nodiscard]] const JsonNode* find(std::string_view name, std::size_t& hint) const;
};

/// What ObjectMapper.readTree of Jackson 2.17 with its defaults makes of a text: the first value,
/// whatever follows it. None where that throws: no JSON, nested deeper than 1000, a number of more
/// than 1000 characters, a name of more than 50,000. `text` is UTF-8.
[[nodiscard]] std::optional<JsonNode> read_json(std::string_view text);

}  // namespace outbox::codec::debezium
