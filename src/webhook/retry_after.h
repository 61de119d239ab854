#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string_view>

namespace outbox::webhook {

/// The longest that a receiver can have us wait; longer is this.
constexpr std::chrono::seconds kMostRetryAfter = std::chrono::hours(24);

/// What a `Retry-After` header asks for, from `now_s` (since the Unix epoch) on: a number of
/// seconds, or a date in one of the three forms of RFC 9110, 5.6.7; what has passed is 0. Nothing
/// where it is neither.
[[nodiscard]] std::optional<std::chrono::seconds> parse_retry_after(std::string_view value,
                                                                    std::int64_t now_s);

}  // namespace outbox::webhook
