#include "databases/postgres/source/history.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/identity.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/session.h"
#include "databases/postgres/source/check.h"
#include "databases/postgres/source/history_reader.h"
#include "databases/postgres/source/history_scope.h"
#include "databases/postgres/source/route_ledgers.h"
#include "databases/postgres/sql_files.h"
#include "relay/tenants.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kEstimateRows = 20'000;  // in one statement
constexpr char kLifeEnd = '\x1e';              // in front of the end's place
constexpr std::array<std::string_view, 2> kReplayTables{"outbox_replays", "outbox_audit"};

std::string replays_sql(const std::string& quoted_schema) {
    return fill_sql(embedded_sql_text("producer/postgres/replays.sql"), quoted_schema);
}

// The row is from before the floor by the time in its id (UUIDv7), else by when it occurred; as
// `consumer::message_time_us` has it.
std::string is_before(const HistoryScope& scope, std::int64_t floor_us) {
    const std::string& id = scope.id;
    const std::string by_time = scope.time.empty()
                                    ? "false"
                                    : scope.time + " < '1970-01-01 00:00:00+00'::timestamptz + " +
                                          std::to_string(floor_us) + " * interval '1 microsecond'";
    return "CASE WHEN " + id +
           " ~ '^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-7[0-9A-Fa-f]{3}-[89ABab][0-9A-Fa-f]{3}-"
           "[0-9A-Fa-f]{12}$' THEN lower(substr(" +
           id + ", 1, 8) || substr(" + id + ", 10, 4)) COLLATE \"C\" < " +
           quote_literal(replay::uuid7_digits(floor_us)) + " ELSE " + by_time + " END";
}

class PostgresHistory final : public replay::History {
  public:
    PostgresHistory(PostgresSourceConfig config, Table table, std::string side_schema)
        : config_(std::move(config)),
          table_(std::move(table)),
          side_schema_(std::move(side_schema)),
          session_(
              config_,
              [this](Connection& made) {
                  made.name_holders(config_.url, config_.connect_timeout_s);
                  return Status();
              },
              table_.path) {}

    [[nodiscard]] std::string table_name() const override {
        return table_.schema + "." + table_.name;
    }

    Result<Route> select(const replay::Selection& selection,
                         const core::Predicate& predicate) override {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        // First of all: what is asked of another table after it fails with the first page.
        life_.clear();
        if (!selection.dead) {
            const Result<Rows> life = (*connection)->query("SELECT " + life_of(table_), {});
            if (!life.ok()) return life.status();
            life_ = life->string(0, 0);
        }
        const Result<Rows> rows =
            (*connection)
                ->query("SELECT source, coalesce(destination, ''), " +
                            std::string(table_.keep ? "settled" : "0") + "::bigint FROM " +
                            table_.side + "outbox_routes WHERE " + kOfTable +
                            " AND route = $2 ORDER BY source",
                        Params().text(table_name()).text(selection.route));
        if (!rows.ok()) return rows.status();
        std::vector<std::string> sources;
        for (int row = 0; row < rows->size(); ++row) sources.push_back(rows->string(row, 0));
        const auto chosen = replay::choose_source(sources, table_name(), selection);
        if (!chosen.ok()) return chosen.status();
        const int row = static_cast<int>(*chosen);
        route_ = selection.route;
        source_ = sources[*chosen];
        if (!selection.dead && table_.keep) {
            const auto other = is_other_table(**connection, table_);
            if (!other.ok()) return other.status();
            if (*other) return ledgers_of_another();
        }
        if (selection.dead) {
            scope_ = dead_scope(table_, source_, selection, config_.default_tenant);
        } else {
            auto scope =
                published_scope(table_, config_, selection, predicate, source_,
                                relay::tenants_of(source_, table_name()), rows->integer(row, 2));
            if (!scope.ok()) return scope.status();
            scope_ = std::move(*scope);
        }
        return Route{rows->string(row, 1)};
    }

    Result<replay::Estimate> estimate(const std::vector<std::int64_t>& floors,
                                      const std::function<void(std::int64_t)>& seen) override {
        replay::Estimate estimate;
        estimate.before.assign(floors.size(), 0);
        while (true) {
            const Result<Connection*> connection = session_.get();
            if (!connection.ok()) return connection.status();
            const auto last = last_of_page(**connection, scope_, estimate.end, {}, kEstimateRows);
            if (!last.ok()) return last.status();
            if (last->empty()) {
                const auto behind = count_behind(**connection);
                if (!behind.ok()) return behind.status();
                estimate.left_out = *behind;
                if (!life_.empty()) estimate.end = life_ + kLifeEnd + estimate.end;
                return estimate;
            }
            if (Status status = count_page(**connection, floors, *last, estimate); !status.ok()) {
                return status;
            }
            estimate.end = *last;
            seen(estimate.looked_at);
        }
    }

    Result<std::unique_ptr<replay::HistoryReader>> open_reader(const replay::Place& after,
                                                               const replay::Place& end) override {
        const std::size_t at = end.find(kLifeEnd);
        const bool told = at != std::string::npos;  // runs of earlier versions do not
        return std::unique_ptr<replay::HistoryReader>(
            new PostgresHistoryReader(config_, table_, scope_, told ? end.substr(0, at) : life_,
                                      after, told ? end.substr(at + 1) : end));
    }

    Result<Load> load(std::int64_t most) override {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        const std::string unfinished =
            table_.keep ? "t." + quote_identifier(table_.position) + " > (SELECT settled FROM " +
                              table_.side + "outbox_routes WHERE source = $1 AND route = $2)"
                        : any_unfinished(table_);
        const Result<Rows> rows =
            (*connection)
                ->query("SELECT (SELECT count(*) FROM (SELECT FROM " + table_.sql + " t WHERE " +
                            unfinished + " LIMIT $3) w), coalesce((SELECT sum(rate_per_s) FROM " +
                            table_.side +
                            "outbox_route_stats WHERE source = $1 AND route = $2 AND updated_at > "
                            "clock_timestamp() - interval '15 seconds'), 0)",
                        Params().text(source_).text(route_).integer(most));
        if (!rows.ok()) return rows.status();
        return Load{rows->integer(0, 0), std::strtod(rows->string(0, 1).c_str(), nullptr)};
    }

    Result<std::vector<Row>> run(const std::string& sql,
                                 const std::vector<std::string>& parameters) override {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        Params params;
        for (const std::string& parameter : parameters) params.untyped(parameter);
        const Result<Rows> result = (*connection)->query(sql, params);
        if (!result.ok()) {
            session_.failed();
            return result.status();
        }
        std::vector<Row> rows;
        for (int row = 0; row < result->size(); ++row) {
            Row cells;
            for (int column = 0; column < result->columns(); ++column) {
                cells.push_back(result->string(row, column));
            }
            rows.push_back(std::move(cells));
        }
        return rows;
    }

    [[nodiscard]] std::string named(const std::string& table) const override {
        return table_.side + table;
    }
    [[nodiscard]] std::string in_ms(const std::string& milliseconds) const override {
        if (milliseconds == "0") return "clock_timestamp()";
        return "clock_timestamp() + " + milliseconds + " * interval '1 millisecond'";
    }
    [[nodiscard]] std::string us(const std::string& column) const override {
        return "(extract(epoch FROM " + column + ") * 1000000)::bigint";
    }
    [[nodiscard]] std::string audit(const std::string& columns,
                                    const std::string& values) const override {
        return "INSERT INTO " + named("outbox_audit") + " (" + columns + ", event_ids) VALUES (" +
               values + ", '{}')";
    }

    Result<bool> has_table() override {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        const Result<Rows> there = (*connection)
                                       ->query("SELECT to_regclass($1) IS NOT NULL",
                                               Params().text(named("outbox_replays")));
        if (!there.ok()) {
            session_.failed();
            return there.status();
        }
        if (!there->boolean(0, 0)) return false;
        if (Status trusted = check_owners(**connection); !trusted.ok()) return trusted;
        return true;
    }

    Status make_table() override {
        const auto there = has_table();
        if (!there.ok() || *there) return there.status();
        if (table_.native) return replay::no_runs();
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        if (Status made = make_beside(**connection); !made.ok()) return made;
        return check_owners(**connection);
    }

  private:
    Result<std::int64_t> count_behind(Connection& connection) const {
        if (scope_.behind.empty()) return std::int64_t{0};
        const Result<Rows> rows =
            connection.query("SELECT count(*) FROM (SELECT FROM " + scope_.from + " WHERE " +
                                 scope_.behind + " AND " + scope_.wanted + " LIMIT $1) b",
                             Params().integer(replay::kMostLeftOut));
        if (!rows.ok()) return rows.status();
        return rows->integer(0, 0);
    }

    Status check_owners(Connection& connection) const {
        const Result<Rows> foreign = connection.query(
            foreign_objects_sql(side_schema_, kReplayTables, {config_.owners, true}));
        if (!foreign.ok()) return foreign.status();
        return foreign->empty() ? Status() : Status(foreign_owner(foreign->string(0, 0)));
    }

    // Two that begin at once would collide in IF NOT EXISTS.
    Status make_beside(Connection& connection) const {
        const std::string sql = replays_sql(quote_identifier(side_schema_));
        Status made = connection.execute(
            "BEGIN; " + std::string(kCatalogPath) +
            "SELECT pg_advisory_xact_lock(hashtextextended('outbox side tables', 0)); " + sql +
            "COMMIT");
        if (made.ok()) return made;
        ErrorInfo error = made.error();
        if (Status back = connection.execute("ROLLBACK"); !back.ok()) return back;
        error.code = ErrorCode::kNoRights;
        error.message = "the table of replays is missing and cannot be made: " + error.message +
                        "; have an owner run:\n" + sql;
        return error;
    }

    Status count_page(Connection& connection, const std::vector<std::int64_t>& floors,
                      const replay::Place& last, replay::Estimate& estimate) {
        const std::string filter = " FILTER (WHERE " + scope_.wanted + ")";
        const std::string time = scope_.time.empty() ? "NULL::bigint"
                                                     : "CASE WHEN isfinite(" + scope_.time +
                                                           ") THEN (extract(epoch FROM " +
                                                           scope_.time + ") * 1000000)::bigint END";
        std::string sql = "SELECT count(*), count(*)" + filter + ", coalesce(sum(" + scope_.size +
                          ")" + filter + ", 0)::bigint, coalesce(min(" + time + ")" + filter +
                          ", 0), coalesce(max(" + time + ")" + filter + ", 0)";
        for (const std::int64_t floor_us : floors) {
            sql += ", count(*) FILTER (WHERE " + scope_.wanted + " AND " +
                   is_before(scope_, floor_us) + ")";
        }
        const Result<Rows> rows = connection.query(
            sql + " FROM " + scope_.from + " WHERE " + scope_.there + " AND " +
            scope_.compared(">", estimate.end) + " AND " + scope_.compared("<=", last));
        if (!rows.ok()) return rows.status();
        estimate.looked_at += rows->integer(0, 0);
        estimate.events += rows->integer(0, 1);
        estimate.bytes += rows->integer(0, 2);
        replay::widen(estimate, rows->integer(0, 3), rows->integer(0, 4));
        for (std::size_t i = 0; i < floors.size(); ++i) {
            estimate.before[i] += rows->integer(0, static_cast<int>(5 + i));
        }
        return {};
    }

    const PostgresSourceConfig config_;
    const Table table_;
    const std::string side_schema_;
    Session session_;
    HistoryScope scope_;
    std::string life_;  // of the table; empty: nothing has to tell it from another
    std::string route_;
    std::string source_;
};

}  // namespace

Result<std::unique_ptr<replay::History>> open_history(const PostgresSourceConfig& config) {
    auto connection = Connection::open(config.url, config.connect_timeout_s);
    if (!connection.ok()) return connection.status();
    connection->name_holders(config.url, config.connect_timeout_s);
    PostgresSourceConfig looking = config;
    looking.tenants.clear();  // the selection says which
    auto table = resolve_table(*connection, looking);
    if (!table.ok()) return table.status();
    const auto side = look_for_side_tables(*connection, quote_identifier(table->schema));
    if (!side.ok()) return side.status();
    if (side->none) return replay::no_relay(table->sql);
    table->side = quote_identifier(side->schema) + ".";
    Status status = require_owners(*connection, side->schema, config, &*table);
    if (status.ok()) status = require_known_version(*connection, *table);
    if (!status.ok()) return status;
    return std::unique_ptr<replay::History>(
        new PostgresHistory(std::move(looking), *std::move(table), side->schema));
}

}  // namespace outbox::postgres
