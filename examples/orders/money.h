#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace orders {

/// An exact amount of money, in hundredths. Never passes through a binary fraction.
struct Money {
    static constexpr std::int64_t kMaxCents = 999'999'999'999;  // numeric(12,2)
    std::int64_t cents = 0;

    /// Reads the text of a JSON number ("99.99", "1e2"). None if it is negative, larger than
    /// 9999999999.99, or has more than two decimals.
    [[nodiscard]] static std::optional<Money> parse(std::string_view number);

    /// "99.99": two decimals always.
    [[nodiscard]] std::string text() const;

    friend bool operator==(const Money&, const Money&) = default;
};

}  // namespace orders
