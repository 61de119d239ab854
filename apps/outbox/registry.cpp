#include "registry.h"

#include <array>
#include <cstdlib>
#include <pwd.h>
#include <string_view>
#include <unistd.h>
#include <vector>

#include "consumer/operate.h"
#include "core/transport.h"
#include "core/url.h"
#ifdef OUTBOX_WITH_SOURCE_POSTGRES
#include "databases/postgres/receive/operator_sql.h"
#include "databases/postgres/source/operate.h"
#include "databases/postgres/source/source.h"
#endif
#ifdef OUTBOX_WITH_SOURCE_SQLITE
#include "databases/sqlite/receive/operator_sql.h"
#include "databases/sqlite/source/operate.h"
#include "databases/sqlite/source/source.h"
#endif
#ifdef OUTBOX_WITH_SINK_KAFKA
#include "brokers/kafka/sink.h"
#include "brokers/kafka/transport.h"
#endif
#ifdef OUTBOX_WITH_SINK_MAILBOX
#include "brokers/mailbox/sink.h"
#endif
#ifdef OUTBOX_WITH_SINK_NULL
#include "brokers/null/sink.h"
#endif
#ifdef OUTBOX_WITH_SINK_STDOUT
#include "brokers/stdout/sink.h"
#endif

namespace outbox::app {
namespace {

using runtime::RouteConfig;
using runtime::SourceConfig;
using SourceResult = Result<std::unique_ptr<spi::Source>>;
using OperationsResult = Result<std::unique_ptr<Operations>>;
using SqlResult = Result<std::unique_ptr<consumer::Sql>>;
using SinkResult = Result<std::unique_ptr<spi::Sink>>;

struct SourceEntry {
    std::string_view scheme;
    SourceResult (*make)(const SourceConfig&);  ///< Null: this build left it out.
    OperationsResult (*operate)(const SourceConfig&, const std::string& table);
    SqlResult (*open_sql)(const std::string& url, int connect_timeout_s, const consumer::Trust&);
};

struct SinkEntry {
    std::string_view scheme;
    SinkResult (*make)(const RouteConfig&, int connect_timeout_s);  ///< Null: left out.
    /// Where the sink's own check may change the destination; else null.
    Status (*look)(const RouteConfig&, int connect_timeout_s) = nullptr;
};

#ifdef OUTBOX_WITH_SOURCE_POSTGRES
postgres::PostgresSourceConfig postgres_config(const SourceConfig& config) {
    using postgres::AfterPublish;
    postgres::PostgresSourceConfig out;
    out.url = config.url;
    out.table = config.table;
    out.mapping = config.mapping;
    out.tenants = config.tenants;
    out.default_tenant = config.default_tenant;
    out.owners = config.owners;
    out.after_publish = config.after_publish == "delete" ? AfterPublish::kDelete
                        : config.after_publish == "mark" ? AfterPublish::kMark
                                                         : AfterPublish::kDefault;
    out.connect_timeout_s = static_cast<int>(config.connect_timeout.count());
    out.make_side_tables = config.make_side_tables;
    out.mode = config.mode == "auto"     ? postgres::Mode::kAuto
               : config.mode == "stream" ? postgres::Mode::kStream
                                         : postgres::Mode::kPolling;
    return out;
}
SourceResult make_postgres(const SourceConfig& config) {
    return postgres::make_postgres_source(postgres_config(config));
}
OperationsResult operate_postgres(const SourceConfig& config, const std::string& table) {
    return postgres::open_operations(postgres_config(config), table);
}
SqlResult open_postgres(const std::string& url, int connect_timeout_s,
                        const consumer::Trust& trust) {
    return consumer::open_postgres_sql(url, connect_timeout_s, trust);
}
constexpr SourceEntry kPostgresql{"postgresql", make_postgres, operate_postgres, open_postgres};
constexpr SourceEntry kPostgres{"postgres", make_postgres, operate_postgres, open_postgres};
#else
constexpr SourceEntry kPostgresql{"postgresql", nullptr, nullptr, nullptr};
constexpr SourceEntry kPostgres{"postgres", nullptr, nullptr, nullptr};
#endif

#ifdef OUTBOX_WITH_SOURCE_SQLITE
sqlite::SqliteSourceConfig sqlite_config(const SourceConfig& config) {
    using sqlite::AfterPublish;
    sqlite::SqliteSourceConfig out;
    out.url = config.url;
    out.table = config.table;
    out.mapping = config.mapping;
    out.tenants = config.tenants;
    out.default_tenant = config.default_tenant;
    out.after_publish = config.after_publish == "delete" ? AfterPublish::kDelete
                        : config.after_publish == "mark" ? AfterPublish::kMark
                                                         : AfterPublish::kDefault;
    out.make_side_tables = config.make_side_tables;
    return out;
}
SourceResult make_sqlite(const SourceConfig& config) {
    if (config.mode == "stream") {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                         "mode is stream, but SQLite has no log to stream from; use mode polling"};
    }
    return sqlite::make_sqlite_source(sqlite_config(config));
}
OperationsResult operate_sqlite(const SourceConfig& config, const std::string& table) {
    return sqlite::open_operations(sqlite_config(config), table);
}
SqlResult open_sqlite(const std::string& url, int connect_timeout_s,
                      const consumer::Trust& /*trust*/) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    return consumer::open_sqlite_sql(parsed->path, connect_timeout_s);
}
constexpr SourceEntry kSqlite{"sqlite", make_sqlite, operate_sqlite, open_sqlite};
#else
constexpr SourceEntry kSqlite{"sqlite", nullptr, nullptr, nullptr};
#endif

#ifdef OUTBOX_WITH_SINK_KAFKA
SinkResult make_kafka(const RouteConfig& route, int connect_timeout_s) {
    auto config = sinks::kafka::make_config(route.to, route.sink_options);
    if (!config.ok()) return config.error();
    config->connect_timeout = std::chrono::seconds(connect_timeout_s);
    auto sink = sinks::kafka::KafkaSink::open(std::move(*config));
    if (!sink.ok()) return sink.error();
    return std::unique_ptr<spi::Sink>(std::move(*sink));
}
constexpr SinkEntry kKafka{"kafka", make_kafka};
#else
constexpr SinkEntry kKafka{"kafka", nullptr};
#endif

#ifdef OUTBOX_WITH_SINK_MAILBOX
SinkResult make_mailbox(const RouteConfig& route, int connect_timeout_s) {
    return mailbox::make_mailbox_sink(route.to, connect_timeout_s);
}
Status look_at_mailbox(const RouteConfig& route, int connect_timeout_s) {
    return mailbox::look_at_mailbox(route.to, connect_timeout_s);
}
constexpr SinkEntry kMailboxPostgresql{"mailbox+postgresql", make_mailbox, look_at_mailbox};
constexpr SinkEntry kMailboxSqlite{"mailbox+sqlite", make_mailbox, look_at_mailbox};
#else
constexpr SinkEntry kMailboxPostgresql{"mailbox+postgresql", nullptr};
constexpr SinkEntry kMailboxSqlite{"mailbox+sqlite", nullptr};
#endif

#ifdef OUTBOX_WITH_SINK_NULL
SinkResult make_null(const RouteConfig& /*route*/, int /*connect_timeout_s*/) {
    return std::unique_ptr<spi::Sink>(new sinks::null::NullSink);
}
constexpr SinkEntry kNull{"null", make_null};
#else
constexpr SinkEntry kNull{"null", nullptr};
#endif

#ifdef OUTBOX_WITH_SINK_STDOUT
SinkResult make_stdout(const RouteConfig& /*route*/, int /*connect_timeout_s*/) {
    return std::unique_ptr<spi::Sink>(new sinks::stdout_::StdoutSink);
}
constexpr SinkEntry kStdout{"stdout", make_stdout};
#else
constexpr SinkEntry kStdout{"stdout", nullptr};
#endif

constexpr std::array kSources{kPostgresql, kPostgres, kSqlite};
constexpr std::array kSinks{kKafka, kMailboxPostgresql, kMailboxSqlite, kStdout, kNull};

// The entry for the URL's scheme, or why there is none.
template <typename Entries>
Result<const typename Entries::value_type*> find(const Entries& entries, const std::string& url,
                                                 std::string_view what) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    std::string known;
    for (const auto& entry : entries) {
        if (entry.scheme != parsed->scheme) {
            known += (known.empty() ? "" : ", ") + std::string(entry.scheme) + ":";
            continue;
        }
        if (entry.make != nullptr) return &entry;
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                         "this build has no " + std::string(entry.scheme) + ": " +
                             std::string(what) +
                             "; build it on a machine that has the client library"};
    }
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     "'" + redact(url) + "': no " + std::string(what) + " is known by '" +
                         parsed->scheme + ":'; use one of " + known};
}

}  // namespace

void tell_secret_options() {
#ifdef OUTBOX_WITH_SINK_KAFKA
    add_secret_options(sinks::kafka::secret_options());
#endif
}

SourceResult make_source(const SourceConfig& config) {
    const auto entry = find(kSources, config.url, "source");
    if (!entry.ok()) return entry.error();
    return (*entry)->make(config);
}

std::string os_user() {
    constexpr std::size_t kBytes = 16'384;
    std::vector<char> buffer(kBytes);
    passwd entry{};
    passwd* found = nullptr;
    getpwuid_r(getuid(), &entry, buffer.data(), buffer.size(), &found);
    return found != nullptr ? found->pw_name : std::to_string(getuid());
}

SqlResult open_consumer_sql(const std::string& url, int connect_timeout_s,
                            const consumer::Trust& trust) {
    const auto entry = find(kSources, url, "database");
    if (!entry.ok()) return entry.error();
    return (*entry)->open_sql(url, connect_timeout_s, trust);
}

Result<std::unique_ptr<ConsumerOperations>> open_consumer_operations(const SourceConfig& config,
                                                                     const std::string& os_user) {
    auto sql = open_consumer_sql(config.url, static_cast<int>(config.connect_timeout.count()),
                                 {config.owners});
    if (!sql.ok()) return sql.error();
    return consumer::make_operations(std::move(*sql), os_user);
}

OperationsResult open_operations(const SourceConfig& config, const std::string& table) {
    const auto entry = find(kSources, config.url, "source");
    if (!entry.ok()) return entry.error();
    auto operations = (*entry)->operate(config, table);
    if (operations.ok()) (*operations)->act_for(os_user());
    return operations;
}

std::string weakness_of_database(const std::string& url) {
    const auto parsed = parse_url(url);
    if (!parsed.ok() || !parsed->scheme.starts_with("postgres")) return {};
    const char* mode = std::getenv("PGSSLMODE");
    return postgres_transport(*parsed, mode == nullptr ? "" : mode);
}

std::string weakness_of(const RouteConfig& route) {
    constexpr std::string_view kMailbox = "mailbox+";
    if (route.to.starts_with(kMailbox)) {
        return weakness_of_database(route.to.substr(kMailbox.size()));
    }
#ifdef OUTBOX_WITH_SINK_KAFKA
    if (route.to.starts_with("kafka:")) {
        const auto config = sinks::kafka::make_config(route.to, route.sink_options);
        if (config.ok()) return sinks::kafka::transport_weakness(*config);
    }
#endif
    return {};
}

SinkResult make_sink(const RouteConfig& route, int connect_timeout_s) {
    const auto entry = find(kSinks, route.to, "destination");
    if (!entry.ok()) return entry.error();
    // All that a file can give are those of Kafka: [route.kafka].
    if (!route.sink_options.empty() && (*entry)->scheme != kKafka.scheme) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                         "[route.kafka] is for a route to kafka:, and this one goes to " +
                             std::string((*entry)->scheme) + ": (option " +
                             route.sink_options.begin()->first + ")"};
    }
    return (*entry)->make(route, connect_timeout_s);
}

Status check_sink(const RouteConfig& route, int connect_timeout_s) {
    const auto sink = make_sink(route, connect_timeout_s);
    if (!sink.ok()) return sink.status();
    const auto entry = find(kSinks, route.to, "destination");
    return (*entry)->look != nullptr ? (*entry)->look(route, connect_timeout_s) : (*sink)->check();
}

}  // namespace outbox::app
