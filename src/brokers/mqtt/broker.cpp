#include "backend/broker.h"

#include <array>

#include "backend/configured.h"
#include "brokers/mqtt/config.h"
#include "brokers/mqtt/message.h"
#include "brokers/mqtt/sink.h"
#include "brokers/mqtt/topic.h"
#include "net/certificate_dates.h"
#include "net/certificates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"mqtt", "mqtts"};
constexpr std::array kLimits{
    RecordLimit{.what = "record", .setting = "maximum packet size of the broker"},
    RecordLimit{.what = "name of a header", .most = 65'535},
    RecordLimit{.what = "value of a header", .most = 65'535},
    RecordLimit{.what = "key", .most = 65'535},
    RecordLimit{.what = "content type", .most = 65'535},
};

Result<mqtt::MqttConfig> config_of(const Destination& destination) {
    auto config = mqtt::make_config(destination.url, destination.options);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    return config;
}

}  // namespace

const Broker& mqtt_broker() {
    static const Broker broker{
        .name = "mqtt",
        .schemes = kSchemes,
        .urls = "mqtt(s)://user:password@host:port",
        .capabilities = &mqtt::kCapabilities,
        .limits = kLimits,
        .options = mqtt::kOptions,
        .example_option = "retain = true",
        .check_topic = mqtt::check_topic,
        .topic_token = mqtt::encode_level,
        .why_not_header = mqtt::why_not_header,
        .make = configured::make<config_of, mqtt::MqttSink>,
        .check_settings = configured::check<config_of, net::check_files>,
        .weakness = configured::weakness<config_of, mqtt::transport_weakness>,
        .tls = configured::tls<config_of, net::tls_use_of>,
    };
    return broker;
}

}  // namespace outbox
