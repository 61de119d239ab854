#include "brokers/rabbitmq/config.h"

#include <array>

#include "core/url.h"

namespace outbox::rabbitmq {
namespace {

constexpr std::string_view kPrefix = "rabbitmq.";
constexpr net::Product kProduct{
    "RabbitMQ", kPrefix, "amqp", "amqps", "amqp://host:5672/?exchange=NAME", 5672, 5671};
constexpr std::size_t kMaxNameBytes = 255;  // an AMQP short string
constexpr int kMaxHeartbeatS = 3'600;
constexpr std::array<std::string_view, 4> kExchangeTypes = {"topic", "direct", "fanout", "headers"};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

constexpr std::string_view kConnectionOptions =
    "heartbeat_s, ca_file, cert_file, key_file, verify and password_file";

// False: it is not about the connection.
Result<bool> add_connection_option(std::string_view name, const std::string& value,
                                   RabbitmqConfig& config) {
    if (name != "heartbeat_s") return net::add_access_option(kProduct, name, value, config);
    int seconds = 0;
    if (!net::read_number(value, 1, kMaxHeartbeatS, seconds)) {
        return invalid("rabbitmq.heartbeat_s is '" + value + "'; it is 1 to 3600 seconds");
    }
    config.heartbeat = std::chrono::seconds(seconds);
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
        return net::read_flag(kProduct, name, value, config.declare);
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

Result<RabbitmqConfig> read_url(std::string_view url, decltype(add_queue_option)& add_option,
                                const std::map<std::string, std::string>& options) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    RabbitmqConfig config;
    config.user = config.password = "guest";
    if (Status added = net::add_url(kProduct, *parsed, config); !added.ok()) return added.error();
    if (parsed->path.size() > 1) config.vhost = parsed->path.substr(1);
    for (const auto& [name, value] : parsed->query) {
        if (Status added = add_option(name, value, config); !added.ok()) return added.error();
    }
    for (const auto& [name, value] : options) {
        if (Status added = add_option(name, value, config); !added.ok()) return added.error();
    }
    Status sound = net::check_access(kProduct, *parsed, config);
    if (!sound.ok()) return sound.error();
    if (config.declare && config.exchange.empty()) {
        return invalid("rabbitmq.declare is for an exchange; name one with exchange=NAME");
    }
    return config;
}

}  // namespace

Result<RabbitmqConfig> make_config(std::string_view url,
                                   const std::map<std::string, std::string>& options) {
    return read_url(url, add_sink_option, options);
}

Result<RabbitmqConfig> make_queue_config(std::string_view url) {
    auto config = read_url(url, add_queue_option, {});
    if (!config.ok()) return config.error();
    if (config->queue.empty() || config->queue.size() > kMaxNameBytes) {
        return invalid("the RabbitMQ URL names no queue; use amqp://host:5672/vhost?queue=NAME");
    }
    return config;
}

std::string name_of_host(const net::Host& host) {
    return net::name_of(kProduct.name, host);
}

std::string transport_weakness(const RabbitmqConfig& config) {
    return net::transport_weakness(kProduct, config);
}

std::string name_of_exchange(const RabbitmqConfig& config) {
    const std::string vhost = " of vhost '" + config.vhost + "'";
    return (config.exchange.empty() ? "the default exchange"
                                    : "exchange '" + config.exchange + "'") +
           vhost;
}

}  // namespace outbox::rabbitmq
