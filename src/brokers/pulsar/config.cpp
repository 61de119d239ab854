#include "brokers/pulsar/config.h"

#include "brokers/pulsar/topic.h"
#include "core/url.h"

namespace outbox::pulsar {
namespace {

constexpr net::Product kProduct{"Pulsar", "pulsar.", "pulsar", "pulsar+ssl", "pulsar://host:6650",
                                6650,     6651};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

Status check_name(std::string_view option, const std::string& value) {
    if (is_name(value)) return {};
    return invalid("pulsar." + std::string(option) + " is '" + value +
                   "'; tenants and namespaces have letters, digits and -=:._");
}

Status take_options(const BackendValues& values, PulsarConfig& config) {
    net::take_tls(values, config);
    config.password_file = values.text("token_file");
    config.mixed_batches = values.flag("mixed_batches");
    config.tenant = values.text("tenant");
    config.name_space = values.text("namespace");
    Status valid = check_name("tenant", config.tenant);
    return valid.ok() ? check_name("namespace", config.name_space) : valid;
}

Status check(const Url& url, const PulsarConfig& config) {
    if (!url.path.empty() && url.path != "/") {
        return invalid("the Pulsar URL has the path '" + url.path +
                       "'; tenant and namespace are options: "
                       "pulsar://host:6650?tenant=NAME&namespace=NAME");
    }
    if (!config.user.empty()) {
        return invalid(
            "the Pulsar URL has a user; a token stands in the password's place: "
            "pulsar://:TOKEN@host");
    }
    return {};
}

}  // namespace

Result<PulsarConfig> make_config(std::string_view url,
                                 const std::map<std::string, std::string>& options) {
    return net::read_config<PulsarConfig>(kProduct, net::scope_of(kProduct, kOptions), url, options,
                                          take_options, check);
}

std::optional<BrokerAddress> read_broker_url(std::string_view url) {
    const auto parsed = parse_url(url);
    net::ServerAccess access;
    if (!parsed.ok() || !net::add_url(kProduct, *parsed, access).ok()) return std::nullopt;
    return BrokerAddress{access.hosts.front(), access.tls};
}

std::string name_of_host(const net::Host& host) {
    return net::name_of(kProduct.name, host);
}

std::string transport_weakness(const PulsarConfig& config) {
    return net::transport_weakness(kProduct, config);
}

}  // namespace outbox::pulsar
