#include "brokers/rabbitmq/config.h"

#include <array>
#include <charconv>
#include <limits>

#include "core/transport.h"
#include "core/url.h"
#include "secrets/password_file.h"

namespace outbox::rabbitmq {
namespace {

constexpr std::string_view kPrefix = "rabbitmq.";
constexpr std::uint16_t kPort = 5672;
constexpr std::uint16_t kTlsPort = 5671;
constexpr std::size_t kMaxNameBytes = 255;  // an AMQP short string
constexpr int kMaxHeartbeatS = 3'600;
constexpr std::array<std::string_view, 4> kExchangeTypes = {"topic", "direct", "fanout", "headers"};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

template <typename Number>
bool read_number(std::string_view text, Number least, Number most, Number& out) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() && out >= least && out <= most;
}

Status read_flag(std::string_view name, std::string_view value, bool& out) {
    if (value != "true" && value != "false") {
        return invalid("rabbitmq." + std::string(name) + " is '" + std::string(value) +
                       "'; it is true or false");
    }
    out = value == "true";
    return {};
}

Status read_hosts(std::string_view authority, bool tls, std::vector<Host>& out) {
    while (true) {
        const std::size_t comma = authority.find(',');
        std::string_view one = authority.substr(0, comma);
        Host host;
        host.port = tls ? kTlsPort : kPort;
        const bool bracketed = one.starts_with('[');
        const std::size_t close = bracketed ? one.find(']') : 0;
        const std::size_t colon = close == std::string_view::npos ? close : one.find(':', close);
        if (colon != std::string_view::npos &&
            !read_number<std::uint16_t>(one.substr(colon + 1), 1,
                                        std::numeric_limits<std::uint16_t>::max(), host.port)) {
            return invalid("the RabbitMQ URL has the port '" + std::string(one.substr(colon + 1)) +
                           "'; a port is a number from 1 to 65535");
        }
        one = one.substr(0, colon);
        host.name = bracketed && close != std::string_view::npos ? one.substr(1, close - 1) : one;
        if (host.name.empty()) {
            return invalid("the RabbitMQ URL names no host; use amqp://host:5672/?exchange=NAME");
        }
        out.push_back(std::move(host));
        if (comma == std::string_view::npos) return {};
        authority.remove_prefix(comma + 1);
    }
}

constexpr std::string_view kConnectionOptions =
    "heartbeat_s, ca_file, cert_file, key_file, verify and password_file";

// False: it is not about the connection.
Result<bool> add_connection_option(std::string_view name, const std::string& value,
                                   RabbitmqConfig& config) {
    if (name == "ca_file") {
        config.ca_file = value;
    } else if (name == "cert_file") {
        config.cert_file = value;
    } else if (name == "key_file") {
        config.key_file = value;
    } else if (name == "password_file") {
        config.password_file = value;
    } else if (name == "verify") {
        if (Status read = read_flag(name, value, config.verify); !read.ok()) return read.error();
    } else if (name == "heartbeat_s") {
        int seconds = 0;
        if (!read_number(value, 1, kMaxHeartbeatS, seconds)) {
            return invalid("rabbitmq.heartbeat_s is '" + value + "'; it is 1 to 3600 seconds");
        }
        config.heartbeat = std::chrono::seconds(seconds);
    } else {
        return false;
    }
    return true;
}

Status add_sink_option(std::string_view name, const std::string& value, RabbitmqConfig& config) {
    while (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
    const auto known = add_connection_option(name, value, config);
    if (!known.ok()) return known.error();
    if (*known) return {};
    if (name == "exchange") {
        if (value.size() > kMaxNameBytes) return invalid("rabbitmq.exchange has over 255 bytes");
        config.exchange = value;
    } else if (name == "declare") {
        return read_flag(name, value, config.declare);
    } else if (name == "exchange_type") {
        // Those of plugins begin with "x-".
        bool is_type = value.starts_with("x-");
        for (const std::string_view type : kExchangeTypes) is_type = is_type || value == type;
        if (!is_type) {
            return invalid("rabbitmq.exchange_type is '" + value +
                           "'; it is topic, direct, fanout, headers or a plugin's x-...");
        }
        config.exchange_type = value;
    } else {
        return invalid("RabbitMQ has no option '" + std::string(name) +
                       "'; there are exchange, declare, exchange_type, " +
                       std::string(kConnectionOptions));
    }
    return {};
}

Status add_queue_option(std::string_view name, const std::string& value, RabbitmqConfig& config) {
    const auto known = add_connection_option(name, value, config);
    if (!known.ok()) return known.error();
    if (*known) return {};
    if (name != "queue") {
        return invalid("a queue of RabbitMQ has no option '" + std::string(name) +
                       "'; there are queue, " + std::string(kConnectionOptions));
    }
    config.queue = value;
    return {};
}

Status check(const RabbitmqConfig& config, bool has_password) {
    if (has_password && !config.password_file.empty()) {
        return invalid(
            "the RabbitMQ URL has a password and a password file; leave one of them out");
    }
    if (config.cert_file.empty() != config.key_file.empty()) {
        return invalid("rabbitmq.cert_file and rabbitmq.key_file need each other");
    }
    const bool has_tls = !config.ca_file.empty() || !config.cert_file.empty() || !config.verify;
    if (has_tls && !config.tls) {
        return invalid(
            "ca_file, cert_file, key_file and verify are for amqps://, and the URL is amqp://");
    }
    if (config.declare && config.exchange.empty()) {
        return invalid("rabbitmq.declare is for an exchange; name one with exchange=NAME");
    }
    return {};
}

Result<RabbitmqConfig> read_url(std::string_view url, decltype(add_queue_option)& add_option,
                                bool& has_password) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    RabbitmqConfig config;
    config.tls = parsed->scheme == "amqps";
    if (!config.tls && parsed->scheme != "amqp") {
        return invalid("the URL of a RabbitMQ begins with amqp:// or amqps://, not " +
                       parsed->scheme + "://");
    }
    if (Status hosts = read_hosts(parsed->authority, config.tls, config.hosts); !hosts.ok()) {
        return hosts.error();
    }
    if (!parsed->user.empty()) config.user = parsed->user;
    if (!parsed->password.empty()) config.password = parsed->password;
    if (parsed->path.size() > 1) config.vhost = parsed->path.substr(1);
    for (const auto& [name, value] : parsed->query) {
        if (Status added = add_option(name, value, config); !added.ok()) return added.error();
    }
    has_password = !parsed->password.empty();
    return config;
}

}  // namespace

Result<RabbitmqConfig> make_config(std::string_view url,
                                   const std::map<std::string, std::string>& options) {
    bool has_password = false;
    auto config = read_url(url, add_sink_option, has_password);
    if (!config.ok()) return config.error();
    for (const auto& [name, value] : options) {
        if (Status added = add_sink_option(name, value, *config); !added.ok()) return added.error();
    }
    if (Status sound = check(*config, has_password); !sound.ok()) return sound.error();
    return config;
}

Result<RabbitmqConfig> make_queue_config(std::string_view url) {
    bool has_password = false;
    auto config = read_url(url, add_queue_option, has_password);
    if (!config.ok()) return config.error();
    if (Status sound = check(*config, has_password); !sound.ok()) return sound.error();
    if (config->queue.empty() || config->queue.size() > kMaxNameBytes) {
        return invalid("the RabbitMQ URL names no queue; use amqp://host:5672/vhost?queue=NAME");
    }
    return config;
}

std::string name_of_host(const Host& host) {
    return "RabbitMQ at " + host.name + ":" + std::to_string(host.port);
}

Result<std::string> password_of(const RabbitmqConfig& config) {
    return config.password_file.empty() ? config.password : read_password(config.password_file);
}

std::string transport_weakness(const RabbitmqConfig& config) {
    bool remote = false;
    for (const Host& host : config.hosts) remote = remote || is_remote(host.name);
    if (!remote) return {};
    if (!config.tls) return "is reached in clear: use amqps://";
    if (!config.verify) return "is reached without proof who it is: remove rabbitmq.verify";
    return {};
}

std::span<const std::string_view> secret_options() {
    return {};
}

std::string name_of_exchange(const RabbitmqConfig& config) {
    const std::string vhost = " of vhost '" + config.vhost + "'";
    return (config.exchange.empty() ? "the default exchange"
                                    : "exchange '" + config.exchange + "'") +
           vhost;
}

}  // namespace outbox::rabbitmq
