#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace outbox {

/// True for well-formed UTF-8 (RFC 3629: no overlong forms, no surrogates, up to U+10FFFF).
[[nodiscard]] bool is_utf8(std::string_view text);

/// Bytes before the first that is not plain: a control character (U+0000 to U+001F, U+007F to
/// U+009F), a noncharacter (U+FDD0 to U+FDEF, and U+FFFE and U+FFFF of each plane) or no UTF-8.
[[nodiscard]] std::size_t plain_prefix(std::string_view text);

/// Appends a code point, up to U+10FFFF; half a surrogate pair as if it were one.
void append_utf8(std::uint32_t code, std::string& out);

/// `text` with U+FFFD for every byte that is not UTF-8.
[[nodiscard]] std::string to_utf8(std::string_view text);

/// `text` cut to `max_bytes`, with '?' for every byte that a database does not take as text (NUL,
/// and what is not UTF-8). Makes foreign error messages storable.
[[nodiscard]] std::string to_storable_text(std::string_view text, std::size_t max_bytes);

/// `text` with '?' for whatever a terminal might obey: control characters (U+0000 to U+001F, U+007F
/// to U+009F), what turns the direction of writing or breaks lines (U+061C, U+200E and U+200F,
/// U+2028 to U+202E, U+2066 to U+2069) and bytes that are not UTF-8. `keep_lines` lets U+000A and
/// U+0009 through.
[[nodiscard]] std::string to_printable(std::string_view text, bool keep_lines = false);

/// JSON text, well-formed UTF-8, with \u escapes for those of them that JSON lets stand in its
/// strings (from U+007F on). The same value.
[[nodiscard]] std::string printable_json(std::string_view json);

}  // namespace outbox
