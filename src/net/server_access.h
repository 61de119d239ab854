#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "core/url.h"

namespace outbox::net {

struct Host {
    std::string name;
    std::uint16_t port = 0;
};

/// "RabbitMQ at host:5672".
[[nodiscard]] std::string name_of(std::string_view product, const Host& host);

/// Where the servers of a broker are, who logs in, and what proves who they are.
struct ServerAccess {
    std::vector<Host> hosts;  ///< One broker's, tried in turn.
    bool tls = false;
    std::string user;
    std::string password;
    std::string password_file;  ///< Instead of `password`; read for each connection.
    std::string ca_file;        ///< PEM; empty: the system's.
    std::string cert_file;      ///< PEM, with `key_file`: who we are.
    std::string key_file;
    bool verify = true;  ///< The server's certificate and name.
};

/// How messages and URLs of a broker name it.
struct Product {
    std::string_view name;     ///< "RabbitMQ"
    std::string_view prefix;   ///< Of its options: "rabbitmq."
    std::string_view scheme;   ///< "amqp"
    std::string_view secure;   ///< The scheme with TLS: "amqps"
    std::string_view example;  ///< A URL.
    std::uint16_t port = 0;
    std::uint16_t tls_port = 0;
};

/// Takes scheme, hosts, user and password of the URL; what the URL does not name stays.
Status add_url(const Product& product, const Url& url, ServerAccess& out);

/// Takes the options ca_file, cert_file, key_file, verify and password_file. False: it is none of
/// them.
Result<bool> add_access_option(const Product& product, std::string_view name,
                               const std::string& value, ServerAccess& out);

using AddOption = std::function<Status(std::string_view name, const std::string& value)>;

/// Hands each parameter of the URL's query, then each of `options`, to `add`, by their names
/// without the product's prefix. Ends at the first error.
Status read_options(const Product& product, const Url& url,
                    const std::map<std::string, std::string>& options, const AddOption& add);

/// That the parts fit each other.
Status check_access(const Product& product, const Url& url, const ServerAccess& access);

/// From a URL and options: `add(name, value, config)` takes one option, `check(url, config)` says
/// whether what they make can be. Ends at the first error.
template <typename Config, typename Add, typename Check>
Result<Config> read_config(const Product& product, std::string_view text,
                           const std::map<std::string, std::string>& options, Add add,
                           Check check) {
    const auto url = parse_url(text);
    if (!url.ok()) return url.error();
    Config config;
    Status read = add_url(product, *url, config);
    if (read.ok()) {
        read = read_options(product, *url, options,
                            [&](std::string_view name, const std::string& value) {
                                return add(name, value, config);
                            });
    }
    if (read.ok()) read = check(*url, config);
    if (read.ok()) read = check_access(product, *url, config);
    if (!read.ok()) return read.error();
    return config;
}

/// The password in force now. Errors: kAuthFailed.
Result<std::string> password_of(const ServerAccess& access);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const Product& product, const ServerAccess& access);

/// "true" or "false".
Status read_flag(const Product& product, std::string_view name, std::string_view value, bool& out);

/// A whole number from `least` to `most`, and nothing else.
template <typename Number>
[[nodiscard]] bool read_number(std::string_view text, Number least, Number most, Number& out) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    const bool read = error == std::errc() && end == text.data() + text.size() && number >= least &&
                      number <= most;
    if (read) out = number;
    return read;
}

}  // namespace outbox::net
