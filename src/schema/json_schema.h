#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace outbox::schema {

struct Rules;

/// Documents that a schema refers to, by their URI or, in a registry, the name of the reference.
using References = std::map<std::string, std::string, std::less<>>;

/// A JSON Schema of draft 4, 6 or 7 (without $schema: 7). Immutable; thread-safe.
class JsonSchema {
  public:
    /// Subschemas that are applied within one another, of which so many are to the same value.
    static constexpr std::size_t kMaxDepth = 1'000;
    static constexpr std::size_t kMaxInPlace = 100;
    /// Of one check, beside those for each byte of the payload. A subschema that is applied is one,
    /// so are a member, an item of a pattern, and 16 bytes of a text that is gone over.
    static constexpr std::size_t kMaxSteps = 1'000'000;
    static constexpr std::size_t kStepsPerByte = 4;

    /// Nothing: it is no schema that can be checked here; `why` says what is wrong, and where.
    static std::optional<JsonSchema> compile(std::string_view text, const References& references,
                                             std::string& why);
    ~JsonSchema();
    JsonSchema(JsonSchema&&) noexcept;
    JsonSchema& operator=(JsonSchema&&) noexcept;

    /// What it takes of memory, about; 8 MiB of its patterns at most.
    [[nodiscard]] std::size_t bytes() const;

    struct Violation {
        std::string path;   ///< JSON Pointer to the value that is wrong; empty: the whole.
        std::string rule;   ///< What it breaks; shows no value of the payload.
        std::string place;  ///< JSON Pointer of the rule in the schema.
    };
    enum class Outcome : std::uint8_t { kHolds, kViolates, kStopped };
    /// Whether a payload is as the schema says; `out`: what is wrong with one that violates. One
    /// that is no JSON, or cannot be checked within the limits, does. Memory: `JsonDocument`'s, and
    /// for uniqueItems as much again.
    [[nodiscard]] Outcome check(std::string_view payload, const std::stop_token& stop,
                                Violation& out) const;
    /// The same, to its end; nothing: it holds.
    [[nodiscard]] std::optional<Violation> check(std::string_view payload) const;

  private:
    JsonSchema() = default;
    std::unique_ptr<const Rules> rules_;
};

}  // namespace outbox::schema
