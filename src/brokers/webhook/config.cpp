#include "brokers/webhook/config.h"

#include <utility>

#include "core/url.h"
#include "mailbox/config.h"

namespace outbox::webhook {
namespace {

constexpr std::string_view kUrlPrefix = "webhook+";

constexpr std::size_t stated(std::string_view name) {
    std::size_t value = 0;
    for (const BackendOption& option : kOptions) {
        if (option.name != name) continue;
        for (const char digit : option.fallback)
            value = value * 10 + static_cast<std::size_t>(digit - '0');
    }
    return value;
}
// The dispatcher's own, without a configuration.
static_assert(stated("max_connections") == DispatchOptions().max_connections);
static_assert(stated("max_per_endpoint") == DispatchOptions().max_per_endpoint);

ErrorInfo invalid(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

void take_options(const BackendValues& values, RouteConfig& config) {
    config.store.owners = values.list("owner");
    config.key_file = values.text("key_file");
    for (const std::string& some : values.list("allow")) {
        config.allow += (config.allow.empty() ? "" : ",") + some;
    }
    config.allow_http = values.flag("allow_http");
    config.ca_file = values.text("ca_file");
    config.timeout = std::chrono::milliseconds(values.integer("timeout_ms"));
    config.connect_timeout = std::chrono::milliseconds(values.integer("connect_timeout_ms"));
    config.dispatch.max_connections = values.size("max_connections");
    config.dispatch.max_per_endpoint = values.size("max_per_endpoint");
}

}  // namespace

Result<std::string> database_of(std::string_view url) {
    if (!url.starts_with(kUrlPrefix)) {
        return invalid("'" + redact(url) + "' names no endpoints of webhooks");
    }
    return mailbox::database_url(url, kUrlPrefix, kOptions);
}

Result<RouteConfig> make_config(std::string_view url,
                                const std::map<std::string, std::string>& options,
                                std::chrono::seconds connect_timeout) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    auto target = database_of(url);
    if (!target.ok()) return target.error();
    RouteConfig config;
    config.store.target = *std::move(target);
    config.store.connect_timeout_s = static_cast<int>(connect_timeout.count());
    // The rest of the query is the database's.
    const auto values = read_backend_options({"a route to webhooks", "webhook.", kOptions},
                                             mailbox::own_query(*parsed, kOptions), options);
    if (!values.ok()) return values.error();
    take_options(*values, config);
    return config;
}

}  // namespace outbox::webhook
