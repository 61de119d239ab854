#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

struct pcre2_real_code_8;

namespace outbox::schema {

/// A regular expression of JSON Schema (ECMA 262), by PCRE2, which takes no stack for what it
/// matches. Thread-safe.
class Pattern {
  public:
    static constexpr std::size_t kMaxBytes = 4'096;         ///< Of its text.
    static constexpr std::uint32_t kMaxHeapKib = 8 * 1024;  ///< Of one search.
    static constexpr std::uint32_t kMaxGroups = 100;        ///< Within one another.
    /// Of a text, gone over within one step.
    static constexpr std::size_t kBytesPerStep = 32;

    /// Nothing: it cannot be used; `why` says what is wrong.
    static std::optional<Pattern> compile(std::string_view text, std::string& why);

    enum class Outcome : std::uint8_t { kFound, kNotFound, kTooManySteps };
    /// Whether it is found anywhere in `text`. Adds what that takes to `steps`, to `most` at most;
    /// once `stop` is requested it is too many.
    [[nodiscard]] Outcome search(std::string_view text, std::size_t& steps, std::size_t most,
                                 const std::stop_token& stop) const;
    /// What it takes of memory, compiled.
    [[nodiscard]] std::size_t bytes() const;

  private:
    struct Free {
        void operator()(pcre2_real_code_8* code) const;
    };
    std::unique_ptr<pcre2_real_code_8, Free> code_;
};

}  // namespace outbox::schema
