#include "databases/sqlite/source/source.h"

#include <utility>

#include "core/delayed.h"
#include "core/embedded_sql.h"
#include "core/sql_text.h"
#include "core/table_shape.h"
#include "databases/sqlite/client.h"
#include "databases/sqlite/record/ledger.h"
#include "databases/sqlite/record/recorder.h"
#include "databases/sqlite/source/identity.h"
#include "databases/sqlite/source/lease.h"
#include "databases/sqlite/source/position_reader.h"
#include "databases/sqlite/source/scan_reader.h"
#include "databases/sqlite/source/table.h"
#include "relay/restoring_lease.h"

namespace outbox::sqlite {
namespace {

// `complete`: all side tables and the index that they need are there; `none`: not one is there that
// consumers have not, too.
struct SideTables {
    bool complete = false;
    bool none = false;
};

Result<SideTables> look_for_side_tables(Database& database) {
    Statement count(database,
                    "SELECT count(*), coalesce(sum(name <> 'outbox_audit'), 0) FROM sqlite_master "
                    "WHERE name IN ('outbox_lease', "
                    "'outbox_routes', 'outbox_ledger_segments', 'outbox_route_done', "
                    "'outbox_delivery', 'outbox_dead_letters', 'outbox_route_stats', "
                    "'outbox_standbys', 'outbox_audit') OR (name = 'outbox_dead_letters_event' AND "
                    "tbl_name = 'outbox_dead_letters')");
    const bool row = count.step();
    const SideTables tables{row && count.integer(0) == 10, !row || count.integer(1) == 0};
    if (Status status = count.status(); !status.ok()) return status;
    return tables;
}

// CREATE INDEX IF NOT EXISTS goes by the name alone.
Status require_own_index(Database& database) {
    Statement look(database,
                   "SELECT tbl_name FROM sqlite_master WHERE name = 'outbox_dead_letters_event' "
                   "AND tbl_name <> 'outbox_dead_letters'");
    if (!look.step()) return look.status();
    return {ErrorCode::kTableShape, Advice::kStop,
            misplaced_index("index outbox_dead_letters_event is of table " +
                            std::string(look.text(0)) + ", not of outbox_dead_letters")};
}

// True: some were missing.
Result<bool> make_side_tables(Database& database) {
    const auto side = look_for_side_tables(database);
    if (!side.ok()) return side.status();
    if (side->complete) return false;
    const std::string sql(embedded_sql_text("producer/sqlite/side_tables.sql"));
    if (Status status = database.execute(sql); !status.ok()) return status;
    if (Status index = require_own_index(database); !index.ok()) return index;
    return true;
}

class SqliteSource final : public spi::Source {
  public:
    SqliteSource(SqliteSourceConfig config, Table table)
        : config_(std::move(config)),
          table_(std::move(table)),
          identity_(table_),
          positions_(table_.native ? nullptr : std::make_shared<relay::PositionMap>()) {}

    [[nodiscard]] std::string table_name() const override { return table_.name; }
    [[nodiscard]] bool stable_positions() const override { return table_.native; }

    [[nodiscard]] bool writes_concurrently() const override { return false; }

    // All that the last term had is closed by now.
    void begin_term() override { identity_.begin_term(); }

    Result<std::unique_ptr<spi::Reader>> open_reader(const std::string& route,
                                                     spi::PositionSet finished) override {
        if (table_.native) {
            return std::unique_ptr<spi::Reader>(
                new PositionReader(table_, identity_, std::move(finished)));
        }
        return std::unique_ptr<spi::Reader>(new ScanReader(table_, identity_, route, positions_));
    }
    Result<std::unique_ptr<spi::Recorder>> open_recorder() override {
        return std::unique_ptr<spi::Recorder>(
            std::make_unique<SqliteRecorder>(table_, identity_, positions_));
    }
    Result<std::unique_ptr<spi::LeaseStore>> open_lease() override {
        auto lease = std::make_unique<SqliteLease>(table_, identity_);
        if (!config_.make_side_tables) return {std::move(lease)};
        return std::unique_ptr<spi::LeaseStore>(std::make_unique<relay::RestoringLease>(
            std::move(lease), [this] { return restore_side_tables(); }));
    }

    // The same as at a start, in a transaction that is rolled back.
    Result<spi::Beginning> preview(std::span<const spi::RouteName> routes) override {
        auto database = Database::open(table_.path, table_.busy_timeout_ms);
        if (!database.ok()) return database.error();
        const auto side = look_for_side_tables(**database);
        if (!side.ok()) return side.status();
        if (!side->complete) return Source::preview(routes);
        WriteTransaction write(**database);
        if (Status status = write.begin(); !status.ok()) return status;
        return Ledger(table_).begin(**database, routes);
    }

    Result<std::vector<spi::Finding>> check() override {
        auto database = Database::open(table_.path, table_.busy_timeout_ms);
        if (!database.ok()) return database.error();
        using enum spi::Finding::Grade;
        std::vector<spi::Finding> findings;
        const std::string shape = table_.native           ? "the table of outbox migrate"
                                  : table_.preset.empty() ? "mapped by [source.table]"
                                                          : "preset " + table_.preset;
        findings.push_back({kOk,
                            "table " + table_.name + " in " + table_.path + ": " + shape +
                                (table_.deletes_unasked ? ""
                                 : table_.mark          ? "; published rows are marked"
                                                        : "; published rows are deleted"),
                            {}});
        if (table_.deletes_unasked) {
            findings.push_back(
                {kFail, "after publish: " + table_.deletion_refusal(table_.sql).message, {}});
        }
        findings.push_back({kOk,
                            "order: kept per key; SQLite has one writer at a time, so that the "
                            "order of rows is the order of commits",
                            {}});
        if (Status status = tell_index(**database, findings); !status.ok()) return status;
        const auto side = look_for_side_tables(**database);
        if (!side.ok()) return side.status();
        if (!side->complete) {
            findings.push_back(
                {kOk,
                 std::string("side tables: ") +
                     (side->none ? "they are missing" : "a part of them is missing") +
                     "; the relay makes them when it starts",
                 {}});
        }
        if (Status index = require_own_index(**database); !index.ok()) {
            if (index.error().code != ErrorCode::kTableShape) return index;
            findings.push_back({kFail, "side tables: " + index.error().message, {}});
        }
        if (Status status = tell_delayed(**database, findings); !status.ok()) return status;
        Statement mode(**database, "PRAGMA journal_mode");
        const bool wal = mode.step() && mode.text(0) == "wal";
        findings.push_back(
            {wal ? kOk : kWarn,
             wal ? "journal: write-ahead log"
                 : "journal: no write-ahead log, so that reading and writing wait for each "
                   "other. PRAGMA journal_mode = WAL",
             wal ? "" : "PRAGMA journal_mode = WAL"});
        if (Status status = mode.status(); !status.ok()) return status;
        WriteTransaction write(**database);
        const Status writable = write.begin();
        findings.push_back({writable.ok() ? kOk : kFail,
                            writable.ok() ? "rights: this user may write to the file"
                                          : "rights: " + writable.error().message,
                            {}});
        return findings;
    }

  private:
    // The plan of a read that no index serves scans the table; one without a state has no other
    // rows to step over.
    Status tell_index(Database& database, std::vector<spi::Finding>& findings) const {
        for (const std::string& condition : unfinished_conditions(table_)) {
            if (condition == "1") continue;
            Statement plan(database, "EXPLAIN QUERY PLAN SELECT t.* FROM " + table_.sql +
                                         " t WHERE " + condition + " ORDER BY t." + table_.order +
                                         " LIMIT 500");
            bool served = true;
            while (plan.step()) {
                const std::string line = plan.string(3);
                const bool scans = line.starts_with("SCAN") || line.starts_with("USE TEMP");
                served = served && (!scans || line.find("INDEX") != std::string::npos);
            }
            if (Status status = plan.status(); !status.ok()) return status;
            if (served) continue;
            std::string where = condition;
            for (auto at = where.find("t.\""); at != std::string::npos; at = where.find("t.\"")) {
                where.erase(at, 2);
            }
            const std::string column = where.substr(0, where.find('"', 1) + 1);
            const std::string sql = "CREATE INDEX " + quote_identifier(table_.name + "_unsent") +
                                    " ON " + table_.sql + " (" + column + ")";
            findings.push_back({spi::Finding::Grade::kWarn,
                                "index: none serves the read of rows WHERE " + where +
                                    "; each read scans the whole table. " + sql,
                                sql});
            return {};
        }
        findings.push_back({spi::Finding::Grade::kOk, "index: the read is served by an index", {}});
        return {};
    }

    // A relay that leads moves them within seconds, unless the table refuses them.
    Status tell_delayed(Database& database, std::vector<spi::Finding>& findings) const {
        if (!table_.native) return {};
        Statement there(database, "SELECT 1 FROM sqlite_master WHERE name = 'outbox_scheduled'");
        if (!there.step()) return there.status();
        Statement overdue(database,
                          "SELECT count(*), coalesce(min(id), '') FROM (SELECT id FROM "
                          "outbox_scheduled WHERE available_at < ?1 ORDER BY available_at LIMIT " +
                              std::to_string(core::kMaxOverdue) + ")");
        overdue.bind(now_us() - core::kOverdueS * 1'000'000);
        if (!overdue.step()) return overdue.status();
        findings.push_back(core::judge_delayed(overdue.integer(0), overdue.string(1)));
        return {};
    }

    // Beside the same table in another file.
    [[nodiscard]] Result<bool> restore_side_tables() const {
        // They come with a dump that is restored, or a migration.
        if (table_.native) return false;
        auto database = Database::open(table_.path, table_.busy_timeout_ms);
        if (!database.ok()) return database.error();
        Table table = table_;
        if (Status there = resolve_table(**database, config_, table); !there.ok()) return there;
        return make_side_tables(**database);
    }

    const SqliteSourceConfig config_;
    const Table table_;
    Identity identity_;  // used by the lease, the readers and the recorders
    // Shared with the readers and recorders, which must mean the same row by a position. Null
    // where rows have positions.
    const std::shared_ptr<relay::PositionMap> positions_;
};

}  // namespace

Result<std::unique_ptr<spi::Source>> make_sqlite_source(const SqliteSourceConfig& config) {
    Result<Table> table = name_table(config);
    if (!table.ok()) return table.status();
    auto database = Database::open(table->path, table->busy_timeout_ms);
    if (!database.ok()) return database.error();
    if (Status status = resolve_table(**database, config, *table); !status.ok()) return status;
    if (Status known = require_known_version(**database, *table); !known.ok()) return known;
    if (config.make_side_tables && table->deletes_unasked) {
        return table->deletion_refusal(table->sql);
    }
    if (config.make_side_tables) {
        if (const auto made = make_side_tables(**database); !made.ok()) return made.status();
    } else {
        const auto side = look_for_side_tables(**database);
        if (!side.ok()) return side.status();
        table->has_side_tables = !side->none;
    }
    return std::unique_ptr<spi::Source>(std::make_unique<SqliteSource>(config, *std::move(table)));
}

}  // namespace outbox::sqlite
