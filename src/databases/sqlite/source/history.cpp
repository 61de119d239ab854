#include "databases/sqlite/source/history.h"

#include <utility>

#include "core/embedded_sql.h"
#include "core/sql_text.h"
#include "databases/sqlite/client.h"
#include "databases/sqlite/source/history_reader.h"
#include "databases/sqlite/source/route_ledgers.h"
#include "databases/sqlite/source/scan_reader.h"
#include "databases/sqlite/source/table.h"
#include "relay/tenants.h"

namespace outbox::sqlite {
namespace {

constexpr std::size_t kEstimateRows = 20'000;  // in one statement
constexpr std::int64_t kRateCountsUs = 15'000'000;
constexpr const char* kNow = "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)";

std::string list_of_literals(const std::vector<std::string>& values) {
    std::string list;
    for (const std::string& value : values) {
        list += (list.empty() ? "(" : ", ") + quote_literal(value);
    }
    return list + ")";
}

std::string field_or_null(const Table& table, const char* field) {
    return table.has(field) ? table.quoted(field) : std::string("NULL");
}

std::string published_condition(const Table& table) {
    if (table.has("status")) {
        return table.quoted("status") + " = " + quote_literal(table.mapping.sent_value);
    }
    if (table.has("processed")) return table.quoted("processed") + " = 1";
    return table.quoted(table.has("processed_at") ? "processed_at" : "published_at") +
           " IS NOT NULL";
}

// `field` gives a field of the row as SQL.
template <typename Field>
std::string selected(const replay::Selection& selection, const std::string& default_tenant,
                     const std::string& time, Field field) {
    std::string wanted = "true";
    if (selection.since_us != 0)
        wanted += " AND " + time + " >= " + std::to_string(selection.since_us);
    if (selection.until_us != 0)
        wanted += " AND " + time + " < " + std::to_string(selection.until_us);
    if (!selection.key.empty()) {
        wanted += " AND coalesce(nullif(" + field("key") + ", ''), " + field("aggregate_id") +
                  ") = " + quote_literal(selection.key);
    }
    if (!selection.event_type.empty()) {
        wanted += " AND " + field("event_type") + " = " + quote_literal(selection.event_type);
    }
    if (!selection.tenants.empty()) {
        wanted += " AND " + tenant_or(field("tenant_id"), default_tenant) + " IN " +
                  list_of_literals(selection.tenants);
    }
    return wanted;
}

HistoryScope dead_scope(const std::string& source, const replay::Selection& selection,
                        const std::string& default_tenant) {
    HistoryScope scope;
    scope.from = "outbox_dead_letters t";
    scope.order = "t.dead_id";
    scope.there = "t.source = " + quote_literal(source) +
                  " AND t.route = " + quote_literal(selection.route) +
                  " AND t.retry_requested_at IS NULL AND NOT t.unmatched";
    scope.select =
        "'text', t.id, t.aggregate_type, t.aggregate_id, t.event_type, t.payload, t.headers, "
        "t.tenant_id, t.schema_id, t.schema_version, t.topic, t.key, t.routing_key, t.metadata, "
        "t.occurred_at, NULL, NULL, " +
        scope.place();
    scope.id = "t.id";
    scope.time = "t.occurred_at";
    scope.letters = true;
    scope.wanted = selected(selection, default_tenant, scope.time,
                            [](const char* field) { return std::string("t.") + field; });
    return scope;
}

Result<HistoryScope> published_scope(const Table& table, const replay::Selection& selection,
                                     const core::Predicate& predicate, const std::string& source,
                                     const std::vector<std::string>& tenants) {
    if (!table.mark) return replay::no_history(table.sql, false);
    const bool timed = table.has("occurred_at");
    if (!timed && (selection.since_us != 0 || selection.until_us != 0)) {
        return replay::no_times(table.sql);
    }
    if (!selection.tenants.empty() && !table.has("tenant_id")) {
        return replay::no_tenants(table.sql);
    }
    HistoryScope scope;
    scope.from = table.sql + " t";
    scope.order = "t." + table.order;
    if (!table.tie.empty()) scope.tie = "t." + table.tie;
    scope.there = published_condition(table) + " AND " + table.quoted("id") + " IS NOT NULL AND " +
                  scope.order + " IS NOT NULL";
    scope.select = scan_columns(table) + ", " + scope.place();
    scope.id = table.quoted("id");
    scope.time = timed ? microseconds_of(table.quoted("occurred_at")) : "NULL";
    const auto field = [&](const char* name) { return field_or_null(table, name); };
    scope.wanted = selected(selection, table.default_tenant, scope.time, field);
    const auto lists = [&](const char* name, const std::vector<std::string>& values) {
        if (values.empty()) return;
        scope.wanted += " AND coalesce(" + field(name) + ", '') IN " + list_of_literals(values);
    };
    lists("aggregate_type", predicate.aggregate_types);
    lists("event_type", predicate.event_types);
    lists("topic", predicate.topics);
    lists("tenant_id", predicate.tenants);
    // What is a dead letter of the route is done with and was not published.
    const auto ids = event_ids(table);
    scope.wanted += " AND NOT EXISTS (SELECT 1 FROM outbox_dead_letters d WHERE d.source = " +
                    quote_literal(source) + " AND d.route = " + quote_literal(selection.route) +
                    " AND d.id IN (" + ids[0] + ", " + ids[1] + "))";
    if (!tenants.empty()) {
        scope.wanted += " AND " + tenant_or(field("tenant_id"), table.default_tenant) + " IN " +
                        list_of_literals(tenants);
    }
    return scope;
}

// By the time in its id (UUIDv7), else by when it occurred; as `consumer::message_time_us` has it.
std::string is_before(const HistoryScope& scope, std::int64_t floor_us) {
    const std::string& id = scope.id;
    const auto digits = [](std::size_t count) {
        std::string pattern;
        for (std::size_t i = 0; i < count; ++i) pattern += "[0-9A-Fa-f]";
        return pattern;
    };
    const std::string form =
        digits(8) + "-" + digits(4) + "-7" + digits(3) + "-[89ABab]" + digits(3) + "-" + digits(12);
    return "CASE WHEN typeof(" + id + ") = 'text' AND " + id + " GLOB '" + form +
           "' THEN lower(substr(" + id + ", 1, 8) || substr(" + id + ", 10, 4)) < " +
           quote_literal(replay::uuid7_digits(floor_us)) + " ELSE " + scope.time + " < " +
           std::to_string(floor_us) + " END";
}

class SqliteHistory final : public replay::History {
  public:
    explicit SqliteHistory(Table table)
        : table_(std::move(table)), session_(table_.path, table_.busy_timeout_ms) {}

    [[nodiscard]] std::string table_name() const override { return table_.name; }

    Result<Route> select(const replay::Selection& selection,
                         const core::Predicate& predicate) override {
        const Result<Database*> database = session_.get();
        if (!database.ok()) return database.status();
        Statement routes(**database,
                         "SELECT source, coalesce(destination, '') FROM outbox_routes WHERE " +
                             std::string(kOfTable) + " AND route = ?2 ORDER BY source");
        routes.bind(table_.name).bind(selection.route);
        std::vector<std::string> sources;
        std::vector<std::string> destinations;
        while (routes.step()) {
            sources.push_back(routes.string(0));
            destinations.push_back(routes.string(1));
        }
        if (Status status = routes.status(); !status.ok()) return status;
        const auto chosen = replay::choose_source(sources, table_.name, selection);
        if (!chosen.ok()) return chosen.status();
        source_ = sources[*chosen];
        route_ = selection.route;
        if (selection.dead) {
            scope_ = dead_scope(source_, selection, table_.default_tenant);
        } else {
            auto scope = published_scope(table_, selection, predicate, source_,
                                         relay::tenants_of(source_, table_.name));
            if (!scope.ok()) return scope.status();
            scope_ = std::move(*scope);
        }
        return Route{destinations[*chosen]};
    }

    Result<replay::Estimate> estimate(const std::vector<std::int64_t>& floors,
                                      const std::function<void(std::int64_t)>& seen) override {
        replay::Estimate estimate;
        estimate.before.assign(floors.size(), 0);
        while (true) {
            const Result<Database*> database = session_.get();
            if (!database.ok()) return database.status();
            const auto last = last_of_page(**database, scope_, estimate.end, {}, kEstimateRows);
            if (!last.ok()) return last.status();
            if (last->empty()) return estimate;
            if (Status status = count_page(**database, floors, *last, estimate); !status.ok()) {
                return status;
            }
            estimate.end = *last;
            seen(estimate.looked_at);
        }
    }

    Result<std::unique_ptr<replay::HistoryReader>> open_reader(const replay::Place& after,
                                                               const replay::Place& end) override {
        return std::unique_ptr<replay::HistoryReader>(
            new SqliteHistoryReader(table_, scope_, after, end));
    }

    Result<Load> load(std::int64_t most) override {
        const Result<Database*> database = session_.get();
        if (!database.ok()) return database.status();
        Statement look(**database,
                       "SELECT (SELECT count(*) FROM (SELECT 1 FROM " + table_.sql + " t WHERE (" +
                           any_unfinished(table_) +
                           ") LIMIT ?1)), coalesce((SELECT sum(rate_per_s) FROM "
                           "outbox_route_stats WHERE source = ?2 AND route = ?3 AND updated_at > "
                           "?4), 0)");
        look.bind(most).bind(source_).bind(route_).bind(now_us() - kRateCountsUs);
        Load load;
        if (look.step()) load = {look.integer(0), look.number(1)};
        if (Status status = look.status(); !status.ok()) return status;
        return load;
    }

    Result<std::vector<Row>> run(const std::string& sql,
                                 const std::vector<std::string>& parameters) override {
        const Result<Database*> database = session_.get();
        if (!database.ok()) return database.status();
        Statement statement(**database, sql);
        for (const std::string& parameter : parameters) statement.bind(parameter);
        std::vector<Row> rows;
        while (statement.step()) {
            Row cells;
            for (int column = 0; column < statement.columns(); ++column) {
                cells.push_back(statement.string(column));
            }
            rows.push_back(std::move(cells));
        }
        if (Status status = statement.status(); !status.ok()) return status;
        return rows;
    }

    [[nodiscard]] std::string named(const std::string& table) const override { return table; }
    [[nodiscard]] std::string in_ms(const std::string& milliseconds) const override {
        return milliseconds == "0" ? kNow : kNow + (" + " + milliseconds + " * 1000");
    }
    [[nodiscard]] std::string us(const std::string& column) const override { return column; }
    [[nodiscard]] std::string audit(const std::string& columns,
                                    const std::string& values) const override {
        return "INSERT INTO outbox_audit (" + columns + ", at, event_ids) VALUES (" + values +
               ", " + kNow + ", '[]')";
    }

    Result<bool> has_table() override {
        const Result<Database*> database = session_.get();
        if (!database.ok()) return database.status();
        Statement look(**database,
                       "SELECT 1 FROM sqlite_master WHERE name = 'outbox_replays' AND type = "
                       "'table'");
        const bool there = look.step();
        if (Status status = look.status(); !status.ok()) return status;
        return there;
    }

    Status make_table() override {
        const auto there = has_table();
        if (!there.ok() || *there) return there.status();
        if (table_.native) return replay::no_runs();
        const Result<Database*> database = session_.get();
        if (!database.ok()) return database.status();
        return (*database)->execute(std::string(embedded_sql_text("producer/sqlite/replays.sql")));
    }

  private:
    Status count_page(Database& database, const std::vector<std::int64_t>& floors,
                      const replay::Place& last, replay::Estimate& estimate) const {
        const std::string filter = " FILTER (WHERE " + scope_.wanted + ")";
        const std::string payload = scope_.letters ? "t.payload" : table_.quoted("payload");
        std::string sql = "SELECT count(*), count(*)" + filter + ", coalesce(sum(length(CAST(" +
                          payload + " AS blob)))" + filter + ", 0), coalesce(min(" + scope_.time +
                          ")" + filter + ", 0), coalesce(max(" + scope_.time + ")" + filter +
                          ", 0)";
        for (const std::int64_t floor_us : floors) {
            sql += ", count(*) FILTER (WHERE " + scope_.wanted + " AND " +
                   is_before(scope_, floor_us) + ")";
        }
        Statement row(database, sql + " FROM " + scope_.from + " WHERE " + scope_.there + " AND " +
                                    compared(scope_, ">", estimate.end) + " AND " +
                                    compared(scope_, "<=", last));
        if (row.step()) {
            estimate.looked_at += row.integer(0);
            estimate.events += row.integer(1);
            estimate.bytes += row.integer(2);
            replay::widen(estimate, row.integer(3), row.integer(4));
            for (std::size_t i = 0; i < floors.size(); ++i) {
                estimate.before[i] += row.integer(static_cast<int>(5 + i));
            }
        }
        return row.status();
    }

    const Table table_;
    Session session_;
    HistoryScope scope_;
    std::string route_;
    std::string source_;
};

}  // namespace

Result<std::unique_ptr<replay::History>> open_history(const SqliteSourceConfig& config) {
    SqliteSourceConfig looking = config;
    looking.tenants.clear();  // the selection says which
    Result<Table> table = name_table(looking);
    if (!table.ok()) return table.status();
    auto database = Database::open(table->path, table->busy_timeout_ms);
    if (!database.ok()) return database.error();
    Status status = resolve_table(**database, looking, *table);
    if (status.ok()) status = require_known_version(**database, *table);
    if (!status.ok()) return status;
    Statement routes(**database, "SELECT 1 FROM sqlite_master WHERE name = 'outbox_routes'");
    const bool there = routes.step();
    if (status = routes.status(); !status.ok()) return status;
    if (!there) return replay::no_relay(table->sql);
    return std::unique_ptr<replay::History>(new SqliteHistory(*std::move(table)));
}

}  // namespace outbox::sqlite
