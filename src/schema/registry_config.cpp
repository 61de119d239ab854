#include "schema/registry_config.h"

#include "net/certificates.h"

namespace outbox::schema {
namespace {

constexpr net::Product kProduct{
    "the schema registry", "", "http", "https", "https://registry.example.com:8081", 80, 443};

}  // namespace

Result<RegistryConfig> make_registry_config(std::string_view url) {
    auto endpoint = net::make_http_endpoint(kProduct, url);
    if (!endpoint.ok()) return endpoint.error();
    return RegistryConfig{*std::move(endpoint)};
}

Status check_registry_files(std::string_view url) {
    const auto config = make_registry_config(url);
    return config.ok() ? net::check_files(*config) : config.status();
}

std::string registry_weakness(std::string_view url) {
    const auto config = make_registry_config(url);
    return config.ok() ? net::transport_weakness(kProduct, *config) : std::string();
}

}  // namespace outbox::schema
