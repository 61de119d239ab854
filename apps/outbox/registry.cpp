#include "registry.h"

#include <functional>
#include <memory>
#include <pwd.h>
#include <set>
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
#include "replay/history.h"

#ifdef OUTBOX_WITH_HTTP
#include "claim/s3_config.h"
#include "claim/s3_store.h"
#include "net/certificate_dates.h"
#include "schema/registry_config.h"
#include "schema/schema_check.h"
#endif

namespace outbox::app {
namespace {

Destination destination_of(const runtime::RelayConfig& config, const runtime::RouteConfig& route,
                           std::string_view producer = kNoProducer) {
    return {.url = route.to,
            .options = route.sink_options,
            .connect_timeout = config.sink_connect_timeout(),
            .producer = std::string(producer),
            .producer_ends = producer.starts_with(kRunProducer),
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

// A frame has to stand before the payload as it is stored, and be all of the record's value.
Status check_framing(const runtime::RouteConfig& route) {
    if (route.schema_framing == "none") return {};
    const auto invalid = [](const std::string& why) {
        return Status(ErrorCode::kConfigInvalid, Advice::kStop,
                      "schema_framing = \"confluent\" " + why);
    };
    if (route.schema_registry.empty()) {
        return invalid("needs schema_registry, which knows the ids");
    }
    if (route.format != "raw" && route.format != "cloudevents") {
        return invalid("is for payloads as they are stored, and the format " + route.format +
                       " writes another value; use raw or cloudevents");
    }
    if (!route.claim_check.empty()) {
        return invalid(
            "has no place in a record whose payload is elsewhere; leave out claim_check");
    }
    return {};
}

using MakeSteps = std::function<prepare::Preparations()>;

#ifdef OUTBOX_WITH_HTTP
Result<std::shared_ptr<schema::Registry>> open_registry(const std::string& url) {
    auto config = schema::make_registry_config(url);
    if (!config.ok()) return config.error();
    return std::make_shared<schema::Registry>(*std::move(config));
}

Status check_registry(const std::string& url) {
    const auto registry = open_registry(url);
    return registry.ok() ? (*registry)->check() : registry.status();
}

// All of a route share what its registry has answered.
Result<MakeSteps> with_registry(const runtime::RouteConfig& route, MakeSteps others) {
    auto registry = open_registry(route.schema_registry);
    if (!registry.ok()) return registry.error();
    const bool framed = route.schema_framing != "none";
    return MakeSteps([registry = *std::move(registry), framed, others = std::move(others)] {
        prepare::Preparations steps = others();
        steps.insert(steps.begin(), std::make_unique<schema::SchemaCheck>(registry, framed));
        return steps;
    });
}
#else
Status check_registry(const std::string& /*url*/) {
    return {ErrorCode::kUnsupported, Advice::kStop,
            "schema_registry is left out of this program: it was built without libcurl"};
}

Result<MakeSteps> with_registry(const runtime::RouteConfig& route, const MakeSteps& /*others*/) {
    return check_registry(route.schema_registry).error();
}
#endif

// What is done for the records of a route: payloads are checked before they are kept elsewhere.
Result<MakeSteps> make_steps(const runtime::RouteConfig& route) {
    MakeSteps make = [] { return prepare::Preparations(); };
    if (!route.claim_check.empty()) {
        if (Status usable = open_store(route.claim_check).status(); !usable.ok()) {
            return usable.error();
        }
        make = [url = route.claim_check] {
            prepare::Preparations steps;
            auto store = open_store(url);
            OUTBOX_CHECK(store.ok(), "its URL was looked at");
            steps.push_back(std::make_unique<claim::Upload>(*std::move(store)));
            return steps;
        };
    }
    return route.schema_registry.empty() ? Result<MakeSteps>(std::move(make))
                                         : with_registry(route, std::move(make));
}

// Where its key is from; empty: it has none.
Result<std::string> describe_store([[maybe_unused]] const std::string& url) {
#ifdef OUTBOX_WITH_HTTP
    if (url.starts_with("s3:")) {
        auto origin = claim::s3_key_origin(url);
        if (!origin.ok()) return origin;
        return "access key of the object store: " + *origin;
    }
#endif
    return std::string();
}

}  // namespace

void tell_secret_options() {
    for (const Broker* broker : brokers()) {
        add_secret_options(broker->secrets);
        for (const BackendOption& option : broker->options) {
            if (option.secret) add_secret_options({&option.name, 1});
        }
    }
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

Status run_statement(const std::string& url, std::chrono::seconds connect_timeout,
                     const std::string& sql) {
    const auto database = find_database(url);
    if (!database.ok()) return database.error();
    return (*database)->run_statement(url, connect_timeout, sql);
}

Result<std::unique_ptr<ConsumerOperations>> open_consumer_operations(const SourceConfig& config,
                                                                     const std::string& os_user) {
    auto sql = open_consumer_sql(config.url, static_cast<int>(config.connect_timeout.count()),
                                 {config.owners});
    if (!sql.ok()) return sql.error();
    return consumer::make_operations(std::move(*sql), os_user);
}

bool is_consumers_side_only(ConsumerOperations& operations, const ErrorInfo& error) {
    if (error.code != ErrorCode::kNoSuchTable) return false;
    const auto producer = operations.has_producer();
    return !producer.ok() || !*producer;
}

Result<std::unique_ptr<Operations>> open_operations(const SourceConfig& config,
                                                    const std::string& table) {
    const auto database = find_database(config.url);
    if (!database.ok()) return database.error();
    auto operations = (*database)->open_operations(config, table);
    if (operations.ok()) (*operations)->act_for(os_user());
    return operations;
}

Result<OperatedOutbox> open_outbox(const SourceConfig& config) {
    OperatedOutbox outbox;
    auto source = make_source(config);
    if (!source.ok()) return source.error();
    outbox.source = std::move(*source);
    auto operations = open_operations(config, outbox.source->table_name());
    if (!operations.ok()) return operations.error();
    outbox.operations = std::move(*operations);
    return outbox;
}

Result<std::unique_ptr<EventTracer>> open_tracer(const SourceConfig& config) {
    const auto database = find_database(config.url);
    if (!database.ok()) return database.error();
    if ((*database)->open_tracer == nullptr) {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                         std::string((*database)->name) + " does not tell the life of an event"};
    }
    return (*database)->open_tracer(config);
}

Result<std::unique_ptr<replay::History>> open_history(const SourceConfig& config) {
    const auto database = find_database(config.url);
    if (!database.ok()) return database.error();
    if ((*database)->open_history == nullptr) {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                         std::string((*database)->name) + " does not tell what was published"};
    }
    return (*database)->open_history(config);
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

std::string weakness_of_registry([[maybe_unused]] const std::string& url) {
#ifdef OUTBOX_WITH_HTTP
    if (!url.empty()) return schema::registry_weakness(url);
#endif
    return {};
}

std::string weakness_of(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    return broker.ok() && (*broker)->weakness != nullptr
               ? (*broker)->weakness(destination_of(config, route))
               : "";
}

std::vector<std::pair<std::string, TlsUse>> tls_of(const runtime::RelayConfig& config) {
    std::vector<std::pair<std::string, TlsUse>> ways;
    ways.emplace_back("the database", tls_of_database(config.source.url));
    for (const runtime::RouteConfig& route : config.routes) {
        const auto broker = find_broker(route.to);
        if (broker.ok() && (*broker)->tls != nullptr) {
            ways.emplace_back("the destination of " + route.name,
                              (*broker)->tls(destination_of(config, route)));
        }
#ifdef OUTBOX_WITH_HTTP
        const auto add = [&](const char* what, const auto& access) {
            if (access.ok()) {
                ways.emplace_back(what + route.name, net::tls_use_of(*access));
            }
        };
        if (route.claim_check.starts_with("s3:")) {
            add("the object store of ", claim::make_s3_config(route.claim_check));
        }
        if (!route.schema_registry.empty()) {
            add("the schema registry of ", schema::make_registry_config(route.schema_registry));
        }
#endif
    }
    return ways;
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
    if (!sink.ok() || (route.claim_check.empty() && route.schema_registry.empty())) return sink;
    auto steps = make_steps(route);
    if (!steps.ok()) return steps.error();
    return std::unique_ptr<spi::Sink>(
        std::make_unique<prepare::PreparedSink>(*std::move(sink), *std::move(steps)));
}

Status check_settings(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    const Broker& broker = **find_broker(route.to);
    Status status;
    if (broker.check_settings != nullptr) {
        status = broker.check_settings(destination_of(config, route));
    }
#ifdef OUTBOX_WITH_HTTP
    if (status.ok() && route.claim_check.starts_with("s3:")) {
        status = claim::check_s3_files(route.claim_check);
    }
    if (status.ok() && !route.schema_registry.empty()) {
        status = schema::check_registry_files(route.schema_registry);
    }
#endif
    return status;
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
    if (Status fitting = check_framing(route); !fitting.ok()) return fitting;
    auto make = format->make({route.format_options, table, (*broker)->capabilities->attributes,
                              shape, !route.claim_check.empty(), (*broker)->why_not_header});
    if (!make.ok()) return make;
    if (route.claim_check.empty()) return codec::with_claims(*std::move(make), {});
    const auto store = open_store(route.claim_check);
    if (!store.ok()) return store.status();
    return codec::with_claims(*std::move(make), {(*store)->url(), route.claim_check_above, table});
}

namespace {

// The table's name without its schema: the topic of events that the template does not fit.
std::string fallback_topic(const std::string& table) {
    return table.substr(table.rfind('.') + 1);
}

}  // namespace

Result<core::TopicRule> make_topics(const runtime::RouteConfig& route, const std::string& table) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    return core::TopicRule::make(route.topic_template, route.allowed_topics, fallback_topic(table),
                                 (*broker)->check_topic, (*broker)->topic_token,
                                 (*broker)->any_topic);
}

Status check_broker(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    const auto sink = make_sink(config, route);
    if (!sink.ok()) return sink.status();
    const Broker& broker = **find_broker(route.to);
    return broker.look == nullptr ? (*sink)->check() : broker.look(destination_of(config, route));
}

Status check_sink(const runtime::RelayConfig& config, const runtime::RouteConfig& route) {
    Status status = check_broker(config, route);
    if (status.ok() && !route.claim_check.empty()) {
        const auto store = open_store(route.claim_check);
        status = store.ok() ? claim::check(**store) : store.status();
    }
    if (status.ok() && !route.schema_registry.empty()) {
        status = check_registry(route.schema_registry);
    }
    return status;
}

Result<std::vector<TopicReport>> look_at_topics(const runtime::RelayConfig& config,
                                                const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    if ((*broker)->topics == nullptr) return std::vector<TopicReport>();
    std::set<std::string> names(route.predicate.topics.begin(), route.predicate.topics.end());
    for (const std::string& allowed : route.allowed_topics) {
        if (!allowed.ends_with('*')) names.insert(allowed);
    }
    if (route.topic_template.find('{') == std::string::npos) names.insert(route.topic_template);
    names.erase("");
    if (names.empty()) return std::vector<TopicReport>();
    const std::vector<std::string> list(names.begin(), names.end());
    return (*broker)->topics(destination_of(config, route), list);
}

Result<std::string> describe_destination(const runtime::RelayConfig& config,
                                         const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    std::string text;
    if ((*broker)->describe != nullptr) {
        auto described = (*broker)->describe(destination_of(config, route));
        if (!described.ok()) return described;
        text = *std::move(described);
    }
    auto store = describe_store(route.claim_check);
    if (!store.ok()) return store;
    if (!text.empty() && !store->empty()) text += "; ";
    return text + *store;
}

Result<std::vector<std::string>> warnings_of_destination(const runtime::RelayConfig& config,
                                                         const runtime::RouteConfig& route) {
    const auto broker = find_broker(route.to);
    if (!broker.ok()) return broker.error();
    if ((*broker)->warnings == nullptr) return std::vector<std::string>();
    return (*broker)->warnings(destination_of(config, route));
}

}  // namespace outbox::app
