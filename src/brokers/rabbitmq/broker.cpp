#include "backend/broker.h"

#include <array>

#include "backend/configured.h"
#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/message.h"
#include "brokers/rabbitmq/sink.h"
#include "net/certificate_dates.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"amqp", "amqps"};

Result<rabbitmq::RabbitmqConfig> config_of(const Destination& destination) {
    auto config = rabbitmq::make_config(destination.url, destination.options);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    return config;
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
        .why_not_header = rabbitmq::why_not_header,
        .make = configured::make<config_of, rabbitmq::RabbitmqSink>,
        .check_settings = configured::check<config_of, net::check_files>,
        .weakness = configured::weakness<config_of, rabbitmq::transport_weakness>,
        .tls = configured::tls<config_of, net::tls_use_of>,
    };
    return broker;
}

}  // namespace outbox
