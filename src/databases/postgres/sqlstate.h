#pragma once

#include <cstddef>
#include <string_view>

namespace outbox {

/// "FATAL:  28P01: ..." -> "28P01": a failed connection to PostgreSQL tells its state only in the
/// verbose text. Empty where there is none.
[[nodiscard]] inline std::string_view sqlstate_in(std::string_view message) {
    constexpr std::size_t kStateSize = 5;
    const auto at = message.find(":  ");
    if (at == std::string_view::npos) return {};
    const std::string_view rest = message.substr(at + 3);
    if (rest.size() <= kStateSize || rest[kStateSize] != ':') return {};
    const std::string_view state = rest.substr(0, kStateSize);
    constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return state.find_first_not_of(kLetters) == std::string_view::npos ? state : std::string_view();
}

}  // namespace outbox
