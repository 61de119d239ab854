#include "backend/broker.h"

#include <array>

#include "backend/configured.h"
#include "brokers/pulsar/config.h"
#include "brokers/pulsar/sink.h"
#include "brokers/pulsar/topic.h"
#include "net/certificate_dates.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"pulsar", "pulsar+ssl"};
constexpr std::array kLimits{
    RecordLimit{.what = "record with its headers", .setting = "maxMessageSize of the brokers"},
    RecordLimit{.what = "record with its headers", .setting = "max-message-size of the topic"},
};

Result<pulsar::PulsarConfig> config_of(const Destination& destination) {
    auto config = pulsar::make_config(destination.url, destination.options);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    config->producer = destination.producer;
    return config;
}

}  // namespace

const Broker& pulsar_broker() {
    static const Broker broker{
        .name = "pulsar",
        .schemes = kSchemes,
        .urls = "pulsar(+ssl)://:TOKEN@host:port",
        .capabilities = &pulsar::kCapabilities,
        .limits = kLimits,
        .options = pulsar::kOptions,
        .example_option = "namespace = \"orders\"",
        .check_topic = pulsar::check_topic,
        .topic_token = pulsar::encode_part,
        .make = configured::make<config_of, pulsar::PulsarSink>,
        .check_settings = configured::check<config_of, net::check_files>,
        .weakness = configured::weakness<config_of, pulsar::transport_weakness>,
        .tls = configured::tls<config_of, net::tls_use_of>,
    };
    return broker;
}

}  // namespace outbox
