#include "registry.h"

#include <pwd.h>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "backend/backends.h"
#include "consumer/operate.h"
#include "core/redact.h"
#include "core/url.h"

namespace outbox::app {
namespace {

// Two relays of one outbox give the same, others another one: by the address of the database, which
// costs no look at it.
std::string producer_of(const SourceConfig& source, const runtime::RouteConfig& route) {
    const auto url = parse_url(source.url);
    std::string name = url.ok() ? url->authority + url->path : std::string();
    name += '/' + source.table;
    for (const std::string& tenant : source.tenants) name += ',' + tenant;
    return name + '/' + route.name;
}

Destination destination_of(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    return {.url = route.to,
            .options = route.sink_options,
            .connect_timeout = config.source.connect_timeout,
            .producer = producer_of(config.source, route),
            .max_repeats = config.relay.max_unrecorded};
}

// A table of a route is for the broker whose name it bears.
Status check_options(const runtime::RouteConfig& route, const Broker& broker) {
    for (const auto& [option, value] : route.sink_options) {
        const std::string table = option.substr(0, option.find('.'));
        if (table == broker.name) continue;
        return {ErrorCode::kConfigInvalid, Advice::kStop,
                "[route." + table + "] is for a route to " + table + ":, and this one goes to " +
                    route.to.substr(0, route.to.find(':')) + ": (option " + option + ")"};
    }
    return {};
}

}  // namespace

void tell_secret_options() {
    for (const Broker* broker : brokers()) add_secret_options(broker->secrets);
}

Result<std::unique_ptr<spi::Source>> make_source(const SourceConfig& config) {
    const auto database = find_database(config.url);
    if (!database.ok()) return database.error();
    return (*database)->make_source(config);
}

std::string os_user() {
    constexpr std::size_t kBytes = 16'384;
    std::vector<char> buffer(kBytes);
    passwd entry{};
    passwd* found = nullptr;
    getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found);
    return found != nullptr ? found->pw_name : std::to_string(getuid());
}

Result<std::unique_ptr<consumer::Sql>> open_consumer_sql(const std::string& url,
                                                         int connect_timeout_s,
                                                         const consumer::Trust& trust) {
    const auto database = find_database(url);
    if (!database.ok()) return database.error();
    return (*database)->open_sql(url, std::chrono::seconds(connect_timeout_s), trust);
}

Result<std::unique_ptr<ConsumerOperations>> open_consumer_operations(const SourceConfig& config,
                                                                     const std::string& os_user) {
    auto sql = open_consumer_sql(config.url, static_cast<int>(config.connect_timeout.count()),
                                 {config.owners});
    if (!sql.ok()) return sql.error();
    return consumer::make_operations(std::move(*sql), os_user);
}

Result<std::unique_ptr<Operations>> open_operations(const SourceConfig& config,
                                                    const std::string& table) {
    const auto database = find_database(config.url);
    if (!database.ok()) return database.error();
    auto operations = (*database)->open_operations(config, table);
    if (operations.ok()) (*operations)->act_for(os_user());
    return operations;
}

std::string weakness_of_database(const std::string& url) {
    const auto database = find_database(url);
    return database.ok() && (*database)->weakness != nullptr ? (*database)->weakness(url) : "";
}

std::string weakness_of(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    return broker.ok() && (*broker)->weakness != nullptr
               ? (*broker)->weakness(destination_of(config, route))
               : "";
}

Result<std::unique_ptr<spi::Sink>> make_sink(const runtime::RelayConfig& config,
                                             const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    if (const Status fitting = check_options(route, **broker); !fitting.ok()) {
        return fitting.error();
    }
    return (*broker)->make(destination_of(config, route));
}

Status check_sink(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    const auto sink = make_sink(config, route);
    if (!sink.ok()) return sink.status();
    const Broker& broker = **find_broker(route.to);
    if (broker.look == nullptr) return (*sink)->check();
    return broker.look(destination_of(config, route));
}

Result<std::string> describe_destination(const runtime::RelayConfig& config,
                                         const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    if ((*broker)->describe == nullptr) return std::string();
    return (*broker)->describe(destination_of(config, route));
}

}  // namespace outbox::app
