#include "brokers/mqtt/config.h"

#include "core/url.h"

namespace outbox::mqtt {
namespace {

constexpr net::Product kProduct{"MQTT broker",      "mqtt.", "mqtt", "mqtts",
                                "mqtt://host:1883", 1883,    8883};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status add_option(std::string_view name, const std::string& value, MqttConfig& config) {
    const auto known = net::add_access_option(kProduct, name, value, config);
    if (!known.ok()) return known.error();
    if (*known) return {};
    if (name == "retain") return net::read_flag(kProduct, name, value, config.retain);
    if (name == "require_subscriber") {
        return net::read_flag(kProduct, name, value, config.require_subscriber);
    }
    return invalid("MQTT has no option '" + std::string(name) +
                   "'; there are retain, require_subscriber, ca_file, cert_file, key_file, verify "
                   "and password_file");
}

Status check(const Url& url, const MqttConfig& /*config*/) {
    if (url.path.empty() || url.path == "/") return {};
    return invalid("the MQTT URL has the path '" + url.path +
                   "'; topics come from the events: mqtt://host:1883");
}

}  // namespace

Result<MqttConfig> make_config(std::string_view url,
                               const std::map<std::string, std::string>& options) {
    return net::read_config<MqttConfig>(kProduct, url, options, add_option, check);
}

std::string name_of_host(const net::Host& host) {
    return net::name_of(kProduct.name, host);
}

std::string transport_weakness(const MqttConfig& config) {
    return net::transport_weakness(kProduct, config);
}

}  // namespace outbox::mqtt
