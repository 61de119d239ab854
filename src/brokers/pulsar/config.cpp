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

Status set_name(std::string_view option, const std::string& value, std::string& out) {
    out = value;
    if (is_name(value)) return {};
    return invalid("pulsar." + std::string(option) + " is '" + value +
                   "'; tenants and namespaces have letters, digits and -=:._");
}

Status add_option(std::string_view name, const std::string& value, PulsarConfig& config) {
    if (name == "tenant") return set_name(name, value, config.tenant);
    if (name == "namespace") return set_name(name, value, config.name_space);
    if (name == "mixed_batches") {
        return net::read_flag(kProduct, name, value, config.mixed_batches);
    }
    if (name == "token_file") {
        config.password_file = value;
        return {};
    }
    if (name != "password_file") {
        const auto known = net::add_access_option(kProduct, name, value, config);
        if (!known.ok()) return known.error();
        if (*known) return {};
    }
    return invalid("Pulsar has no option '" + std::string(name) +
                   "'; there are tenant, namespace, mixed_batches, token_file, ca_file, "
                   "cert_file, key_file and verify");
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
    return net::read_config<PulsarConfig>(kProduct, url, options, add_option, check);
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
