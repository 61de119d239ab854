#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/result.h>

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

/// Errors: `kConfigInvalid`, with the text redacted.
[[nodiscard]] Result<Url> parse_url(std::string_view text);

/// `text` with the password of every URL and every `password=` or `secret=` in it replaced by
/// "***". Whatever prints a URL or an error of a client library prints it through this.
[[nodiscard]] std::string redact(std::string_view text);

/// What a client library says, in one line: redacted, white space between words a single blank.
[[nodiscard]] std::string redacted_line(std::string_view text);

/// True when `redact` would change the text: it holds a secret.
[[nodiscard]] bool holds_secret(std::string_view text);

}  // namespace outbox
