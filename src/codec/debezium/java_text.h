#pragma once

#include <string>
#include <string_view>

namespace outbox::codec::debezium {

/// Appends the number as Double.toString of Java 19 and newer writes it: "1.0", "1.0E10", "NaN".
void append_java(double value, std::string& out);
/// The same of Float.toString.
void append_java(float value, std::string& out);

/// Appends a JSON string as Jackson escapes it.
void append_jackson_string(std::string_view text, std::string& out);

/// java.lang.String.trim: without the characters up to U+0020 at both ends.
[[nodiscard]] std::string_view java_trim(std::string_view text);

}  // namespace outbox::codec::debezium
