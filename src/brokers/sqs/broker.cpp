#include "backend/broker.h"

#include <array>

#include "aws/look.h"
#include "backend/configured.h"
#include "brokers/sqs/config.h"
#include "brokers/sqs/queue_name.h"
#include "brokers/sqs/sink.h"
#include "net/certificate_dates.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"sqs", "sqs+http"};
constexpr std::array kLimits{
    RecordLimit{.what = "record with its attributes",
                .most = 1'048'576,
                .setting = "MaximumMessageSize of the queue"},
    RecordLimit{.what = "name of the queue", .most = 80},
};

Result<sqs::SqsConfig> config_of(const Destination& destination) {
    auto config = sqs::make_config(destination.url, destination.options);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    if (config->producer.empty()) config->producer = destination.producer;
    return config;
}

}  // namespace

const Broker& sqs_broker() {
    static const Broker broker{
        .name = "sqs",
        .schemes = kSchemes,
        .urls = "sqs://sqs.REGION.amazonaws.com (sqs+http://host:port in clear)",
        .capabilities = &sqs::kCapabilities,
        .drops_repeats = {.kind = RepeatsDropped::Kind::kForTime,
                          .amount = 300,
                          .note = "by FIFO queues alone"},
        .unordered = "standard queues",
        .limits = kLimits,
        .options = aws::kOptions,
        .example_option = "region = \"eu-central-1\"",
        .check_topic = sqs::check_queue,
        .make = configured::make<config_of, sqs::SqsSink>,
        .check_settings = configured::check<config_of, net::check_files>,
        .describe = configured::describe<config_of, aws::describe_topics>,
        .weakness = configured::weakness<config_of, aws::transport_weakness>,
        .tls = configured::tls<config_of, net::tls_use_of>,
    };
    return broker;
}

}  // namespace outbox
