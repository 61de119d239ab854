#include <array>
#include <fcntl.h>
#include <string>
#include <unistd.h>

#include <outbox/producer/migrate.h>

#include "producer/migration_plan.h"
#include "producer/sqlite_handle.h"

namespace outbox::producer {
namespace {

constexpr int kBusyTimeoutMs = 10'000;
constexpr const char* kWriteAheadLog = "PRAGMA journal_mode = WAL;\n";

constexpr const char* kNowMicroseconds =
    "CAST((julianday('now') - 2440587.5) * 86400000000 AS integer)";

// RFC 9562, section 5.7: 48 bits of Unix milliseconds, version 7, variant 10, random bits.
std::string uuid_v7() {
    const std::string milliseconds =
        "printf('%012x', CAST((julianday('now') - 2440587.5) * 86400000 AS integer))";
    return "lower(substr(" + milliseconds + ", 1, 8) || '-' || substr(" + milliseconds +
           ", 9) || '-7' || substr(hex(randomblob(2)), 2) || '-' || "
           "substr('89ab', 1 + (random() & 3), 1) || substr(hex(randomblob(2)), 2) || '-' || "
           "hex(randomblob(6)))";
}

std::string body(const EmbeddedMigration& migration, PayloadType payload) {
    const bool binary = payload == PayloadType::kBytea;
    const bool json = payload == PayloadType::kJson || payload == PayloadType::kJsonb;
    const std::array<TemplateValue, 5> values{{
        {"payload_type", binary ? "blob" : "text"},
        {"payload_check", json ? "payload IS NULL OR json_valid(payload)" : "true"},
        {"dead_payload", binary ? "d.payload" : "CAST(d.payload AS text)"},
        {"uuidv7", uuid_v7()},
        {"now_us", kNowMicroseconds},
    }};
    return std::string(
               "CREATE TABLE IF NOT EXISTS outbox_migrations (\n"
               "    side       text NOT NULL,\n"
               "    version    integer NOT NULL,\n"
               "    name       text NOT NULL,\n"
               "    checksum   text NOT NULL,\n"
               "    applied_at integer NOT NULL DEFAULT (") +
           kNowMicroseconds +
           "),\n"
           "    PRIMARY KEY (side, version)\n"
           ");\n" +
           fill_template(migration.text, values) +
           "\nINSERT INTO outbox_migrations (side, version, name, checksum) VALUES (" +
           sql_literal(migration.side) + ", " + std::to_string(migration.version) + ", " +
           sql_literal(migration.name) + ", " + sql_literal(migration.checksum) + ");\n";
}

// SQLite takes an empty file for an empty database, and gives its journals the same mode. Failing
// is left to SQLite, which says why.
void make_private_file(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) ::close(file);
}

class SqliteTarget final : public MigrationTarget {
  public:
    explicit SqliteTarget(const std::string& path) : where_("Database " + path) {
        make_private_file(path);
        sqlite3* opened = nullptr;
        const int result = sqlite3_open_v2(path.c_str(), &opened,
                                           SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, nullptr);
        database_.reset(opened);
        if (result != SQLITE_OK) throw Error(sqlite_error(opened, "cannot open " + path));
        sqlite3_busy_timeout(opened, kBusyTimeoutMs);
    }

    [[nodiscard]] std::string_view database() const override { return "sqlite"; }
    [[nodiscard]] std::string where() const override { return where_; }

    void begin_alone() override { execute("BEGIN IMMEDIATE"); }

    std::vector<RecordedMigration> recorded() override {
        std::vector<RecordedMigration> rows;
        if (!step(prepare("SELECT 1 FROM sqlite_master WHERE name = 'outbox_migrations'").get())) {
            return rows;
        }
        const auto statement = prepare(
            "SELECT side, version, name, checksum FROM outbox_migrations ORDER BY side, version");
        while (step(statement.get())) {
            rows.push_back({text(statement.get(), 0), sqlite3_column_int(statement.get(), 1),
                            text(statement.get(), 2), text(statement.get(), 3)});
        }
        return rows;
    }

    EventTable event_table() override {
        EventTable table{"outbox_events", {}, {}};
        const auto columns = prepare("SELECT name FROM pragma_table_info('outbox_events')");
        while (step(columns.get())) table.columns.push_back(text(columns.get(), 0));
        const auto payload = prepare(
            "SELECT CASE WHEN upper(p.type) = 'BLOB' THEN 'bytea' "
            "WHEN m.sql LIKE '%json_valid(payload)%' THEN 'json' ELSE 'text' END "
            "FROM sqlite_master m, pragma_table_info('outbox_events') p "
            "WHERE m.name = 'outbox_events' AND p.name = 'payload'");
        if (step(payload.get())) table.payload_type = text(payload.get(), 0);
        return table;
    }

    void apply(const EmbeddedMigration& migration, PayloadType payload) override {
        execute(body(migration, payload));
    }
    void commit() override { execute("COMMIT"); }
    void finish() override { execute(kWriteAheadLog); }

  private:
    static std::string text(sqlite3_stmt* statement, int column) {
        const auto* value = sqlite3_column_text(statement, column);
        return value != nullptr ? reinterpret_cast<const char*>(value) : "";
    }

    SqliteStatement prepare(const char* sql) {
        sqlite3_stmt* statement = nullptr;
        check(sqlite3_prepare_v2(database_.get(), sql, -1, &statement, nullptr));
        return SqliteStatement(statement);
    }

    bool step(sqlite3_stmt* statement) {
        const int result = sqlite3_step(statement);
        if (result != SQLITE_ROW && result != SQLITE_DONE) check(result);
        return result == SQLITE_ROW;
    }

    void execute(const std::string& sql) {
        check(sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr));
    }

    void check(int result) {
        if (result != SQLITE_OK) {
            throw Error(sqlite_error(database_.get(), "migrating " + where_));
        }
    }

    SqliteDatabase database_;
    std::string where_;
};

// SQLite keeps both kinds of JSON as text.
MigrateOptions with_one_json(MigrateOptions options) {
    if (options.payload == PayloadType::kJsonb) options.payload = PayloadType::kJson;
    return options;
}

}  // namespace

std::vector<Migration> migrate_sqlite(const std::string& path, const MigrateOptions& options) {
    SqliteTarget target(path);
    return run_migrations(target, with_one_json(options));
}

std::string sqlite_migration_sql(const MigrateOptions& options) {
    std::string sql;
    for (const auto& migration : embedded_migrations("sqlite", options.side)) {
        sql += "BEGIN IMMEDIATE;\n" +
               body(migration, options.payload.value_or(PayloadType::kJson)) + "COMMIT;\n\n";
    }
    return sql + kWriteAheadLog;
}

}  // namespace outbox::producer
