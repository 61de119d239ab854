#include "backend/broker.h"

#include <array>
#include <optional>

#include "backend/configured.h"
#include "brokers/nats/config.h"
#include "brokers/nats/login.h"
#include "brokers/nats/look.h"
#include "brokers/nats/message.h"
#include "brokers/nats/sink.h"
#include "brokers/nats/subject.h"
#include "net/certificate_dates.h"

namespace outbox {
namespace {

constexpr std::array<std::string_view, 2> kSchemes{"nats", "tls"};
constexpr std::array kLimits{
    RecordLimit{.what = "record with its headers", .setting = "max_payload of the server"},
    RecordLimit{.what = "record with its headers", .setting = "max_msg_size of the stream"},
};

Result<nats::NatsConfig> config_of(const Destination& destination) {
    auto config = nats::make_config(destination.url, destination.options);
    if (!config.ok()) return config;
    config->connect_timeout = destination.connect_timeout;
    if (config->producer.empty()) config->producer = destination.producer;
    return config;
}

// A server introduces itself by a line first.
std::optional<bool> begins_tls(std::string_view said) {
    return said.find('\n') == std::string_view::npos ? std::nullopt : std::optional(true);
}

TlsUse tls_use_of(const net::ServerAccess& access) {
    TlsUse use = net::tls_use_of(access);
    use.prelude = {.begins = begins_tls};
    return use;
}

}  // namespace

const Broker& nats_broker() {
    static const Broker broker{
        .name = "nats",
        .schemes = kSchemes,
        .urls = "nats://user:password@host:port (tls:// with TLS)",
        .capabilities = &nats::kCapabilities,
        .drops_repeats = {.kind = RepeatsDropped::Kind::kForTime,
                          .amount = 120,
                          .setting = "duplicate_window of the stream"},
        .limits = kLimits,
        .options = nats::kOptions,
        .example_option = "stream = \"ORDERS\"",
        .check_topic = nats::check_subject,
        .topic_token = nats::encode_token,
        .why_not_header = nats::why_not_header,
        .make = configured::make<config_of, nats::NatsSink>,
        .check_settings = configured::check<config_of, nats::check_files>,
        .describe = configured::describe<config_of, nats::describe_windows>,
        .weakness = configured::weakness<config_of, nats::transport_weakness>,
        .tls = configured::tls<config_of, tls_use_of>,
    };
    return broker;
}

}  // namespace outbox
