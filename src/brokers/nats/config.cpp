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

// Of both sides.
Status take_options(const BackendValues& values, NatsConfig& config) {
    net::take_access(values, config);
    config.creds_file = values.text("creds_file");
    config.stream = values.text("stream");
    config.inbox_prefix = values.text("inbox_prefix");
    if (!check_subject(config.inbox_prefix).ok()) {
        return invalid("nats.inbox_prefix is '" + config.inbox_prefix +
                       "'; it is the beginning of a subject, as _INBOX");
    }
    return values.given("stream") ? check_name("stream", config.stream) : Status();
}

Status take_sink_options(const BackendValues& values, NatsConfig& config) {
    config.dedup = values.flag("dedup");
    config.producer = values.text("producer");
    if (values.given("producer") && config.producer.empty()) {
        return invalid("nats.producer is a name, and empty");
    }
    return take_options(values, config);
}

Status take_consumer_options(const BackendValues& values, NatsConfig& config) {
    config.consumer = values.text("consumer");
    if (values.given("consumer")) {
        if (Status valid = check_name("consumer", config.consumer); !valid.ok()) return valid;
    }
    return take_options(values, config);
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
    return net::read_config<NatsConfig>(kProduct, net::scope_of(kProduct, kOptions), url, options,
                                        take_sink_options, check);
}

Result<NatsConfig> make_consumer_config(std::string_view url) {
    auto config = net::read_config<NatsConfig>(
        kProduct, {"a consumer of NATS", kProduct.prefix, kConsumerOptions}, url, {},
        take_consumer_options, check);
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
