#include "schema/registry_config.h"

#include "core/url.h"
#include "net/certificates.h"

namespace outbox::schema {
namespace {

constexpr net::Product kProduct{
    "the schema registry", "", "http", "https", "https://registry.example.com:8081", 80, 443};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status take_options(const Url& url, RegistryConfig& config) {
    for (const auto& [name, value] : url.query) {
        const auto known = net::add_access_option(kProduct, name, value, config);
        if (!known.ok()) return known.error();
        if (!*known) {
            return invalid("the URL of the schema registry has no parameter '" + name +
                           "'; there are ca_file, cert_file, key_file, verify and password_file");
        }
    }
    return {};
}

}  // namespace

Result<RegistryConfig> make_registry_config(std::string_view url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    RegistryConfig config;
    Status status = net::add_url(kProduct, *parsed, config);
    if (status.ok()) status = take_options(*parsed, config);
    if (status.ok()) status = net::check_access(kProduct, *parsed, config);
    if (!status.ok()) return status.error();
    if (config.hosts.size() > 1) return invalid("the URL of the schema registry has several hosts");
    const bool has_password = !config.password.empty() || !config.password_file.empty();
    if (!config.user.empty() && !has_password) {
        return invalid(
            "the URL of the schema registry has a user and no password; give one, or a token as "
            "the password without a user");
    }
    std::string path;
    for (const char c : parsed->path) path += c == '/' ? std::string(1, c) : path_part({&c, 1});
    while (path.ends_with('/')) path.pop_back();
    const net::Host& host = config.hosts.front();
    const bool bracket = host.name.find(':') != std::string::npos;
    config.base = parsed->scheme + "://" + (bracket ? "[" + host.name + "]" : host.name) + ":" +
                  std::to_string(host.port) + path;
    return config;
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
