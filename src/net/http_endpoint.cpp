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

}  // namespace

Result<HttpEndpoint> make_http_endpoint(const Product& product, std::string_view url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    HttpEndpoint endpoint;
    if (Status added = add_url(product, *parsed, endpoint); !added.ok()) return added.error();
    const std::string who = "the URL of " + std::string(product.name);
    const auto values = read_backend_options({who, "", kAccessOptions}, parsed->query, {});
    if (!values.ok()) return values.error();
    take_access(*values, endpoint);
    if (Status fits = check_access(product, *parsed, endpoint); !fits.ok()) return fits.error();
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
