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

}  // namespace

Result<MqttConfig> make_config(std::string_view url,
                               const std::map<std::string, std::string>& options) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    MqttConfig config;
    Status read = net::add_url(kProduct, *parsed, config);
    if (read.ok() && !parsed->path.empty() && parsed->path != "/") {
        read = invalid("the MQTT URL has the path '" + parsed->path +
                       "'; topics come from the events: mqtt://host:1883");
    }
    if (read.ok()) {
        read = net::read_options(kProduct, *parsed, options,
                                 [&](std::string_view name, const std::string& value) {
                                     return add_option(name, value, config);
                                 });
    }
    if (read.ok()) read = net::check_access(kProduct, *parsed, config);
    if (!read.ok()) return read.error();
    return config;
}

std::string name_of_host(const net::Host& host) {
    return net::name_of(kProduct.name, host);
}

std::string transport_weakness(const MqttConfig& config) {
    return net::transport_weakness(kProduct, config);
}

}  // namespace outbox::mqtt
