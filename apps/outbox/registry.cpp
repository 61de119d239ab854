#include "registry.h"

#include <pwd.h>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "backend/backends.h"
#include "claim/file_store.h"
#include "claim/upload.h"
#include "codec/claim_encoder.h"
#include "codec/formats.h"
#include "consumer/operate.h"
#include "core/check.h"
#include "core/redact.h"
#include "prepare/prepared_sink.h"

#ifdef OUTBOX_WITH_HTTP
#include "claim/s3_store.h"
#endif

namespace outbox::app {
namespace {

Destination destination_of(const runtime::RelayConfig& config, const runtime::RouteConfig& route,
                           std::string_view producer = kNoProducer) {
    return {.url = route.to,
            .options = route.sink_options,
            .connect_timeout = config.source.connect_timeout,
            .producer = std::string(producer),
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

// So is one for the format whose name it bears.
Status check_format_options(const runtime::RouteConfig& route, const codec::Format& format) {
    for (const auto& [option, value] : route.format_options) {
        const std::string table = option.substr(0, option.find('.'));
        if (table == format.table) continue;
        return {ErrorCode::kConfigInvalid, Advice::kStop,
                "[route." + table + "] is for a route of the format " + table +
                    ", and this one has format = \"" + route.format + "\" (option " + option + ")"};
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

std::string weakness_of_store(const std::string& url) {
#ifdef OUTBOX_WITH_HTTP
    if (url.starts_with("s3:")) return claim::s3_weakness(url);
#endif
    return url.empty() || url.starts_with("file:") ? std::string() : weakness_of_database(url);
}

std::string weakness_of(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    return broker.ok() && (*broker)->weakness != nullptr
               ? (*broker)->weakness(destination_of(config, route))
               : "";
}

Result<std::unique_ptr<spi::Sink>> make_sink(const runtime::RelayConfig& config,
                                             const runtime::RouteConfig& route,
                                             std::string_view producer) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    if (const Status fitting = check_options(route, **broker); !fitting.ok()) {
        return fitting.error();
    }
    auto sink = (*broker)->make(destination_of(config, route, producer));
    if (!sink.ok() || route.claim_check.empty()) return sink;
    if (Status usable = open_store(route.claim_check).status(); !usable.ok()) return usable;
    return std::unique_ptr<spi::Sink>(
        std::make_unique<prepare::PreparedSink>(*std::move(sink), [url = route.claim_check] {
            prepare::Preparations steps;
            auto store = open_store(url);
            OUTBOX_CHECK(store.ok(), "its URL was looked at");
            steps.push_back(std::make_unique<claim::Upload>(*std::move(store)));
            return steps;
        }));
}

Result<std::unique_ptr<claim::ObjectStore>> open_store(const std::string& url) {
    if (url.starts_with("file:")) return claim::open_file_store(url);
    if (url.starts_with("s3:")) {
#ifdef OUTBOX_WITH_HTTP
        return claim::open_s3_store(url);
#else
        return ErrorInfo{ErrorCode::kUnsupported,
                         Advice::kStop,
                         {},
                         "s3: is left out of this program: it was built without libcurl"};
#endif
    }
    const auto database = find_database(url);
    if (database.ok() && (*database)->open_objects != nullptr) {
        return (*database)->open_objects(url);
    }
    return ErrorInfo{ErrorCode::kConfigInvalid,
                     Advice::kStop,
                     {},
                     "'" + redact(url) +
                         "' is no object store: write file:///folder, s3://bucket/prefix, or the "
                         "URL of a database"};
}

Result<codec::MakeEncoder> make_format(const runtime::RouteConfig& route, const std::string& table,
                                       const spi::RowShape* shape) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    const codec::Format* format = codec::find_format(route.format);
    if (format == nullptr) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kStop,
                         {},
                         "there is no format '" + route.format + "'"};
    }
    if (Status fitting = check_format_options(route, *format); !fitting.ok()) return fitting;
    auto make =
        format->make({route.format_options, table, (*broker)->capabilities->attributes, shape});
    if (!make.ok() || route.claim_check.empty()) return make;
    const auto store = open_store(route.claim_check);
    if (!store.ok()) return store.status();
    return codec::with_claims(*std::move(make), {(*store)->url(), route.claim_check_above, table});
}

Status check_sink(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    const auto sink = make_sink(config, route);
    if (!sink.ok()) return sink.status();
    const Broker& broker = **find_broker(route.to);
    Status status =
        broker.look == nullptr ? (*sink)->check() : broker.look(destination_of(config, route));
    if (!status.ok() || route.claim_check.empty()) return status;
    const auto store = open_store(route.claim_check);
    return store.ok() ? claim::check(**store) : store.status();
}

Result<std::string> describe_destination(const runtime::RelayConfig& config,
                                         const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    if ((*broker)->describe == nullptr) return std::string();
    return (*broker)->describe(destination_of(config, route));
}

}  // namespace outbox::app
