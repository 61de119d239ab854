#include "backend/database.h"

#include <array>

#include "core/url.h"
#include "databases/sqlite/mailbox_writer.h"
#include "databases/sqlite/objects.h"
#include "databases/sqlite/receive/operator_sql.h"
#include "databases/sqlite/source/history.h"
#include "databases/sqlite/source/operations.h"
#include "databases/sqlite/source/source.h"
#include "databases/sqlite/source/trace.h"
#include "databases/sqlite/webhook/store.h"

namespace outbox {
namespace {

using sqlite::SqliteSourceConfig;

constexpr std::array<std::string_view, 1> kSchemes{"sqlite"};

SqliteSourceConfig config_of(const SourceConfig& config) {
    SqliteSourceConfig out;
    out.url = config.url;
    out.table = config.table;
    out.mapping = config.mapping;
    out.tenants = config.tenants;
    out.default_tenant = config.default_tenant;
    out.default_tenant_given = config.default_tenant_given;
    out.after_publish = config.after_publish;
    out.make_side_tables = config.make_side_tables;
    return out;
}

Result<std::unique_ptr<spi::Source>> make_source(const SourceConfig& config) {
    if (config.mode == "stream") {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                         "mode is stream, but SQLite has no log to stream from; use mode polling"};
    }
    return sqlite::make_sqlite_source(config_of(config));
}

Result<std::unique_ptr<Operations>> open_operations(const SourceConfig& config,
                                                    const std::string& table) {
    return sqlite::open_operations(config_of(config), table);
}

Result<std::unique_ptr<EventTracer>> open_tracer(const SourceConfig& config) {
    return sqlite::open_tracer(config_of(config));
}

Result<std::unique_ptr<replay::History>> open_history(const SourceConfig& config) {
    return sqlite::open_history(config_of(config));
}

Result<std::unique_ptr<consumer::Sql>> open_sql(const std::string& url,
                                                std::chrono::seconds connect_timeout,
                                                const consumer::Trust& /*trust*/) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    return consumer::open_sqlite_sql(parsed->path, static_cast<int>(connect_timeout.count()));
}

Status run_statement(const std::string& url, std::chrono::seconds connect_timeout,
                     const std::string& sql) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    const std::chrono::milliseconds wait = connect_timeout;
    auto database = sqlite::Database::open(parsed->path, static_cast<int>(wait.count()));
    return database.ok() ? (*database)->execute(sql) : database.status();
}

}  // namespace

const Database& sqlite_database() {
    static const Database database{
        .name = "sqlite",
        .schemes = kSchemes,
        .urls = "sqlite:///path",
        .make_source = make_source,
        .open_operations = open_operations,
        .open_tracer = open_tracer,
        .open_history = open_history,
        .open_sql = open_sql,
        .run_statement = run_statement,
        .open_mailbox = mailbox::open_sqlite_mailbox,
        .open_webhook_inlet = sqlite::open_webhook_inlet,
        .open_webhook_outlet = sqlite::open_webhook_outlet,
        .open_objects = sqlite::open_objects,
    };
    return database;
}

}  // namespace outbox
