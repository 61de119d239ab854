#include "money.h"

#include <charconv>

namespace orders {

namespace {

struct Decimal {
    std::string digits;  // without the point and without leading zeros
    long exponent = 0;   // value = digits * 10^exponent
};

std::optional<Decimal> read_decimal(std::string_view number) {
    Decimal out;
    if (const auto e = number.find_first_of("eE"); e != std::string_view::npos) {
        std::string_view exponent = number.substr(e + 1);
        if (exponent.starts_with('+')) exponent.remove_prefix(1);
        const auto [stop, error] =
            std::from_chars(exponent.data(), exponent.data() + exponent.size(), out.exponent);
        if (error != std::errc() || stop != exponent.data() + exponent.size()) return std::nullopt;
        if (out.exponent > 1000 || out.exponent < -1000) return std::nullopt;
        number = number.substr(0, e);
    }
    if (number.empty() || number.size() > 1000) return std::nullopt;
    bool after_point = false;
    for (const char c : number) {
        if (c == '.' && !after_point) {
            after_point = true;
        } else if (c >= '0' && c <= '9') {
            if (!out.digits.empty() || c != '0') out.digits += c;
            if (after_point) --out.exponent;
        } else {
            return std::nullopt;
        }
    }
    return out;
}

}  // namespace

std::optional<Money> Money::parse(std::string_view number) {
    auto decimal = read_decimal(number);
    if (!decimal) return std::nullopt;
    long power = decimal->exponent + 2;  // of ten, in cents
    while (power < 0 && decimal->digits.ends_with('0')) {
        decimal->digits.pop_back();
        ++power;
    }
    if (decimal->digits.empty()) return Money{0};
    if (power < 0 || power + static_cast<long>(decimal->digits.size()) > 12) return std::nullopt;
    decimal->digits.append(static_cast<std::size_t>(power), '0');
    return Money{std::stoll(decimal->digits)};
}

std::string Money::text() const {
    const std::string decimals = std::to_string(cents % 100);
    return std::to_string(cents / 100) + (decimals.size() == 1 ? ".0" : ".") + decimals;
}

}  // namespace orders
