#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace outbox::schema {

/// A number of JSON, exact whatever its size: digits x 10^exponent. Zero has no digits.
class Decimal {
  public:
    /// Digits that a divisor may have.
    static constexpr std::size_t kMaxDivisorDigits = 18;

    /// `text` is a number by the grammar of JSON. Exponents beyond 10^15 count as that.
    explicit Decimal(std::string_view text);

    [[nodiscard]] bool is_integer() const { return exponent_ >= 0; }
    [[nodiscard]] bool is_positive() const { return !negative_ && !digits_.empty(); }
    [[nodiscard]] std::size_t digits() const { return digits_.size(); }
    /// Precondition: the divisor is positive and has at most `kMaxDivisorDigits` digits.
    [[nodiscard]] bool is_multiple_of(const Decimal& divisor) const;
    /// The same text for the same number.
    void append_to(std::string& out) const;

    friend std::strong_ordering operator<=>(const Decimal& a, const Decimal& b);
    friend bool operator==(const Decimal& a, const Decimal& b) = default;

  private:
    bool negative_ = false;
    std::string digits_;  // without zeros at either end
    std::int64_t exponent_ = 0;
};

}  // namespace outbox::schema
