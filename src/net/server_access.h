#pragma once

#include <array>
#include <charconv>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "core/backend_options.h"
#include "core/url.h"

namespace outbox::net {

/// Where one server listens. A name or an address, IPv6 without brackets.
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

inline constexpr std::array kTlsOptions{
    BackendOption{.name = "ca_file",
                  .type = OptionType::kPath,
                  .help = "PEM file of the authorities that are trusted; without it the system's"},
    BackendOption{.name = "cert_file",
                  .type = OptionType::kPath,
                  .help = "PEM file of the certificate that says who the relay is"},
    BackendOption{
        .name = "key_file", .type = OptionType::kPath, .help = "PEM file of that one's key"},
    BackendOption{.name = "verify",
                  .type = OptionType::kFlag,
                  .fallback = "true",
                  .help = "`false`: any certificate will do; the relay warns"},
};
inline constexpr std::array kPasswordOption{
    BackendOption{.name = "password_file",
                  .type = OptionType::kPath,
                  .help = "instead of the password in the URL; read at each connection"},
};
inline constexpr auto kAccessOptions = all_options(kPasswordOption, kTlsOptions);

/// Takes the values of `kTlsOptions`; those of `kAccessOptions`.
void take_tls(const BackendValues& values, ServerAccess& out);
void take_access(const BackendValues& values, ServerAccess& out);

/// That the parts fit each other.
Status check_access(const Product& product, const Url& url, const ServerAccess& access);

/// From a URL and options, which `scope` declares. `take(values, config)` takes them,
/// `check(url, config)` says whether what they make can be. Ends at the first error.
template <typename Config, typename Take, typename Check>
Result<Config> read_config(const Product& product, const OptionScope& scope, std::string_view text,
                           const std::map<std::string, std::string>& options, Take take,
                           Check check) {
    const auto url = parse_url(text);
    if (!url.ok()) return url.error();
    Config config;
    if (Status added = add_url(product, *url, config); !added.ok()) return added.error();
    const auto values = read_backend_options(scope, url->query, options);
    if (!values.ok()) return values.error();
    Status read = take(*values, config);
    if (read.ok()) read = check(*url, config);
    if (read.ok()) read = check_access(product, *url, config);
    if (!read.ok()) return read.error();
    return config;
}

/// The options of a broker that messages name as its product.
[[nodiscard]] inline OptionScope scope_of(const Product& product,
                                          std::span<const BackendOption> options) {
    return {product.name, product.prefix, options};
}

/// The password in force now. Errors: kAuthFailed.
Result<std::string> password_of(const ServerAccess& access);

/// What of the way there is in clear or unverified, with the remedy; or "".
std::string transport_weakness(const Product& product, const ServerAccess& access);

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
