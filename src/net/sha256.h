#pragma once

#include <string>
#include <string_view>

namespace outbox::net {

/// "0a1b..." of bytes.
[[nodiscard]] std::string hex(std::string_view bytes);

/// SHA-256, as 64 digits in lower case.
[[nodiscard]] std::string sha256_hex(std::string_view bytes);

}  // namespace outbox::net
