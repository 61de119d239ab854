#include "backend/broker.h"

#include <array>
#include <utility>

#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/sink.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"amqp", "amqps"};

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    auto config = rabbitmq::make_config(destination.url, destination.options);
    if (!config.ok()) return config.error();
    config->connect_timeout = destination.connect_timeout;
    return std::unique_ptr<spi::Sink>(new rabbitmq::RabbitmqSink(std::move(*config)));
}

Status check_settings(const Destination& destination) {
    const auto config = rabbitmq::make_config(destination.url, destination.options);
    return config.ok() ? net::check_files(*config) : config.status();
}

std::string weakness(const Destination& destination) {
    const auto config = rabbitmq::make_config(destination.url, destination.options);
    return config.ok() ? rabbitmq::transport_weakness(*config) : "";
}

}  // namespace

const Broker& rabbitmq_broker() {
    static const Broker broker{
        .name = "rabbitmq",
        .schemes = kSchemes,
        .urls = "amqp(s)://user:password@host:port/vhost?exchange=NAME",
        .capabilities = &rabbitmq::kCapabilities,
        .limits =
            "max_message_size of the broker; routing key, id and type 255 bytes; headers and "
            "key together frame_max",
        .options =
            "`exchange`, `declare`, `exchange_type`, `heartbeat_s`, `ca_file`, `cert_file`, "
            "`key_file`, `verify`, `password_file`, for example `exchange = \"orders\"`",
        .example_option = "exchange = \"orders\"",
        .make = make,
        .check_settings = check_settings,
        .weakness = weakness,
    };
    return broker;
}

}  // namespace outbox
