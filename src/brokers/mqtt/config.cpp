#include "brokers/mqtt/config.h"

#include "core/url.h"

namespace outbox::mqtt {
namespace {

constexpr net::Product kProduct{"MQTT broker",      "mqtt.", "mqtt", "mqtts",
                                "mqtt://host:1883", 1883,    8883};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status take_options(const BackendValues& values, MqttConfig& config) {
    net::take_access(values, config);
    config.retain = values.flag("retain");
    config.require_subscriber = values.flag("require_subscriber");
    return {};
}

Status check(const Url& url, const MqttConfig& /*config*/) {
    if (url.path.empty() || url.path == "/") return {};
    return invalid("the MQTT URL has the path '" + url.path +
                   "'; topics come from the events: mqtt://host:1883");
}

}  // namespace

Result<MqttConfig> make_config(std::string_view url,
                               const std::map<std::string, std::string>& options) {
    return net::read_config<MqttConfig>(kProduct, {"MQTT", kProduct.prefix, kOptions}, url, options,
                                        take_options, check);
}

std::string name_of_host(const net::Host& host) {
    return net::name_of(kProduct.name, host);
}

std::string transport_weakness(const MqttConfig& config) {
    return net::transport_weakness(kProduct, config);
}

}  // namespace outbox::mqtt
