#include "schema/decimal.h"

#include <algorithm>

namespace outbox::schema {
namespace {

constexpr std::int64_t kMaxExponent = 1'000'000'000'000'000;
constexpr std::uint64_t kTen = 10;

std::int64_t read_exponent(std::string_view text) {
    const bool negative = text.starts_with('-');
    if (negative || text.starts_with('+')) text.remove_prefix(1);
    std::int64_t value = 0;
    for (const char c : text) value = std::min(value * 10 + (c - '0'), kMaxExponent);
    return negative ? -value : value;
}

std::uint64_t times_mod(std::uint64_t a, std::uint64_t b, std::uint64_t modulus) {
    // NOLINTNEXTLINE(modernize-use-std-numbers)
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>(static_cast<Wide>(a) * b % modulus);
}

std::uint64_t ten_to_mod(std::uint64_t power, std::uint64_t modulus) {
    std::uint64_t result = 1 % modulus;
    for (std::uint64_t base = kTen % modulus; power != 0; power >>= 1U) {
        if ((power & 1U) != 0) result = times_mod(result, base, modulus);
        base = times_mod(base, base, modulus);
    }
    return result;
}

std::strong_ordering reversed(std::strong_ordering order) {
    return 0 <=> order;
}

}  // namespace

Decimal::Decimal(std::string_view text) {
    negative_ = text.starts_with('-');
    if (negative_) text.remove_prefix(1);
    const std::size_t e = text.find_first_of("eE");
    if (e != std::string_view::npos) exponent_ = read_exponent(text.substr(e + 1));
    text = text.substr(0, e);
    const std::size_t point = text.find('.');
    digits_ = text.substr(0, point);
    if (point != std::string_view::npos) {
        const std::string_view fraction = text.substr(point + 1);
        digits_ += fraction;
        exponent_ -= static_cast<std::int64_t>(fraction.size());
    }
    digits_.erase(0, std::min(digits_.find_first_not_of('0'), digits_.size()));
    const std::size_t last = digits_.find_last_not_of('0');
    const std::size_t kept = last == std::string::npos ? 0 : last + 1;
    exponent_ += static_cast<std::int64_t>(digits_.size() - kept);
    digits_.resize(kept);
    exponent_ = std::clamp(exponent_, -kMaxExponent, kMaxExponent);
    if (digits_.empty()) {
        negative_ = false;
        exponent_ = 0;
    }
}

// Neither has a zero at its end: what has a smaller exponent than its divisor is no multiple.
bool Decimal::is_multiple_of(const Decimal& divisor) const {
    if (digits_.empty()) return true;
    if (exponent_ < divisor.exponent_) return false;
    std::uint64_t modulus = 0;
    for (const char c : divisor.digits_) {
        modulus = modulus * kTen + static_cast<std::uint64_t>(c - '0');
    }
    std::uint64_t rest = 0;
    for (const char c : digits_) {
        rest = (times_mod(rest, kTen, modulus) + static_cast<std::uint64_t>(c - '0')) % modulus;
    }
    const auto shift = static_cast<std::uint64_t>(exponent_ - divisor.exponent_);
    return times_mod(rest, ten_to_mod(shift, modulus), modulus) == 0;
}

void Decimal::append_to(std::string& out) const {
    if (negative_) out += '-';
    out += digits_.empty() ? "0" : digits_;
    if (exponent_ != 0) out += "e" + std::to_string(exponent_);
}

std::strong_ordering operator<=>(const Decimal& a, const Decimal& b) {
    const auto sign = [](const Decimal& d) { return d.digits_.empty() ? 0 : d.negative_ ? -1 : 1; };
    if (sign(a) != sign(b)) return sign(a) <=> sign(b);
    if (a.digits_.empty()) return std::strong_ordering::equal;
    const auto length = [](const Decimal& d) {
        return static_cast<std::int64_t>(d.digits_.size()) + d.exponent_;
    };
    auto order = length(a) <=> length(b);
    if (order == 0) order = a.digits_.compare(b.digits_) <=> 0;
    return a.negative_ ? reversed(order) : order;
}

}  // namespace outbox::schema
