#include "brokers/kafka/transport.h"

#include <cstdint>

#include "core/ascii.h"
#include "core/transport.h"

namespace outbox::kafka {
namespace {

// In lower case, as librdkafka takes either.
std::string option(const KafkaConfig& config, const char* name, const char* fallback) {
    const auto found = config.options.find(name);
    return lower(found == config.options.end() ? fallback : found->second);
}

}  // namespace

std::string transport_weakness(const KafkaConfig& config) {
    if (!any_remote(config.bootstrap_servers)) return {};
    const std::string protocol = option(config, "security.protocol", "plaintext");
    if (protocol != "ssl" && protocol != "sasl_ssl") {
        return "is reached in clear (security.protocol=" + protocol +
               "): set kafka.security.protocol to ssl or sasl_ssl";
    }
    const std::string verify = option(config, "enable.ssl.certificate.verification", "true");
    if (verify == "false" || verify == "0" || verify == "f") {
        return "is reached without proof who it is: remove "
               "kafka.enable.ssl.certificate.verification";
    }
    if (option(config, "ssl.endpoint.identification.algorithm", "https") == "none") {
        return "is reached without proof who it is: remove "
               "kafka.ssl.endpoint.identification.algorithm";
    }
    return {};
}

TlsUse tls_use(const KafkaConfig& config) {
    constexpr std::uint16_t kKafkaPort = 9092;
    TlsUse use;
    const std::string protocol = option(config, "security.protocol", "plaintext");
    if (protocol != "ssl" && protocol != "sasl_ssl") return use;
    use.servers = hosts_of(config.bootstrap_servers, kKafkaPort);
    const auto file = [&](const char* name, std::vector<std::string>& files) {
        const auto found = config.options.find(name);
        if (found != config.options.end()) files.push_back(found->second);
    };
    file("ssl.certificate.location", use.own_files);
    file("ssl.ca.location", use.trusted_files);
    return use;
}

}  // namespace outbox::kafka
