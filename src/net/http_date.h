#pragma once

#include <chrono>
#include <optional>
#include <string_view>

namespace outbox::net {

/// A date in one of the three forms of RFC 9110, 5.6.7. A year of two digits is the one that is not
/// more than 50 years after `now`. Nothing where it is no date. Years have four digits, so
/// differences fit into seconds, not into nanoseconds.
[[nodiscard]] std::optional<std::chrono::sys_seconds> parse_http_date(std::string_view text,
                                                                      std::chrono::sys_seconds now);

}  // namespace outbox::net
