#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "net/http_endpoint.h"

namespace outbox::schema {

/// A schema registry with the API of Confluent's: "/subjects/..." stands below its base.
struct RegistryConfig : net::HttpEndpoint {
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
};

/// As `net::make_http_endpoint`.
Result<RegistryConfig> make_registry_config(std::string_view url);

/// `net::check_files` of what the URL names.
Status check_registry_files(std::string_view url);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string registry_weakness(std::string_view url);

}  // namespace outbox::schema
