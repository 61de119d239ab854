#include "backend/broker.h"

#include <array>

#include "aws/look.h"
#include "backend/configured.h"
#include "brokers/sns/config.h"
#include "brokers/sns/sink.h"
#include "brokers/sns/topic_name.h"
#include "net/certificate_dates.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"sns", "sns+http"};
constexpr std::array kLimits{
    RecordLimit{.what = "record with its attributes",
                .most = 1'048'576,
                .setting = "MaximumMessageSize of the topic"},
};

Result<sns::SnsConfig> config_of(const Destination& destination) {
    auto config = sns::make_config(destination.url, destination.options);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    if (config->producer.empty()) config->producer = destination.producer;
    return config;
}

}  // namespace

const Broker& sns_broker() {
    static const Broker broker{
        .name = "sns",
        .schemes = kSchemes,
        .urls = "sns://sns.REGION.amazonaws.com (sns+http://host:port in clear)",
        .capabilities = &sns::kCapabilities,
        .drops_repeats = {.kind = RepeatsDropped::Kind::kForTime,
                          .amount = 300,
                          .note = "by FIFO topics alone"},
        .unordered = "standard topics",
        .limits = kLimits,
        .options = aws::kOptions,
        .example_option = "region = \"eu-central-1\"",
        .check_topic = sns::check_topic,
        .make = configured::make<config_of, sns::SnsSink>,
        .check_settings = configured::check<config_of, net::check_files>,
        .describe = configured::describe<config_of, aws::describe_topics>,
        .weakness = configured::weakness<config_of, aws::transport_weakness>,
        .tls = configured::tls<config_of, net::tls_use_of>,
    };
    return broker;
}

}  // namespace outbox
