#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace outbox::schema {

struct JsonMember;

/// A value of JSON with all that is in it, in 16 bytes. Its texts and what is in it are the
/// document's.
struct JsonValue {
    enum class Kind : std::uint8_t { kNull, kFalse, kTrue, kNumber, kString, kArray, kObject };

    const void* start = nullptr;   ///< Of text, items or members.
    std::uint32_t count = 0;       ///< Of bytes, items or members.
    std::uint32_t order : 24 = 0;  ///< Of an object's value: its place there as it is written.
    Kind kind = Kind::kNull;

    [[nodiscard]] bool is(Kind other) const { return kind == other; }
    [[nodiscard]] bool is_bool() const { return is(Kind::kFalse) || is(Kind::kTrue); }
    /// Of a string, in UTF-8; of a number, as written.
    [[nodiscard]] std::string_view text() const;
    /// Of an array.
    [[nodiscard]] std::span<const JsonValue> items() const;
    /// Of an object: by name, each name once, the last.
    [[nodiscard]] std::span<const JsonMember> members() const;
    /// Null: there is none of this name, or it is no object.
    [[nodiscard]] const JsonValue* find(std::string_view name) const;
};
static_assert(sizeof(JsonValue) == 16);

struct JsonMember {
    std::string_view name;
    JsonValue value;
};

inline std::string_view JsonValue::text() const {
    const bool has = is(Kind::kString) || is(Kind::kNumber);
    return has ? std::string_view(static_cast<const char*>(start), count) : std::string_view();
}

inline std::span<const JsonValue> JsonValue::items() const {
    if (!is(Kind::kArray)) return {};
    return {static_cast<const JsonValue*>(start), count};
}

inline std::span<const JsonMember> JsonValue::members() const {
    if (!is(Kind::kObject)) return {};
    return {static_cast<const JsonMember*>(start), count};
}

/// "an array"
[[nodiscard]] std::string_view name_of(JsonValue::Kind kind);

/// Appends a text that is the same for values which JSON Schema holds for equal. Ends early once
/// `out` has more than `most` bytes.
void append_canonical(const JsonValue& value, std::string& out,
                      std::size_t most = std::string::npos);

/// JSON text as a tree. Movable; what it was read from must outlive it. Memory: 16 bytes for each
/// value and each name in it, 4 for each container while it is read, and the strings that have
/// escapes.
class JsonDocument {
  public:
    static constexpr std::size_t kMaxDepth = 128;          ///< Containers within one another.
    static constexpr std::size_t kMaxValues = 10'000'000;  ///< And names, in all.

    /// Nothing: it is no JSON, or beyond these limits; `why` says which.
    static std::optional<JsonDocument> read(std::string_view text, std::string& why);
    [[nodiscard]] const JsonValue& root() const { return *root_; }
    /// What it takes of memory.
    [[nodiscard]] std::size_t bytes() const;

  private:
    class Counter;
    class Reader;
    std::vector<char> decoded_;        // strings that had escapes
    std::vector<JsonValue> values_;    // the root, and items
    std::vector<JsonMember> members_;  // none of them grows: what they hold is pointed to
    const JsonValue* root_ = nullptr;
};

}  // namespace outbox::schema
