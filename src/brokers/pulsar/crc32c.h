#pragma once

#include <cstdint>
#include <string_view>

namespace outbox::pulsar {

/// CRC-32C (RFC 3720, B.4), which the broker compares before it takes a message.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace outbox::pulsar
