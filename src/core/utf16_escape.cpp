#include "core/utf16_escape.h"

#include <charconv>
#include <cstddef>

namespace outbox {
namespace {

constexpr std::size_t kUnitDigits = 4;

std::optional<std::uint32_t> utf16_unit(std::string_view digits) {
    if (digits.size() < kUnitDigits) return std::nullopt;
    std::uint32_t code = 0;
    const char* const first = digits.data();
    const auto [end, error] = std::from_chars(first, first + kUnitDigits, code, 16);
    if (error != std::errc() || end != first + kUnitDigits) return std::nullopt;
    return code;
}

}  // namespace

std::optional<std::uint32_t> take_utf16_escape(std::string_view& rest) {
    constexpr std::uint32_t kHigh = 0xD800;  // halves of surrogate pairs begin
    constexpr std::uint32_t kLow = 0xDC00;
    constexpr std::uint32_t kBeyond = 0x10000;
    const auto code = utf16_unit(rest);
    if (!code) return std::nullopt;
    rest.remove_prefix(kUnitDigits);
    if (*code < kHigh || *code >= kLow || !rest.starts_with("\\u")) return code;
    const auto low = utf16_unit(rest.substr(2));
    if (!low || *low < kLow || !is_surrogate(*low)) return code;
    rest.remove_prefix(2 + kUnitDigits);
    return kBeyond + ((*code - kHigh) << 10U) + (*low - kLow);
}

}  // namespace outbox
