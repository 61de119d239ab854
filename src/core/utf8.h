#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace outbox {

/// True for well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF).
[[nodiscard]] bool is_utf8(std::string_view text);

/// `text` cut to `max_bytes`, with '?' for every byte that a database does not take as text (NUL,
/// and what is not UTF-8). Makes foreign error messages storable.
[[nodiscard]] std::string to_storable_text(std::string_view text, std::size_t max_bytes);

}  // namespace outbox
