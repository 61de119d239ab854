#include "brokers/rabbitmq/config.h"

#include <algorithm>
#include <array>

#include "core/url.h"

namespace outbox::rabbitmq {
namespace {

constexpr std::string_view kPrefix = "rabbitmq.";
constexpr net::Product kProduct{
    "RabbitMQ", kPrefix, "amqp", "amqps", "amqp://host:5672/?exchange=NAME", 5672, 5671};
constexpr std::size_t kMaxNameBytes = 255;  // an AMQP short string
constexpr std::array<std::string_view, 4> kExchangeTypes = {"topic", "direct", "fanout", "headers"};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

void take_connection(const BackendValues& values, RabbitmqConfig& config) {
    net::take_access(values, config);
    config.heartbeat = std::chrono::seconds(values.integer("heartbeat_s"));
}

Status take_sink_options(const BackendValues& values, RabbitmqConfig& config) {
    take_connection(values, config);
    config.exchange = values.text("exchange");
    config.declare = values.flag("declare");
    config.exchange_type = values.text("exchange_type");
    if (config.exchange.size() > kMaxNameBytes) {
        return invalid("rabbitmq.exchange has over 255 bytes");
    }
    // Those of plugins begin with "x-".
    if (config.exchange_type.starts_with("x-") ||
        std::ranges::find(kExchangeTypes, config.exchange_type) != kExchangeTypes.end()) {
        return {};
    }
    return invalid("rabbitmq.exchange_type is '" + config.exchange_type +
                   "'; it is topic, direct, fanout, headers or a plugin's x-...");
}

Status take_queue_options(const BackendValues& values, RabbitmqConfig& config) {
    take_connection(values, config);
    config.queue = values.text("queue");
    return {};
}

Result<RabbitmqConfig> read_url(std::string_view url, decltype(take_queue_options)& take,
                                const OptionScope& scope,
                                const std::map<std::string, std::string>& options) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    RabbitmqConfig config;
    config.user = config.password = "guest";
    if (Status added = net::add_url(kProduct, *parsed, config); !added.ok()) return added.error();
    if (parsed->path.size() > 1) config.vhost = parsed->path.substr(1);
    const auto values = read_backend_options(scope, parsed->query, options);
    if (!values.ok()) return values.error();
    Status sound = take(*values, config);
    if (sound.ok()) sound = net::check_access(kProduct, *parsed, config);
    if (!sound.ok()) return sound.error();
    if (config.declare && config.exchange.empty()) {
        return invalid("rabbitmq.declare is for an exchange; name one with exchange=NAME");
    }
    return config;
}

}  // namespace

Result<RabbitmqConfig> make_config(std::string_view url,
                                   const std::map<std::string, std::string>& options) {
    return read_url(url, take_sink_options, net::scope_of(kProduct, kOptions), options);
}

Result<RabbitmqConfig> make_queue_config(std::string_view url) {
    auto config =
        read_url(url, take_queue_options, {"a queue of RabbitMQ", kPrefix, kQueueOptions}, {});
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
