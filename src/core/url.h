#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "core/redact.h"

namespace outbox {

/// The parts of `scheme://user:password@authority/path?name=value&...`, percent-decoded except for
/// `authority`, which is "host:port" or a list of them. `stdout:` and `null:` have only a scheme.
struct Url {
    std::string scheme;
    std::string user;
    std::string password;
    std::string authority;
    std::string path;  ///< Begins with "/" where there is one.
    std::vector<std::pair<std::string, std::string>> query;

    /// The last value of a query parameter, or `fallback`.
    [[nodiscard]] std::string_view query_value(std::string_view name,
                                               std::string_view fallback = {}) const;
};

/// Errors: `kConfigInvalid`, with the text redacted; also where a character of user or password
/// must be percent-encoded, as parts of it would else be taken for a port, a path or a parameter.
[[nodiscard]] Result<Url> parse_url(std::string_view text);

/// "a%20b" -> "a b"
[[nodiscard]] std::string percent_decode(std::string_view text);

/// "a b" -> "a%20b": white space, control characters and those of `also`, which holds '%' where
/// `percent_decode` is to undo it.
[[nodiscard]] std::string percent_encode(std::string_view text, std::string_view also);

/// Appends one byte as "%XX".
void append_percent(char byte, std::string& out);

/// `text` as one part of a URI's path, or of its query: all is encoded but letters, digits and
/// "-._~".
[[nodiscard]] std::string path_part(std::string_view text);

/// The URL with a parameter more, percent-encoded.
[[nodiscard]] std::string with_parameter(std::string url, std::string_view name,
                                         std::string_view value);

}  // namespace outbox
