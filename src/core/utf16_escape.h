#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox {

/// The code point that `rest`, what stands behind a "\u", begins with: four hexadecimal digits, and
/// where they are the first half of a surrogate pair the "\uXXXX" of its second. Takes those away.
/// Half a pair alone is returned as it is; what is made of it is the caller's. None, and `rest`
/// stays: there are no four digits.
[[nodiscard]] std::optional<std::uint32_t> take_utf16_escape(std::string_view& rest);

/// True for half a surrogate pair, which is no character.
[[nodiscard]] constexpr bool is_surrogate(std::uint32_t code) {
    return code >= 0xD800 && code < 0xE000;
}

}  // namespace outbox
