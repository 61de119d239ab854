#pragma once

#include <string_view>

#include <outbox/result.h>

#include "net/http_endpoint.h"

namespace outbox::tracing {

/// Where spans go, by a URL as `net::make_http_endpoint` takes it: what OpenTelemetry calls the
/// endpoint of OTLP over HTTP, below which "/v1/traces" stands. Errors: kConfigInvalid/stop.
Result<net::HttpEndpoint> make_otlp_endpoint(std::string_view url);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string otlp_weakness(std::string_view url);

}  // namespace outbox::tracing
