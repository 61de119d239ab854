#include "backend/broker.h"

#include <array>
#include <utility>

#include "brokers/kafka/config.h"
#include "brokers/kafka/look.h"
#include "brokers/kafka/sink.h"
#include "brokers/kafka/topics.h"
#include "brokers/kafka/transport.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 1> kSchemes{"kafka"};
constexpr std::array kLimits{
    RecordLimit{.what = "record", .setting = "max.message.bytes of the topic"},
};

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    auto config = kafka::make_config(destination.url, destination.options);
    if (!config.ok()) return config.error();
    config->connect_timeout = destination.connect_timeout;
    auto sink = kafka::KafkaSink::open(std::move(*config));
    if (!sink.ok()) return sink.error();
    return std::unique_ptr<spi::Sink>(std::move(*sink));
}

Result<std::vector<TopicReport>> topics(const Destination& destination,
                                        std::span<const std::string> names) {
    auto config = kafka::make_config(destination.url, destination.options);
    if (!config.ok()) return config.error();
    config->connect_timeout = destination.connect_timeout;
    return kafka::look_at_topics(*config, names);
}

std::string weakness(const Destination& destination) {
    const auto config = kafka::make_config(destination.url, destination.options);
    return config.ok() ? kafka::transport_weakness(*config) : "";
}

TlsUse tls(const Destination& destination) {
    const auto config = kafka::make_config(destination.url, destination.options);
    return config.ok() ? kafka::tls_use(*config) : TlsUse();
}

}  // namespace

const Broker& kafka_broker() {
    static const Broker broker{
        .name = "kafka",
        .schemes = kSchemes,
        .urls = "kafka://host:port",
        .capabilities = &kafka::kCapabilities,
        .limits = kLimits,
        .other_options = "those of librdkafka, by their names there",
        .example_option = "compression.type = \"lz4\"",
        .secrets = kafka::secret_options(),
        .check_topic = kafka::check_topic_name,
        .make = make,
        .topics = topics,
        .weakness = weakness,
        .tls = tls,
    };
    return broker;
}

}  // namespace outbox
