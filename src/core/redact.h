#pragma once

#include <span>
#include <string>
#include <string_view>

namespace outbox {

/// Has the values of options whose names hold one of these (in lower case) count as secrets. Each
/// backend tells its own; "password", "secret" and the like are known. Thread-safe.
void add_secret_options(std::span<const std::string_view> parts);

/// True for "sasl.password", "PGPASSWORD", "ssl.key.pem", ...
[[nodiscard]] bool is_secret_option(std::string_view name);

/// From now on hides this value, and each of its lines, wherever `redact` meets it. Values under
/// four bytes are hidden only where they stand behind their names. Thread-safe; for a process's own
/// configuration, as nothing is ever forgotten.
void remember_secret(std::string_view value);

/// Hides a value as `remember_secret` does, while it lives: for what is renewed without end.
/// Thread-safe.
class TemporarySecret {
  public:
    explicit TemporarySecret(std::string_view value);
    ~TemporarySecret();
    TemporarySecret(const TemporarySecret&) = delete;
    TemporarySecret& operator=(const TemporarySecret&) = delete;

  private:
    const std::string value_;
};

/// `remember_secret` of what is secret in an option's value, which is one URL or connection string,
/// however malformed.
void remember_secrets_of(std::string_view url);

/// For tests.
void forget_secrets();

/// `text` with every remembered secret, the password of everything that looks like a URL, and
/// the value of every secret option in it replaced by "***". Whatever prints a URL or an error of
/// a client library prints it through this.
[[nodiscard]] std::string redact(std::string_view text);

/// The same of a text that is one URL or connection string, however malformed: blanks do not end
/// what is secret in it.
[[nodiscard]] std::string redacted_url(std::string_view url);

/// What a client library says, in one line: redacted, white space between words a single blank.
[[nodiscard]] std::string redacted_line(std::string_view text);

/// True when the text shows a secret by its form.
[[nodiscard]] bool holds_secret(std::string_view text);

}  // namespace outbox
