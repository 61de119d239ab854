#include "net/server_access.h"

#include <algorithm>
#include <limits>

#include "core/transport.h"
#include "secrets/password_file.h"

namespace outbox::net {
namespace {

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

// "host", "host:port" or "[address]:port".
Result<Host> read_host(const Product& product, std::string_view text, bool tls) {
    Host host;
    host.port = tls ? product.tls_port : product.port;
    const bool bracketed = text.starts_with('[');
    const std::size_t close = bracketed ? text.find(']') : 0;
    const std::size_t colon = close == std::string_view::npos ? close : text.find(':', close);
    if (colon != std::string_view::npos &&
        !read_number<std::uint16_t>(text.substr(colon + 1), 1,
                                    std::numeric_limits<std::uint16_t>::max(), host.port)) {
        return invalid("the " + std::string(product.name) + " URL has the port '" +
                       std::string(text.substr(colon + 1)) +
                       "'; a port is a number from 1 to 65535");
    }
    text = text.substr(0, colon);
    host.name = bracketed && close != std::string_view::npos ? text.substr(1, close - 1) : text;
    if (host.name.empty()) {
        return invalid("the " + std::string(product.name) + " URL names no host; use " +
                       std::string(product.example));
    }
    return host;
}

}  // namespace

std::string name_of(std::string_view product, const Host& host) {
    return std::string(product) + " at " + host.name + ":" + std::to_string(host.port);
}

Status add_url(const Product& product, const Url& url, ServerAccess& out) {
    out.tls = url.scheme == product.secure;
    if (!out.tls && url.scheme != product.scheme) {
        return invalid("the URL of " + std::string(product.name) + " begins with " +
                       std::string(product.scheme) + ":// or " + std::string(product.secure) +
                       "://, not " + url.scheme + "://");
    }
    std::string_view authority = url.authority;
    while (true) {
        const std::size_t comma = authority.find(',');
        auto host = read_host(product, authority.substr(0, comma), out.tls);
        if (!host.ok()) return host.error();
        out.hosts.push_back(std::move(*host));
        if (comma == std::string_view::npos) break;
        authority.remove_prefix(comma + 1);
    }
    if (!url.user.empty()) out.user = url.user;
    if (!url.password.empty()) out.password = url.password;
    return {};
}

void take_tls(const BackendValues& values, ServerAccess& out) {
    out.ca_file = values.text("ca_file");
    out.cert_file = values.text("cert_file");
    out.key_file = values.text("key_file");
    out.verify = values.flag("verify");
}

void take_access(const BackendValues& values, ServerAccess& out) {
    take_tls(values, out);
    out.password_file = values.text("password_file");
}

Status check_access(const Product& product, const Url& url, const ServerAccess& access) {
    const std::string prefix(product.prefix);
    if (!url.password.empty() && !access.password_file.empty()) {
        return invalid("the " + std::string(product.name) +
                       " URL has a password and a password file; leave one of them out");
    }
    if (access.cert_file.empty() != access.key_file.empty()) {
        return invalid(prefix + "cert_file and " + prefix + "key_file need each other");
    }
    const bool has_tls = !access.ca_file.empty() || !access.cert_file.empty() || !access.verify;
    if (has_tls && !access.tls) {
        return invalid("ca_file, cert_file, key_file and verify are for " +
                       std::string(product.secure) + "://, and the URL is " +
                       std::string(product.scheme) + "://");
    }
    return {};
}

Result<std::string> password_of(const ServerAccess& access) {
    return access.password_file.empty() ? access.password : read_password(access.password_file);
}

std::string transport_weakness(const Product& product, const ServerAccess& access) {
    const bool remote = std::any_of(access.hosts.begin(), access.hosts.end(),
                                    [](const Host& host) { return is_remote(host.name); });
    if (!remote) return {};
    if (!access.tls) return "is reached in clear: use " + std::string(product.secure) + "://";
    if (!access.verify) {
        return "is reached without proof who it is: remove " + std::string(product.prefix) +
               "verify";
    }
    return {};
}

}  // namespace outbox::net
