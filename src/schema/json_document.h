#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::schema {

struct JsonMember;

/// A value of JSON with all that is in it. Its texts are the document's.
struct JsonValue {
    enum class Kind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };
    Kind kind = Kind::kNull;
    std::string_view text = {};       ///< Of a string, in UTF-8; of a number, as written.
    std::vector<JsonValue> items;     ///< Of an array.
    std::vector<JsonMember> members;  ///< Of an object: by name, each name once, the last.

    [[nodiscard]] bool is(Kind other) const { return kind == other; }
    [[nodiscard]] bool is_bool() const { return is(Kind::kFalse) || is(Kind::kTrue); }
    /// Null: there is none of this name, or it is no object.
    [[nodiscard]] const JsonValue* find(std::string_view name) const;
};

struct JsonMember {
    std::string_view name;
    JsonValue value;
};

/// "an array"
[[nodiscard]] std::string_view name_of(JsonValue::Kind kind);

/// Appends a text that is the same for values which JSON Schema holds for equal.
void append_canonical(const JsonValue& value, std::string& out);

/// JSON text as a tree. Movable; what it was read from must outlive it.
class JsonDocument {
  public:
    /// Containers within one another.
    static constexpr int kMaxDepth = 128;

    /// Nothing: it is no JSON, or deeper than that; `why` says which.
    static std::optional<JsonDocument> read(std::string_view text, std::string& why);
    [[nodiscard]] const JsonValue& root() const { return root_; }

  private:
    class Reader;
    std::deque<std::string> decoded_;  // strings that had escapes
    JsonValue root_;
};

}  // namespace outbox::schema
