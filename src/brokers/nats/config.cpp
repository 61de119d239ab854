#include "brokers/nats/config.h"

#include "brokers/nats/subject.h"
#include "core/url.h"

namespace outbox::nats {
namespace {

constexpr net::Product kProduct{"NATS", "nats.", "nats", "tls", "nats://host:4222", 4222, 4222};

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

// Both become a token of subjects.
Status check_name(std::string_view option, const std::string& value) {
    if (!value.empty() && encode_token(value) == value && value.find('/') == std::string::npos) {
        return {};
    }
    return invalid("nats." + std::string(option) + " is '" + value +
                   "'; a name of NATS has no white space and none of . * > / $ %");
}

// True: it was an option of both sides.
Result<bool> add_common_option(std::string_view name, const std::string& value,
                               NatsConfig& config) {
    if (name == "stream") {
        config.stream = value;
        if (Status valid = check_name(name, value); !valid.ok()) return valid.error();
    } else if (name == "creds_file") {
        config.creds_file = value;
    } else if (name == "inbox_prefix") {
        config.inbox_prefix = value;
        if (!check_subject(value).ok()) {
            return invalid("nats.inbox_prefix is '" + value +
                           "'; it is the beginning of a subject, as _INBOX");
        }
    } else {
        return net::add_access_option(kProduct, name, value, config);
    }
    return true;
}

Status add_option(std::string_view name, const std::string& value, NatsConfig& config) {
    const auto known = add_common_option(name, value, config);
    if (!known.ok()) return known.error();
    if (*known) return {};
    if (name == "dedup") return net::read_flag(kProduct, name, value, config.dedup);
    if (name == "producer") {
        config.producer = value;
        if (!value.empty()) return {};
        return invalid("nats.producer is a name, and empty");
    }
    return invalid("NATS has no option '" + std::string(name) +
                   "'; there are stream, dedup, producer, inbox_prefix, creds_file, ca_file, "
                   "cert_file, key_file, "
                   "verify and password_file");
}

Status add_consumer_option(std::string_view name, const std::string& value, NatsConfig& config) {
    const auto known = add_common_option(name, value, config);
    if (!known.ok()) return known.error();
    if (*known) return {};
    if (name == "consumer") {
        config.consumer = value;
        return check_name(name, value);
    }
    return invalid("a consumer of NATS has no option '" + std::string(name) +
                   "'; there are stream, consumer, inbox_prefix, creds_file, ca_file, cert_file, "
                   "key_file, verify and password_file");
}

Status check(const Url& url, const NatsConfig& config) {
    if (!url.path.empty() && url.path != "/") {
        return invalid("the NATS URL has the path '" + url.path +
                       "'; there is none: nats://host:4222");
    }
    if (!config.creds_file.empty() && (!config.user.empty() || !config.password_file.empty())) {
        return invalid("there are a user and a creds_file; leave one of them out");
    }
    if (!config.user.empty() && config.password.empty() && config.password_file.empty()) {
        return invalid(
            "the NATS URL has a user and no password; a token stands in the password's place: "
            "nats://:TOKEN@host");
    }
    return {};
}

}  // namespace

Result<NatsConfig> make_config(std::string_view url,
                               const std::map<std::string, std::string>& options) {
    return net::read_config<NatsConfig>(kProduct, url, options, add_option, check);
}

Result<NatsConfig> make_consumer_config(std::string_view url) {
    auto config = net::read_config<NatsConfig>(kProduct, url, {}, add_consumer_option, check);
    if (config.ok() && (config->stream.empty() || config->consumer.empty())) {
        return invalid(
            "the NATS URL names no stream or no consumer; use "
            "nats://host:4222?stream=NAME&consumer=NAME");
    }
    return config;
}

std::string name_of_host(const net::Host& host) {
    return net::name_of(kProduct.name, host);
}

std::string transport_weakness(const NatsConfig& config) {
    return net::transport_weakness(kProduct, config);
}

}  // namespace outbox::nats
