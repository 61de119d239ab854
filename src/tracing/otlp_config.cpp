#include "tracing/otlp_config.h"

namespace outbox::tracing {
namespace {

constexpr net::Product kProduct{"OTLP", "", "http", "https", "http://collector.example.com:4318",
                                80,     443};

}  // namespace

Result<net::HttpEndpoint> make_otlp_endpoint(std::string_view url) {
    return net::make_http_endpoint(kProduct, url);
}

std::string otlp_weakness(std::string_view url) {
    const auto endpoint = make_otlp_endpoint(url);
    return endpoint.ok() ? net::transport_weakness(kProduct, *endpoint) : std::string();
}

}  // namespace outbox::tracing
