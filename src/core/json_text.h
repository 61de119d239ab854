#pragma once

#include <span>
#include <string>
#include <string_view>

namespace outbox {

/// What follows the backslash where JSON has a short form for `c`; 0: it has none.
[[nodiscard]] char json_short_escape(char c);

/// Appends `text` as a JSON string, escaped as PostgreSQL prints it: \" \\ \b \f \n \r \t, \u00xx
/// for the other bytes below 0x20. All else is copied; JSON wants it to be UTF-8 (`to_utf8`).
void append_json_string(std::string_view text, std::string& out);

/// A JSON array of strings.
[[nodiscard]] std::string json_array(std::span<const std::string> texts);

}  // namespace outbox
