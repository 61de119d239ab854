#include "backend/broker.h"

#include <array>

#include "aws/look.h"
#include "brokers/sqs/config.h"
#include "brokers/sqs/queue_name.h"
#include "brokers/sqs/sink.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"sqs", "sqs+http"};

Result<sqs::SqsConfig> config_of(const Destination& destination) {
    auto config = sqs::make_config(destination.url, destination.options);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    if (config->producer.empty()) config->producer = destination.producer;
    return config;
}

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    const auto config = config_of(destination);
    if (!config.ok()) return config.error();
    return std::unique_ptr<spi::Sink>(new sqs::SqsSink(*config));
}

Result<std::string> describe(const Destination& destination) {
    const auto config = config_of(destination);
    if (!config.ok()) return config.error();
    return aws::describe_topics(*config);
}

Status check_settings(const Destination& destination) {
    const auto config = config_of(destination);
    return config.ok() ? net::check_files(*config) : config.status();
}

std::string weakness(const Destination& destination) {
    const auto config = config_of(destination);
    return config.ok() ? aws::transport_weakness(*config) : "";
}

}  // namespace

const Broker& sqs_broker() {
    static const Broker broker{
        .name = "sqs",
        .schemes = kSchemes,
        .urls = "sqs://sqs.REGION.amazonaws.com (sqs+http://host:port in clear)",
        .capabilities = &sqs::kCapabilities,
        .drops_repeats = "for 5 min, by FIFO queues alone; a standard queue keeps no order either",
        .limits = "1 MiB, attributes included; MaximumMessageSize of the queue",
        .options = aws::kOptions,
        .example_option = "region = \"eu-central-1\"",
        .check_topic = sqs::check_queue,
        .make = make,
        .check_settings = check_settings,
        .describe = describe,
        .weakness = weakness,
    };
    return broker;
}

}  // namespace outbox
