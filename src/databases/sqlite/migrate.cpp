#include <array>
#include <chrono>
#include <cstdint>
#include <fcntl.h>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>

#include <outbox/producer/migrate.h>

#include "core/embedded_sql.h"
#include "core/sql_text.h"
#include "core/table_shape.h"
#include "core/url.h"
#include "databases/sqlite/client.h"
#include "producer/migration_plan.h"
#include "producer/migrator.h"
#include "producer/uninstall.h"

namespace outbox::producer {
namespace {

constexpr const char* kWriteAheadLog = "PRAGMA journal_mode = WAL;\n";
constexpr std::chrono::milliseconds kLookEvery{10};  // whether another run is through

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
           quote_literal(migration.side) + ", " + std::to_string(migration.version) + ", " +
           quote_literal(migration.name) + ", " + quote_literal(migration.checksum) + ");\n";
}

// SQLite takes an empty file for an empty database, and gives its journals the same mode. Failing
// is left to SQLite, which says why.
void make_private_file(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (file >= 0) ::close(file);
}

// SQLite has no statement that changes a CHECK; its documentation of ALTER TABLE names this way for
// what does not change the stored rows ("Making Other Kinds Of Table Schema Changes"). The version
// is raised so that open connections read the new text.
std::string payload_limit(std::int64_t bytes) {
    const std::string most = std::to_string(bytes);
    std::string changed = "sql";
    for (const char* const place : {"OB_PAYLOAD_TOO_LARGE: over ", "<= "}) {
        const bool in_check = std::string_view(place) == "<= ";
        const std::string before =
            std::string(in_check ? "length(CAST(payload AS blob)) " : "") + place;
        // Up to the number, and from behind it on.
        const std::string begin = "instr(" + changed + ", " + quote_literal(before) + ") + " +
                                  std::to_string(before.size() - 1);
        const std::string rest = "substr(" + changed + ", 1 + " + begin + ")";
        changed = "(substr(" + changed + ", 1, " + begin + ") || " + quote_literal(most) +
                  " || ltrim(" + rest + ", '0123456789'))";
    }
    return "UPDATE sqlite_master SET sql = " + changed +
           " WHERE type = 'table' AND name IN ('outbox_events', 'outbox_scheduled') AND sql LIKE "
           "'%OB_PAYLOAD_TOO_LARGE: over %length(CAST(payload AS blob)) <= %';\n";
}

constexpr std::string_view kAudit = "outbox_audit";

struct MadeObject {
    std::string kind;  ///< "TABLE", "VIEW" or "INDEX".
    std::string name;
    bool shared = false;  ///< A relay or a sink makes it, too.
    std::string table;    ///< An index: its table, which it goes with.
};

// What the migrations of a side make, as their text says it.
std::vector<MadeObject> made_by(std::string_view side) {
    std::vector<MadeObject> made;
    const MigrationSide which =
        side == "producer" ? MigrationSide::kProducer : MigrationSide::kConsumer;
    for (const EmbeddedMigration& migration : embedded_migrations("sqlite", which)) {
        std::istringstream lines{std::string(migration.text)};
        for (std::string line; std::getline(lines, line);) {
            std::istringstream words(line);
            MadeObject object;
            std::string create;
            words >> create >> object.kind;
            if (object.kind == "UNIQUE") words >> object.kind;
            const bool index = object.kind == "INDEX";
            if (create != "CREATE" || (object.kind != "TABLE" && object.kind != "VIEW" && !index)) {
                continue;
            }
            words >> object.name;
            object.shared = object.name == "IF";
            if (object.shared) words >> create >> create >> object.name;  // NOT EXISTS name
            if (index && !(words >> create >> object.table)) {            // ON table
                std::getline(lines, line);
                std::istringstream(line) >> create >> object.table;
            }
            made.push_back(object);
        }
    }
    return made;
}

std::vector<std::string_view> sides_of(MigrationSide side) {
    if (side == MigrationSide::kProducer) return {"producer"};
    if (side == MigrationSide::kConsumer) return {"consumer"};
    return {"producer", "consumer"};
}

// Views first, as they name tables.
std::string drops(std::string_view side, bool with_events) {
    std::string views;
    std::string tables;
    for (const MadeObject& object : made_by(side)) {
        if (object.name == "outbox_events" && !with_events) continue;
        if (object.kind == "INDEX") continue;
        if (object.name == kAudit) continue;  // of both sides: with the last one
        (object.kind == "VIEW" ? views : tables) +=
            "DROP " + object.kind + " IF EXISTS " + object.name + ";\n";
    }
    return views + tables;
}

struct Waiting {
    std::string_view side;
    std::string_view table;
    std::string_view where;
    std::string_view what;
};

constexpr std::array kWaiting{
    Waiting{
        "producer", "outbox_events",
        " WHERE NOT EXISTS (SELECT 1 FROM outbox_ledger_segments l WHERE (l.source || '/') LIKE "
        "'outbox_events/%' AND l.segment = e.position / 65536 AND "
        "(instr('0123456789ABCDEF', substr(hex(substr(l.done, 1 + e.position % 65536 / 8, 1)), "
        "1 + e.position % 8 / 4, 1)) - 1) & (8 >> (e.position % 4)) GROUP BY l.source HAVING "
        "count(*) >= (SELECT count(*) FROM outbox_routes r WHERE r.source = l.source))",
        "events"},
    Waiting{"producer", "outbox_scheduled", "", "delayed events"},
    Waiting{"producer", "outbox_dead_letters", "", "dead letters"},
    Waiting{"producer", "outbox_lease",
            " WHERE owner IS NOT NULL AND expires_at > (julianday('now') - 2440587.5) * "
            "86400000000.0",
            "running relays"},
    Waiting{"consumer", "outbox_mailbox", "", "messages in mailboxes"},
    Waiting{"consumer", "outbox_inbox_dead_letters", "", "dead letters of consumers"},
    Waiting{"consumer", "outbox_saga", " WHERE finished_at IS NULL", "open sagas"},
    Waiting{"consumer", "outbox_webhook_deliveries", "", "webhooks to be delivered"},
};

class SqliteTarget final : public MigrationTarget {
  public:
    SqliteTarget(const std::string& path, const MigrateOptions& options)
        : where_("Database " + path),
          doing_("migrating " + where_),
          patience_(options.connect_timeout) {
        if (options.side != MigrationSide::kConsumer) {
            max_payload_bytes_ = options.max_payload_bytes;
        }
        make_private_file(path);
        database_ =
            sqlite::Database::open(
                path, static_cast<int>(std::chrono::milliseconds(options.connect_timeout).count()),
                sqlite::Role::kEmit, sqlite::Database::File::kMayBeMade)
                .value_or_throw();
    }

    [[nodiscard]] std::string_view database() const override { return "sqlite"; }
    [[nodiscard]] std::string where() const override { return where_; }

    void begin_alone() override {
        execute("BEGIN IMMEDIATE");
        sqlite::read_schema(database_->handle(), sqlite::Role::kEmit, doing_);
    }

    std::vector<RecordedMigration> recorded() override {
        std::vector<RecordedMigration> rows;
        if (!exists("outbox_migrations")) return rows;
        auto statement = prepare(
            "SELECT side, version, name, checksum FROM outbox_migrations ORDER BY side, version");
        while (statement.step()) {
            rows.push_back({statement.string(0), static_cast<int>(statement.integer(1)),
                            statement.string(2), statement.string(3)});
        }
        return rows;
    }

    EventTable event_table() override {
        EventTable table{"outbox_events", {}, {}};
        auto columns = prepare("SELECT name FROM pragma_table_info('outbox_events')");
        while (columns.step()) table.columns.push_back(columns.string(0));
        auto payload = prepare(
            "SELECT CASE WHEN upper(p.type) = 'BLOB' THEN 'bytea' "
            "WHEN m.sql LIKE '%json_valid(payload)%' THEN 'json' ELSE 'text' END "
            "FROM sqlite_master m, pragma_table_info('outbox_events') p "
            "WHERE m.name = 'outbox_events' AND p.name = 'payload'");
        if (payload.step()) table.payload_type = payload.string(0);
        return table;
    }

    Presence look_for(std::string_view side) override {
        Presence found;
        for (const MadeObject& object : made_by(side)) {
            if (!exists(object.name)) {
                found.missing.push_back(object.name);
                continue;
            }
            if (!object.shared) found.there.push_back(object.name);
            auto other = prepare(
                "SELECT tbl_name FROM sqlite_master WHERE name = " + quote_literal(object.name) +
                " AND tbl_name <> " + quote_literal(object.table));
            if (object.kind != "INDEX" || !other.step()) continue;
            refuse_misplaced_index(
                where_, misplaced_index("index " + object.name + " is of table " + other.string(0) +
                                        ", not of " + object.table));
        }
        return found;
    }

    // Gives the names of what there was.
    std::vector<std::string> uninstall(MigrationSide which) {
        const auto columns = event_table().columns;
        const bool mine = is_native_table(columns);
        const bool ledger = exists("outbox_ledger_segments") && exists("outbox_routes");
        std::string waits;
        std::vector<std::string> names;
        std::string sql;
        for (const std::string_view side : sides_of(which)) {
            for (const Waiting& waiting : kWaiting) {
                const std::string table(waiting.table);
                const bool events = table == "outbox_events";
                if (waiting.side != side || !exists(table) || (events && !mine)) continue;
                const std::string where(events && !ledger ? "" : waiting.where);
                auto count = prepare("SELECT count(*) FROM " + table + " e" + where);
                if (!count.step() || count.integer(0) == 0) continue;
                waits +=
                    (waits.empty() ? "" : ", ") + count.string(0) + " " + std::string(waiting.what);
            }
            for (const MadeObject& object : made_by(side)) {
                if (!exists(object.name) || (object.name == "outbox_events" && !mine)) continue;
                if (object.kind == "INDEX") continue;
                if (object.name == kAudit && !names.empty() &&
                    std::find(names.begin(), names.end(), object.name) != names.end()) {
                    continue;
                }
                names.push_back(object.name);
            }
            sql += drops(side, mine);
        }
        if (!waits.empty()) refuse_uninstall(where_, waits);
        execute(sql);
        if (exists("outbox_migrations")) {
            for (const std::string_view side : sides_of(which)) {
                execute("DELETE FROM outbox_migrations WHERE side = " + quote_literal(side));
            }
            if (!prepare("SELECT 1 FROM outbox_migrations").step()) {
                execute("DROP TABLE outbox_migrations");
            }
        }
        if (!exists("outbox_migrations")) execute("DROP TABLE IF EXISTS outbox_audit");
        std::erase_if(names, [&](const std::string& name) { return exists(name); });
        commit();
        return names;
    }

    bool apply(const EmbeddedMigration& migration, PayloadType payload) override {
        execute(body(migration, payload));
        return true;
    }
    void commit() override { execute("COMMIT"); }
    void finish() override {
        write_ahead();
        if (max_payload_bytes_) change_payload_limit(*max_payload_bytes_);
    }

  private:
    // Where another run is at the same SQLite refuses it at once, whatever its busy timeout.
    void write_ahead() {
        const auto until = std::chrono::steady_clock::now() + patience_;
        while (true) {
            try {
                return execute(kWriteAheadLog);
            } catch (const Error& error) {
                if (error.code() != ErrorCode::kConflict ||
                    std::chrono::steady_clock::now() >= until) {
                    throw;
                }
            }
            std::this_thread::sleep_for(kLookEvery);
        }
    }
    void change_payload_limit(std::int64_t bytes) {
        begin_alone();
        auto larger = prepare(
            "SELECT count(*), coalesce(max(length(CAST(payload AS blob))), 0) FROM "
            "outbox_scheduled WHERE length(CAST(payload AS blob)) > " +
            std::to_string(bytes));
        if (larger.step() && larger.integer(0) > 0) {
            refuse_payload_limit(where_, bytes, larger.integer(0), larger.integer(1));
        }
        larger.reset();
        auto version = prepare("PRAGMA schema_version");
        const std::int64_t next = version.step() ? version.integer(0) + 1 : 1;
        version.reset();
        execute("PRAGMA writable_schema = ON");
        execute(payload_limit(bytes));
        execute("PRAGMA schema_version = " + std::to_string(next));
        execute("PRAGMA writable_schema = OFF");
        commit();
    }

    bool exists(const std::string& name) {
        return prepare("SELECT 1 FROM sqlite_master WHERE name = " + quote_literal(name)).step();
    }

    sqlite::Statement prepare(const std::string& sql) {
        return {database_->handle(), sql, sqlite::Role::kEmit, doing_.c_str()};
    }

    void execute(const std::string& sql) {
        sqlite::execute(database_->handle(), sql.c_str(), sqlite::Role::kEmit, doing_);
    }

    std::unique_ptr<sqlite::Database> database_;
    std::string where_;
    std::string doing_;
    std::chrono::milliseconds patience_;
    std::optional<std::int64_t> max_payload_bytes_;
};

// SQLite keeps both kinds of JSON as text.
MigrateOptions with_one_json(MigrateOptions options) {
    if (options.payload == PayloadType::kJsonb) options.payload = PayloadType::kJson;
    return options;
}

// The path of its URL.
std::string path_of(const std::string& url) {
    const Url parsed = parse_url(url).value_or_throw();
    if (!parsed.path.empty() && parsed.authority.empty()) return parsed.path;
    throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                "'" + redact(url) + "' names no file: write sqlite:///absolute/path");
}

void refuse_segments(const MigrateOptions& options) {
    if (options.layout != TableLayoutKind::kKeep) return;
    throw Error(ErrorCode::kUnsupported, Advice::kStop,
                "SQLite has no tables of segments: after_publish = keep is for PostgreSQL.");
}

std::vector<Migration> migrate(const std::string& url, const MigrateOptions& options) {
    refuse_segments(options);
    SqliteTarget target(path_of(url), options);
    return run_migrations(target, with_one_json(options));
}

std::vector<std::string> uninstall(const std::string& url, const MigrateOptions& options) {
    const std::string path = path_of(url);
    if (::access(path.c_str(), F_OK) != 0) {
        throw Error(ErrorCode::kNoSuchDatabase, Advice::kStop,
                    "There is no database " + path + ".");
    }
    SqliteTarget target(path, options);
    target.begin_alone();
    const auto known = embedded_migrations("sqlite", options.side);
    static_cast<void>(next_migration(known, target.recorded(), target.where()));
    return target.uninstall(options.side);
}

// The shell has to stop at the first error: what counts cannot keep the rest from running.
std::string uninstall_sql(const MigrateOptions& options) {
    std::string sql = ".bail on\nBEGIN IMMEDIATE;\n";
    std::string drop;
    std::string sides;
    for (const std::string_view side : sides_of(options.side)) {
        for (const Waiting& waiting : kWaiting) {
            if (waiting.side != side) continue;
            const std::string name = "outbox_uninstall_" + std::string(waiting.table);
            sql += "CREATE TEMP TABLE " + name + " (n integer CONSTRAINT \"" +
                   std::string(waiting.what) + " wait\" CHECK (n = 0));\nINSERT INTO " + name +
                   " SELECT count(*) FROM " + std::string(waiting.table) + " e" +
                   std::string(waiting.where) + ";\nDROP TABLE " + name + ";\n";
        }
        drop += drops(side, true);
        sides += (sides.empty() ? "" : ", ") + quote_literal(side);
    }
    return sql + drop + "DELETE FROM outbox_migrations WHERE side IN (" + sides + ");\n" +
           (options.side == MigrationSide::kBoth
                ? "DROP TABLE outbox_migrations;\nDROP TABLE IF EXISTS "
                  "outbox_audit;\n"
                : "") +
           "COMMIT;\n";
}

std::string migration_sql(const MigrateOptions& options) {
    refuse_segments(options);
    std::string sql;
    for (const auto& migration : embedded_migrations("sqlite", options.side)) {
        sql += "BEGIN IMMEDIATE;\n" +
               body(migration, options.payload.value_or(PayloadType::kJson)) + "COMMIT;\n\n";
    }
    sql += kWriteAheadLog;
    if (options.max_payload_bytes && options.side != MigrationSide::kConsumer) {
        sql += "PRAGMA writable_schema = ON;\n" + payload_limit(*options.max_payload_bytes) +
               "PRAGMA writable_schema = OFF;\n";
    }
    return sql;
}

}  // namespace

const Migrator& sqlite_migrator() {
    static constexpr std::array<std::string_view, 1> kSchemes{"sqlite"};
    static const Migrator migrator{
        kSchemes, "sqlite:///absolute/path", migrate, uninstall, migration_sql, uninstall_sql};
    return migrator;
}

}  // namespace outbox::producer
