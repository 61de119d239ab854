#include "sources/sqlite/source.h"

#include <algorithm>
#include <utility>

#include "core/embedded_sql.h"
#include "core/table_shape.h"
#include "core/url.h"
#include "sources/sqlite/client.h"
#include "sources/sqlite/lease.h"
#include "sources/sqlite/reader.h"
#include "sources/sqlite/recorder.h"
#include "sources/sqlite/table.h"

namespace outbox::sqlite {
namespace {

std::string quote_identifier(std::string_view name) {
    std::string quoted = "\"";
    for (const char c : name) quoted += c == '"' ? std::string("\"\"") : std::string(1, c);
    return quoted + "\"";
}

Result<Table> table_of(const SqliteSourceConfig& config) {
    Result<std::string> path = database_path(config.url);
    if (!path.ok()) return path.status();
    if (!config.mapping.empty()) {
        return ErrorInfo{ErrorCode::kUnsupported, Advice::kStop, "",
                         "[source.table] is for PostgreSQL: on SQLite the relay reads only the "
                         "tables of `outbox migrate`"};
    }
    if (config.after_publish == AfterPublish::kMark) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                         "after_publish = mark: the table has no column that could be marked; use "
                         "after_publish = delete"};
    }
    Table table;
    table.path = *std::move(path);
    table.name = config.table;
    table.sql = quote_identifier(config.table);
    table.source = config.table;
    table.tenants = config.tenants;
    std::sort(table.tenants.begin(), table.tenants.end());
    for (std::size_t i = 0; i < table.tenants.size(); ++i) {
        table.source += (i == 0 ? "/" : ",") + table.tenants[i];
    }
    table.busy_timeout_ms = config.busy_timeout_ms;
    return table;
}

Status check_shape(Database& database, const Table& table) {
    Statement rows(database, "SELECT name FROM pragma_table_info(?)");
    rows.bind(table.name);
    std::vector<std::string> columns;
    while (rows.step()) columns.push_back(rows.string(0));
    if (Status status = rows.status(); !status.ok()) return status;
    if (columns.empty()) {
        return {ErrorCode::kNoSuchTable, Advice::kStop,
                table.path + " has no table " + table.name +
                    ". Make it with `outbox migrate --db "
                    "sqlite://" +
                    table.path + "`, or name another with --table."};
    }
    if (is_native_table(columns)) return {};
    const auto shape = recognise_table_shape(columns);
    return {ErrorCode::kTableShape, Advice::kStop,
            "table " + table.name + " in " + table.path + " was not made by `outbox migrate`" +
                (shape ? " (it has the shape of the preset \"" + std::string(shape->preset) + "\")"
                       : std::string()) +
                ". On SQLite the relay reads only the tables of `outbox migrate`; presets and "
                "[source.table] are for PostgreSQL."};
}

class SqliteSource final : public spi::Source {
  public:
    explicit SqliteSource(Table table) : table_(std::move(table)) {}

    [[nodiscard]] std::string table_name() const override { return table_.name; }
    [[nodiscard]] bool stable_positions() const override { return true; }

    Result<std::unique_ptr<spi::Reader>> open_reader(const std::string&) override {
        return std::unique_ptr<spi::Reader>(std::make_unique<SqliteReader>(table_));
    }
    Result<std::unique_ptr<spi::Recorder>> open_recorder() override {
        return std::unique_ptr<spi::Recorder>(std::make_unique<SqliteRecorder>(table_));
    }
    Result<std::unique_ptr<spi::LeaseStore>> open_lease() override {
        return std::unique_ptr<spi::LeaseStore>(std::make_unique<SqliteLease>(table_));
    }

    Result<std::vector<spi::Finding>> check() override {
        auto database = Database::open(table_.path, table_.busy_timeout_ms);
        if (!database.ok()) return database.error();
        std::vector<spi::Finding> findings;
        findings.push_back(
            {false, "table " + table_.name + " in " + table_.path +
                        ": the table of outbox migrate; published rows are deleted"});
        findings.push_back({false,
                            "order: kept per key; SQLite has one writer at a time, so that "
                            "position order is commit order"});
        findings.push_back({false, "index: the read is served by the primary key"});
        Statement mode(**database, "PRAGMA journal_mode");
        const bool wal = mode.step() && mode.text(0) == "wal";
        findings.push_back(
            {false, wal ? "journal: write-ahead log"
                        : "journal: no write-ahead log, so that reading and writing wait for each "
                          "other. PRAGMA journal_mode = WAL"});
        if (Status status = mode.status(); !status.ok()) return status;
        WriteTransaction write(**database);
        const Status writable = write.begin();
        findings.push_back({!writable.ok(), writable.ok() ? "rights: the file can be written"
                                                          : "rights: " + writable.error().message});
        return findings;
    }

  private:
    const Table table_;
};

}  // namespace

Result<std::string> database_path(const std::string& url) {
    const Result<Url> parsed = parse_url(url);
    if (!parsed.ok()) return parsed.status();
    if (parsed->scheme == "sqlite" && !parsed->path.empty() && parsed->authority.empty()) {
        return parsed->path;
    }
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     "'" + redact(url) +
                         "' names no SQLite file: write sqlite:///absolute/path, with three "
                         "slashes"};
}

Result<std::unique_ptr<spi::Source>> make_sqlite_source(const SqliteSourceConfig& config) {
    Result<Table> table = table_of(config);
    if (!table.ok()) return table.status();
    auto database = Database::open(table->path, table->busy_timeout_ms);
    if (!database.ok()) return database.error();
    if (Status status = check_shape(**database, *table); !status.ok()) return status;
    Statement lease(**database, "SELECT 1 FROM sqlite_master WHERE name = 'outbox_route_stats'");
    const bool complete = lease.step();
    if (Status status = lease.status(); !status.ok()) return status;
    lease.reset();
    if (!complete) {
        const std::string sql(embedded_sql_text("producer/sqlite/side_tables.sql"));
        if (Status status = (*database)->execute(sql); !status.ok()) return status;
    }
    return std::unique_ptr<spi::Source>(std::make_unique<SqliteSource>(*std::move(table)));
}

}  // namespace outbox::sqlite
