#pragma once

#include <array>
#include <chrono>
#include <map>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "core/backend_options.h"
#include "webhook/dispatch_options.h"
#include "webhook/store.h"

namespace outbox::webhook {

inline constexpr std::array kOptions{
    BackendOption{.name = "key_file",
                  .type = OptionType::kPath,
                  .required = true,
                  .help = "file with the key that endpoints' secrets are stored under, made by "
                          "`openssl rand -base64 32`; others may not read it"},
    BackendOption{.name = "allow",
                  .repeatable = true,
                  .help = "hosts by their exact names, addresses and ranges "
                          "(`hooks.internal, 10.1.0.0/16`) that may be reached though they are not "
                          "public"},
    BackendOption{.name = "allow_http",
                  .type = OptionType::kFlag,
                  .fallback = "false",
                  .help = "`true`: endpoints without TLS, too; the relay warns"},
    BackendOption{.name = "ca_file",
                  .type = OptionType::kPath,
                  .help = "PEM file of the authorities that receivers' certificates are by; "
                          "without it the system's"},
    BackendOption{.name = "timeout_ms",
                  .type = OptionType::kInteger,
                  .fallback = "20000",
                  .unit = "ms",
                  .min = 1,
                  .max = 60'000,
                  .help = "of one attempt"},
    BackendOption{.name = "connect_timeout_ms",
                  .type = OptionType::kInteger,
                  .fallback = "5000",
                  .unit = "ms",
                  .min = 1,
                  .max = 60'000,
                  .help = "of name, connection and TLS"},
    BackendOption{.name = "max_connections",
                  .type = OptionType::kInteger,
                  .fallback = "512",
                  .min = 1,
                  .max = 10'000,
                  .help = "attempts under way, each with a connection of its own where it needs "
                          "one: of all, a quarter of them to one host"},
    BackendOption{.name = "max_per_endpoint",
                  .type = OptionType::kInteger,
                  .fallback = "8",
                  .min = 1,
                  .max = 100,
                  .help = "the same of one endpoint"},
    BackendOption{
        .name = "owner", .repeatable = true, .help = "role that may own the tables in PostgreSQL"},
};

/// Where the endpoints are, and how they are sent to.
struct RouteConfig {
    StoreConfig store;
    DispatchOptions dispatch;
    std::string key_file;
    std::string allow;
    bool allow_http = false;
    std::string ca_file;
    std::chrono::milliseconds timeout{};
    std::chrono::milliseconds connect_timeout{};
};

/// From "webhook+" before the URL of the database that has the endpoints, and options named
/// `webhook.<name>` or just the name; options may stand in the URL's query, too. Errors:
/// kConfigInvalid/stop, without secrets.
Result<RouteConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options,
                                std::chrono::seconds connect_timeout);

/// The URL of the database behind "webhook+". Errors: kConfigInvalid.
Result<std::string> database_of(std::string_view url);

}  // namespace outbox::webhook
