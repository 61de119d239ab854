#include "backend/broker.h"

#include <array>
#include <string>
#include <unistd.h>
#include <vector>

#include "backend/backends.h"
#include "brokers/webhook/config.h"
#include "brokers/webhook/sink.h"
#include "core/system_clock.h"
#include "webhook/endpoint.h"
#include "webhook/http_sender.h"
#include "webhook/request.h"
#include "webhook/unreachable.h"

namespace outbox {
namespace {

using webhook::RouteConfig;

constexpr std::string_view kPrefix = "webhook+";
constexpr std::array kLimits{
    RecordLimit{.what = "deliveries that wait for an endpoint",
                .most = webhook::kMaxQueuePerEndpoint,
                .unit = "deliveries"},
    RecordLimit{
        .what = "endpoints of a database", .most = webhook::kMaxEndpoints, .unit = "endpoints"},
};
// Of an endpoint, one of whose deliveries of a key is under way at a time.
const spi::SinkCapabilities kTold{.name = "webhook"};

const core::Clock& clock() {
    static const core::SystemClock clock;
    return clock;
}

Result<RouteConfig> config_of(const Destination& destination) {
    return webhook::make_config(destination.url, destination.options, destination.connect_timeout);
}

Result<const Database*> database_of(const RouteConfig& config) {
    auto database = find_database(config.store.target);
    if (!database.ok()) return database;
    if ((*database)->open_webhook_inlet != nullptr) return database;
    return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                     std::string((*database)->name) + " holds no webhooks"};
}

std::string owner() {
    constexpr std::size_t kMaxHostBytes = 256;
    std::string host(kMaxHostBytes, '\0');
    if (gethostname(host.data(), host.size() - 1) != 0) host = "unknown";
    return host.substr(0, host.find('\0')) + ":" + std::to_string(getpid());
}

webhook::SenderConfig sending(const RouteConfig& config) {
    webhook::SenderConfig out{.key_file = config.key_file};
    out.allow = config.allow;
    out.allow_http = config.allow_http;
    out.ca_file = config.ca_file;
    out.timeout = config.timeout;
    out.connect_timeout = config.connect_timeout;
    out.max_connections = config.dispatch.max_connections;
    return out;
}

Result<std::unique_ptr<spi::Sink>> make(const Destination& destination) {
    auto config = config_of(destination);
    if (!config.ok()) return config.error();
    const auto database = database_of(*config);
    if (!database.ok()) return database.error();
    auto inlet = (*database)->open_webhook_inlet(config->store);
    if (!inlet.ok()) return inlet.error();
    auto outlet = (*database)->open_webhook_outlet(config->store);
    if (!outlet.ok()) return outlet.error();
    auto sender = webhook::make_http_sender(sending(*config));
    if (!sender.ok()) return sender.error();
    config->dispatch.owner = owner();
    return webhook::make_webhook_sink({*std::move(inlet), *std::move(outlet), *std::move(sender),
                                       clock(), std::move(config->dispatch)});
}

Result<std::vector<webhook::Endpoint>> endpoints_of(const RouteConfig& config) {
    const auto database = database_of(config);
    if (!database.ok()) return database.error();
    const auto inlet = (*database)->open_webhook_inlet(config.store);
    if (!inlet.ok()) return inlet.status();
    return (*inlet)->look();
}

Status look(const Destination& destination) {
    const auto config = config_of(destination);
    if (!config.ok()) return config.error();
    const auto endpoints = endpoints_of(*config);
    return endpoints.ok() ? webhook::check_sender(sending(*config), *endpoints)
                          : endpoints.status();
}

Result<std::vector<std::string>> warnings(const Destination& destination) {
    const auto config = config_of(destination);
    if (!config.ok()) return config.error();
    const auto endpoints = endpoints_of(*config);
    if (!endpoints.ok()) return endpoints.status();
    return webhook::unreachable_endpoints(*endpoints, {.allow = config->allow,
                                                       .allow_http = config->allow_http,
                                                       .timeout = config->connect_timeout});
}

std::string weakness(const Destination& destination) {
    const auto config = config_of(destination);
    if (!config.ok()) return {};
    std::string found = weakness_of_database(config->store.target);
    if (config->allow_http) {
        found += (found.empty() ? "" : "; ") +
                 std::string("webhooks may go in clear (allow_http): endpoints are to be https");
    }
    return found;
}

TlsUse tls(const Destination& destination) {
    const auto config = config_of(destination);
    return config.ok() ? tls_of_database(config->store.target) : TlsUse();
}

}  // namespace

const Broker& webhook_broker() {
    static const UrlsOverDatabases urls(
        kPrefix, [](const Database& database) { return database.open_webhook_inlet != nullptr; });
    static const Broker broker{
        .name = "webhook",
        .schemes = urls.schemes(),
        .urls = urls.help(),
        .capabilities = &webhook::kCapabilities,
        .told = &kTold,
        .drops_repeats = {.kind = RepeatsDropped::Kind::kWhileKept,
                          .note = "until it is delivered; receivers drop repeats by `webhook-id`"},
        .limits = kLimits,
        .options = webhook::kOptions,
        .example_option = "key_file = \"/etc/outbox/webhook.key\"",
        .any_topic = true,
        .why_not_header = webhook::why_not_header,
        .make = make,
        .look = look,
        .warnings = warnings,
        .weakness = weakness,
        .tls = tls,
    };
    return broker;
}

}  // namespace outbox
