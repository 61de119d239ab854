#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox::consumer {

/// The time inside a UUIDv7 (RFC 9562, section 5.7) in microseconds since the Unix epoch; none for
/// any other id.
[[nodiscard]] inline std::optional<std::int64_t> uuidv7_time_us(std::string_view id) {
    constexpr std::size_t kUuidSize = 36;
    constexpr std::size_t kVersionAt = 14;
    constexpr std::size_t kTimeEnd = 13;
    if (id.size() != kUuidSize || id[8] != '-' || id[kVersionAt] != '7') return std::nullopt;
    std::int64_t milliseconds = 0;
    for (std::size_t i = 0; i < kTimeEnd; ++i) {
        if (i == 8) continue;
        const char c = id[i];
        int digit = 0;
        if (c >= '0' && c <= '9') {
            digit = c - '0';
        } else if (c >= 'a' && c <= 'f') {
            digit = c - 'a' + 10;
        } else if (c >= 'A' && c <= 'F') {
            digit = c - 'A' + 10;
        } else {
            return std::nullopt;
        }
        milliseconds = milliseconds * 16 + digit;
    }
    return milliseconds * 1000;
}

}  // namespace outbox::consumer
