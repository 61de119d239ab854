#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace outbox {

/// Appends `bytes` in base64 (RFC 4648, section 4), padded.
void append_base64(std::string_view bytes, std::string& out);
[[nodiscard]] std::string base64_encode(std::string_view bytes);

/// The bytes; nothing where `text` is not exactly what `base64_encode` makes of some: no other
/// characters, padded, no bits left over.
[[nodiscard]] std::optional<std::string> base64_decode(std::string_view text);

}  // namespace outbox
