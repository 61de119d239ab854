#include "net/http_endpoint.h"

#include "core/base64.h"
#include "core/redact.h"
#include "core/url.h"

namespace outbox::net {
namespace {

ErrorInfo invalid(const Product& product, const std::string& why) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "the URL of " + std::string(product.name) + " " + why};
}

Status take_options(const Product& product, const Url& url, HttpEndpoint& endpoint) {
    for (const auto& [name, value] : url.query) {
        const auto known = add_access_option(product, name, value, endpoint);
        if (!known.ok()) return known.error();
        if (!*known) {
            return invalid(product, "has no parameter '" + name +
                                        "'; there are ca_file, cert_file, key_file, verify and "
                                        "password_file");
        }
    }
    return {};
}

}  // namespace

Result<HttpEndpoint> make_http_endpoint(const Product& product, std::string_view url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    HttpEndpoint endpoint;
    Status status = add_url(product, *parsed, endpoint);
    if (status.ok()) status = take_options(product, *parsed, endpoint);
    if (status.ok()) status = check_access(product, *parsed, endpoint);
    if (!status.ok()) return status.error();
    if (endpoint.hosts.size() > 1) return invalid(product, "has several hosts");
    const bool has_password = !endpoint.password.empty() || !endpoint.password_file.empty();
    if (!endpoint.user.empty() && !has_password) {
        return invalid(product,
                       "has a user and no password; give one, or a token as the password without "
                       "a user");
    }
    std::string path;
    for (const char c : parsed->path) path += c == '/' ? std::string(1, c) : path_part({&c, 1});
    while (path.ends_with('/')) path.pop_back();
    const Host& host = endpoint.hosts.front();
    const bool bracket = host.name.find(':') != std::string::npos;
    endpoint.base = parsed->scheme + "://" + (bracket ? "[" + host.name + "]" : host.name) + ":" +
                    std::to_string(host.port) + path;
    return endpoint;
}

HttpOptions http_options_of(const HttpEndpoint& endpoint) {
    return {.ca_file = endpoint.ca_file,
            .cert_file = endpoint.cert_file,
            .key_file = endpoint.key_file,
            .verify = endpoint.verify};
}

Status add_authorization(const HttpEndpoint& endpoint, HttpHeaders& headers) {
    const auto password = password_of(endpoint);
    if (!password.ok()) return password.error();
    if (password->empty()) return {};
    std::string login = *password;
    if (!endpoint.user.empty()) {
        login.clear();
        append_base64(endpoint.user + ":" + *password, login);
    }
    remember_secret(*password);
    remember_secret(login);
    headers.emplace_back("Authorization", (endpoint.user.empty() ? "Bearer " : "Basic ") + login);
    return {};
}

}  // namespace outbox::net
