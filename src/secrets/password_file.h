#pragma once

#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox {

/// The URL as libpq takes it: `password_file=PATH` among its parameters is replaced by the password
/// that the file holds now, without the line break at its end. To be called for each connection.
/// The password is remembered by the redactor. Errors: `kAuthFailed` where the file cannot be read,
/// is empty or may be read by others: an outage, as it may be about to be written anew.
/// `kConfigInvalid` where the URL has a password, too.
[[nodiscard]] Result<std::string> with_password(const std::string& url);
/// What a password file holds now, without the line break at its end; the redactor remembers it.
/// Errors: `kAuthFailed` as above.
[[nodiscard]] Result<std::string> read_password(const std::string& path);
/// The same of another file with a secret, which messages call `what`: "webhook key file".
[[nodiscard]] Result<std::string> read_secret(const std::string& path, std::string_view what);
/// The URL as libpq takes it, for a look at its form alone: nothing is read.
[[nodiscard]] std::string without_password_file(const std::string& url);

}  // namespace outbox
