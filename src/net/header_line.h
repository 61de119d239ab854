#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace outbox::net {

/// Why no line "name: value" can have this name; else nothing. A name is visible ASCII, without
/// a colon.
[[nodiscard]] std::optional<std::string> why_not_header_name(std::string_view name);

/// Appends "name: value" and the line's end. A value that would not come back the same (line breaks
/// and other control characters, blanks at its ends, bytes that are not UTF-8) is written as
/// "name*: UTF-8''a%0Ab", as RFC 8187 does; so is each value whose name ends in '*'.
void append_header_line(std::string_view name, std::string_view value, std::string& out);

/// The same without the line: what `name` and `value` are written as, into `as`; false: as they
/// are.
bool encode_header(std::string_view name, std::string_view value,
                   std::pair<std::string, std::string>& as);

/// The same, whatever the value is.
void extend_header(std::string_view name, std::string_view value,
                   std::pair<std::string, std::string>& as);

/// Name and value as they were before `append_header_line`.
[[nodiscard]] std::pair<std::string, std::string> decode_header(std::string_view name,
                                                                std::string_view value);

}  // namespace outbox::net
