#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::schema {

/// A schema registry with the API of Confluent's. Without a user its password is a token.
struct RegistryConfig : net::ServerAccess {
    std::string base;  ///< What "/subjects/..." is appended to, without secrets.
    std::chrono::seconds connect_timeout{5};
};

/// From `https://host:port/path`, with `user:password@` or `:token@` before the host, and
/// `ca_file`, `cert_file`, `key_file`, `verify` and `password_file` in its query. Errors:
/// kConfigInvalid/stop.
Result<RegistryConfig> make_registry_config(std::string_view url);

/// `net::check_files` of what the URL names.
Status check_registry_files(std::string_view url);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string registry_weakness(std::string_view url);

}  // namespace outbox::schema
