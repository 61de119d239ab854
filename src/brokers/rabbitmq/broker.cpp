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
constexpr std::array kLimits{
    RecordLimit{.what = "record", .setting = "max_message_size of the broker"},
    RecordLimit{.what = "headers and key", .setting = "frame_max of the connection"},
    RecordLimit{.what = "routing key", .most = 255},
    RecordLimit{.what = "id", .most = 255},
    RecordLimit{.what = "type", .most = 255},
    RecordLimit{.what = "name of a header", .most = 255},
    RecordLimit{.what = "content type", .most = 255},
};

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
        .limits = kLimits,
        .options = rabbitmq::kOptions,
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
