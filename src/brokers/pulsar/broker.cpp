#include "backend/broker.h"

#include <array>

#include "brokers/pulsar/config.h"
#include "brokers/pulsar/sink.h"
#include "brokers/pulsar/topic.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"pulsar", "pulsar+ssl"};

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    auto config = pulsar::make_config(destination.url, destination.options);
    if (!config.ok()) return config.error();
    config->connect_timeout = destination.connect_timeout;
    config->producer = destination.producer;
    return std::unique_ptr<spi::Sink>(new pulsar::PulsarSink(*config));
}

Status check_settings(const Destination& destination) {
    const auto config = pulsar::make_config(destination.url, destination.options);
    return config.ok() ? net::check_files(*config) : config.status();
}

std::string weakness(const Destination& destination) {
    const auto config = pulsar::make_config(destination.url, destination.options);
    return config.ok() ? pulsar::transport_weakness(*config) : "";
}

}  // namespace

const Broker& pulsar_broker() {
    static const Broker broker{
        .name = "pulsar",
        .schemes = kSchemes,
        .urls = "pulsar(+ssl)://:TOKEN@host:port",
        .capabilities = &pulsar::kCapabilities,
        .limits = "maxMessageSize of the brokers, headers included; max-message-size of the topic",
        .options =
            "`tenant`, `namespace`, `mixed_batches`, `token_file`, `ca_file`, `cert_file`, "
            "`key_file`, `verify`, for example `namespace = \"orders\"`",
        .example_option = "namespace = \"orders\"",
        .check_topic = pulsar::check_topic,
        .topic_token = pulsar::encode_part,
        .make = make,
        .check_settings = check_settings,
        .weakness = weakness,
    };
    return broker;
}

}  // namespace outbox
