#include "registry.h"

#include <pwd.h>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "backend/backends.h"
#include "consumer/operate.h"
#include "core/redact.h"

namespace outbox::app {
namespace {

Destination destination_of(const runtime::RouteConfig& route, std::chrono::seconds timeout) {
    return {route.to, route.sink_options, timeout};
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

std::string weakness_of(const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    return broker.ok() && (*broker)->weakness != nullptr
               ? (*broker)->weakness(destination_of(route, {}))
               : "";
}

Result<std::unique_ptr<spi::Sink>> make_sink(const runtime::RouteConfig& route,
                                             int connect_timeout_s) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    if (const Status fitting = check_options(route, **broker); !fitting.ok()) {
        return fitting.error();
    }
    return (*broker)->make(destination_of(route, std::chrono::seconds(connect_timeout_s)));
}

Status check_sink(const runtime::RouteConfig& route, int connect_timeout_s) {
    const auto sink = make_sink(route, connect_timeout_s);
    if (!sink.ok()) return sink.status();
    const Broker& broker = **find_broker(route.to);
    if (broker.look == nullptr) return (*sink)->check();
    return broker.look(destination_of(route, std::chrono::seconds(connect_timeout_s)));
}

}  // namespace outbox::app
