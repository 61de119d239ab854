#include "databases/postgres/source/trace.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/ascii.h"
#include "core/sql_text.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/source/check.h"
#include "databases/postgres/source/operations.h"
#include "databases/postgres/source/route_ledgers.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/source/writers.h"
#include "relay/tenants.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kOfOneId = 10;  // rows that may share it

// From year 1 to 9999, infinite times included; 0 for none.
std::string time_us(const std::string& time) {
    return "CASE WHEN " + time + " IS NULL THEN 0 ELSE (least(greatest(extract(epoch FROM " + time +
           "), -62135596800), 253402300799) * 1000000)::bigint END";
}

// What rows of a table have for a field, as text; '' where there is nothing.
std::string field_of(const Table& table, const char* field) {
    return table.has(field) ? "coalesce(" + table.quoted(field) + "::text, '')" : std::string("''");
}

std::string key_of(const Table& table) {
    const std::string id = field_of(table, "aggregate_id");
    return table.has("key") ? "coalesce(nullif(" + table.quoted("key") + "::text, ''), " + id + ")"
                            : id;
}

std::string tenant_of(const Table& table, const std::string& by_default) {
    if (!table.has("tenant_id")) return quote_literal(by_default);
    return tenant_or(table.quoted("tenant_id") + "::text", by_default);
}

class PostgresTracer final : public EventTracer {
  public:
    PostgresTracer(Connection connection, PostgresSourceConfig config, Table table,
                   const SideTables& side)
        : connection_(std::move(connection)),
          config_(std::move(config)),
          table_(std::move(table)),
          has_audit_(side.missing.find("outbox_audit") == std::string::npos && !side.none),
          position_(table_.by_position ? "t." + quote_identifier(table_.position) + "::bigint"
                                       : "0::bigint"),
          about_{.name = table_.schema + "." + table_.name,
                 .removes = !table_.mark && !table_.keep,
                 .keeps_ledger = table_.by_position,
                 .ids_are_uuids = table_.uuid_id,
                 .tells_writers = true} {}

    // Whether the ledgers are of the table, and which others relays have served by the same side
    // tables.
    Status look_at_ledgers() {
        if (!table_.has_side_tables) return {};
        const auto other = is_other_table(connection_, table_);
        if (!other.ok()) return other.status();
        about_.is_other = *other;
        const auto rows = connection_.query(
            "SELECT DISTINCT split_part(source, '/', 1) FROM " + table_.side +
                "outbox_routes WHERE source <> $1 AND NOT starts_with(source, $1 || '/') ORDER BY "
                "1 LIMIT 10",
            Params().text(about_.name));
        if (!rows.ok()) return rows.status();
        for (int row = 0; row < rows->size(); ++row) {
            about_.others.push_back(rows->string(row, 0));
        }
        return {};
    }

    [[nodiscard]] const TracedTable& table() const override { return about_; }

    [[nodiscard]] std::string event_id(const std::string& id) const override {
        const std::string raw_id = raw_id_of(id);
        return outbox::event_id(table_.id_prefix(), table_.uuid_id ? lower(raw_id) : raw_id);
    }

    Result<std::vector<EventTrace>> find(const std::string& id) override {
        const std::string raw_id = raw_id_of(id);
        std::vector<EventTrace> found;
        if (const std::string is_it = id_condition(raw_id); !is_it.empty()) {
            auto rows =
                connection_.query("SELECT " + columns() + " FROM " + table_.sql + " t WHERE " +
                                      is_it + " ORDER BY 2 LIMIT " + std::to_string(kOfOneId),
                                  Params().text(raw_id));
            if (!rows.ok()) return rows.status();
            if (Status status = take(*rows, true, found); !status.ok()) return status;
        }
        if (table_.has_scheduled && looks_like_uuid(id)) {
            auto rows = connection_.query("SELECT " + delayed_columns() + " FROM " + scheduled() +
                                              " t WHERE t.id = $1::text::uuid LIMIT " +
                                              std::to_string(kOfOneId),
                                          Params().text(id));
            if (!rows.ok()) return rows.status();
            if (Status status = take_delayed(*rows, found); !status.ok()) return status;
        }
        if (!found.empty() || !table_.has_side_tables) return found;
        auto mentioned = find_mentioned(event_id(raw_id));
        if (!mentioned.ok()) return mentioned.status();
        if (*mentioned) found.push_back(*std::move(*mentioned));
        return found;
    }

    Result<std::vector<EventTrace>> of_key(const std::string& key, const std::string& tenant,
                                           std::size_t limit) override {
        std::string unfinished = any_unfinished(table_);
        if (table_.by_position && table_.has_side_tables) {
            const std::string of_table = "(r.source = " + quote_literal(about_.name) +
                                         " OR starts_with(r.source, " +
                                         quote_literal(about_.name + "/") + "))";
            unfinished = "(NOT EXISTS (SELECT FROM " + table_.side + "outbox_routes r WHERE " +
                         of_table + ") OR EXISTS (SELECT FROM " + table_.side +
                         "outbox_routes r LEFT JOIN " + table_.side +
                         "outbox_ledger l ON l.source = r.source AND l.route = r.route AND "
                         "l.segment = " +
                         position_ + " / 65536 WHERE " + of_table + " AND " +
                         bit_of("l.done", position_) + " = false))";
        }
        const std::string whose = tenant.empty()
                                      ? ""
                                      : " AND " + tenant_of(table_, config_.default_tenant) +
                                            " = " + quote_literal(tenant);
        auto rows = connection_.query("SELECT " + columns() + " FROM " + table_.sql + " t WHERE " +
                                          key_of(table_) + " = $1" + whose + " AND " + unfinished +
                                          " ORDER BY " + order_by(table_) + " LIMIT $2",
                                      Params().text(key).integer(static_cast<std::int64_t>(limit)));
        if (!rows.ok()) return rows.status();
        std::vector<EventTrace> found;
        if (Status status = take(*rows, false, found); !status.ok()) return status;
        return found;
    }

    Result<std::vector<OpenWriter>> open_writers() override {
        // What relays do is over at once.
        const auto rows = connection_.query(
            "SELECT DISTINCT coalesce(l.pid, 0), coalesce(p.gid, ''), coalesce(a.usename, p.owner, "
            "''), coalesce(a.application_name, ''), coalesce(a.state, ''), " +
            time_us("coalesce(a.xact_start, p.prepared)") + " AS began, " +
            time_us("a.query_start") +
            " FROM pg_locks l LEFT JOIN pg_stat_activity a ON a.pid = l.pid LEFT JOIN "
            "pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND "
            "x.virtualtransaction = l.virtualtransaction LEFT JOIN pg_prepared_xacts p ON "
            "p.transaction = x.transactionid WHERE " +
            writers_condition(table_) +
            " AND l.pid IS DISTINCT FROM pg_backend_pid() AND a.application_name IS DISTINCT FROM "
            "'outbox' ORDER BY began");
        if (!rows.ok()) return rows.status();
        std::vector<OpenWriter> writers;
        for (int row = 0; row < rows->size(); ++row) {
            writers.push_back({.pid = rows->integer(row, 0),
                               .prepared = rows->string(row, 1),
                               .user = rows->string(row, 2),
                               .application = rows->string(row, 3),
                               .state = rows->string(row, 4),
                               .seen_by = "a member of pg_read_all_stats",
                               .began_at_us = rows->integer(row, 5),
                               .statement_at_us = rows->integer(row, 6)});
        }
        return writers;
    }

    Result<std::vector<AuditLine>> audit(const std::string& id) override {
        std::vector<AuditLine> lines;
        if (!has_audit_) return lines;
        const auto rows = connection_.query(
            "SELECT " + time_us("at") + ", " + kAuditedBy +
                ", action, detail, events, $2 <> ALL(event_ids) FROM " + table_.side +
                "outbox_audit WHERE source = $1 AND ($2 = ANY(event_ids) OR (events > "
                "cardinality(event_ids) AND starts_with(action, 'dead discard'))) ORDER BY "
                "audit_id",
            Params().text(about_.name).text(event_id(id)));
        if (!rows.ok()) return rows.status();
        for (int row = 0; row < rows->size(); ++row) {
            lines.push_back({.at_us = rows->integer(row, 0),
                             .who = rows->string(row, 1),
                             .action = rows->string(row, 2),
                             .detail = rows->string(row, 3),
                             .events = rows->integer(row, 4),
                             .is_unnamed = rows->boolean(row, 5)});
        }
        return lines;
    }

  private:
    // The bit of a position in a ledger's segment l, where the ledger is of this table.
    [[nodiscard]] std::string bit_of(const std::string& bits, const std::string& position) const {
        if (about_.is_other) return "false";
        return "coalesce(get_bit(" + bits + ", (" + position + " % 65536)::integer) = 1, false)";
    }

    // Of what is known by ids that another life of the table may give once more.
    [[nodiscard]] std::string and_known() const {
        return about_.is_other && !about_.ids_are_uuids ? " AND false" : "";
    }

    // As the table has it, of one as it has it or as consumers see it.
    [[nodiscard]] std::string raw_id_of(const std::string& id) const {
        const std::string prefix = table_.id_prefix();
        return id.starts_with(prefix) ? id.substr(prefix.size()) : id;
    }

    // Of $1, a text. Empty: no row can have it.
    [[nodiscard]] std::string id_condition(const std::string& raw_id) const {
        const std::string own = table_.quoted("id");
        if (table_.uuid_id) return looks_like_uuid(raw_id) ? own + " = $1::text::uuid" : "";
        if (!table_.integer_id) return own + "::text = $1";
        std::int64_t number = 0;
        const auto* end = raw_id.data() + raw_id.size();
        const auto read = std::from_chars(raw_id.data(), end, number);
        return read.ec == std::errc() && read.ptr == end ? own + " = $1::text::bigint" : "";
    }

    [[nodiscard]] std::string scheduled() const {
        return quote_identifier(table_.schema) + ".outbox_scheduled";
    }

    // Of rows t, for `row_of`.
    [[nodiscard]] std::string columns() const {
        const auto time = [&](const char* field) {
            return table_.has(field) ? time_us(finite_time(table_, field)) : "0::bigint";
        };
        std::string finished_at = "0::bigint";
        for (const char* field : {"processed_at", "published_at"}) {
            if (table_.has(field)) finished_at = time(field);
        }
        // A row that was marked is no longer that of the transaction that wrote it.
        const std::string transaction =
            table_.by_position
                ? "t.xmin::text, " + time_us(
                                         "CASE WHEN current_setting('track_commit_timestamp') "
                                         "= 'on' THEN pg_xact_commit_timestamp(t.xmin) END")
                : "'', 0::bigint";
        return table_.quoted("id") + "::text, " + position_ + ", " +
               field_of(table_, "aggregate_type") + ", " + field_of(table_, "event_type") + ", " +
               tenant_of(table_, config_.default_tenant) + ", " + field_of(table_, "topic") + ", " +
               key_of(table_) + ", " + time("occurred_at") + ", " + time("available_at") + ", " +
               transaction + ", " + any_unfinished(table_) + " IS NOT TRUE, " + finished_at;
    }
    [[nodiscard]] std::string delayed_columns() const {
        return "t.id::text, 0::bigint, coalesce(t.aggregate_type, ''), coalesce(t.event_type, "
               "''), " +
               tenant_or("t.tenant_id", config_.default_tenant) +
               ", coalesce(t.topic, ''), coalesce(nullif(t.key, ''), t.aggregate_id, ''), " +
               time_us("t.occurred_at") + ", " + time_us("t.available_at") +
               ", '', 0::bigint, false, 0::bigint";
    }
    [[nodiscard]] TracedEvent row_of(const Rows& rows, int row) const {
        TracedEvent event;
        event.id = event_id(rows.string(row, 0));
        event.position = rows.integer(row, 1);
        event.aggregate_type = rows.string(row, 2);
        event.event_type = rows.string(row, 3);
        event.tenant_id = rows.string(row, 4);
        event.topic = rows.string(row, 5);
        event.key = rows.string(row, 6);
        event.occurred_at_us = rows.integer(row, 7);
        event.available_at_us = rows.integer(row, 8);
        event.transaction = rows.string(row, 9);
        event.committed_at_us = rows.integer(row, 10);
        event.finished = rows.boolean(row, 11);
        event.finished_at_us = rows.integer(row, 12);
        return event;
    }

    Status take(const Rows& rows, bool with_earlier, std::vector<EventTrace>& out) {
        for (int row = 0; row < rows.size(); ++row) {
            EventTrace trace{.row = row_of(rows, row)};
            const std::string raw_id = rows.string(row, 0);
            auto routes = routes_of(*trace.row, raw_id);
            if (!routes.ok()) return routes.status();
            trace.routes = *std::move(routes);
            for (TracedRoute& route : trace.routes) {
                const bool waits = !route.finished && !trace.row->finished;
                if (!with_earlier || !waits || trace.row->key.empty()) continue;
                auto earlier = earlier_of_key(route, *trace.row, raw_id);
                if (!earlier.ok()) return earlier.status();
                route.earlier = *std::move(earlier);
            }
            out.push_back(std::move(trace));
        }
        return {};
    }

    Status take_delayed(const Rows& rows, std::vector<EventTrace>& out) {
        for (int row = 0; row < rows.size(); ++row) {
            EventTrace trace{.row = row_of(rows, row), .delayed = true};
            auto routes = routes_of(*trace.row, rows.string(row, 0));
            if (!routes.ok()) return routes.status();
            trace.routes = *std::move(routes);
            out.push_back(std::move(trace));
        }
        return {};
    }

    static std::optional<FailingEvent> failing_of(const Rows& rows, int row, int column) {
        if (rows.text(row, column).data() == nullptr) return std::nullopt;
        return FailingEvent{rows.integer(row, column), rows.integer(row, column + 1),
                            rows.integer(row, column + 2), rows.string(row, column + 3),
                            rows.string(row, column + 4)};
    }
    static std::string failing_columns() {
        return "d.attempts, " + time_us("d.first_failed_at") + ", " + time_us("d.next_attempt_at") +
               ", d.error_code, d.last_error";
    }

    // Every route that serves the event's tenant.
    Result<std::vector<TracedRoute>> routes_of(const TracedEvent& event,
                                               const std::string& raw_id) {
        std::vector<TracedRoute> routes;
        if (!table_.has_side_tables) return routes;
        Params params = Params().text(about_.name).text(event.id);
        std::string done = "false";
        std::string passed = "false";
        std::string ledger;
        if (table_.by_position) {
            params.integer(event.position);
            done = bit_of("l.done", "$3");
            passed = bit_of("l.passed", "$3");
            ledger = " LEFT JOIN " + table_.side +
                     "outbox_ledger l ON l.source = r.source AND l.route = r.route AND l.segment = "
                     "$3 / 65536";
        } else {
            params.text(raw_id);
            const std::string row = "EXISTS (SELECT FROM " + table_.side +
                                    "outbox_route_done m WHERE m.source = r.source AND m.event_id "
                                    "= " +
                                    done_id(table_, "$3") + " AND m.route IN (r.route, '')" +
                                    and_known();
            done = row + ")";
            passed = row + " AND m.passed)";
        }
        const auto rows = connection_.query(
            "SELECT r.route, r.source, " + done + ", " + passed + ", " + failing_columns() +
                " FROM " + table_.side + "outbox_routes r" + ledger + " LEFT JOIN " + table_.side +
                "outbox_delivery d ON d.source = r.source AND d.route = r.route AND d.event_id = "
                "$2" +
                and_known() +
                " WHERE (r.source = $1 OR starts_with(r.source, $1 || '/')) ORDER BY r.route, "
                "r.source",
            params);
        if (!rows.ok()) return rows.status();
        for (int row = 0; row < rows->size(); ++row) {
            TracedRoute route{.route = rows->string(row, 0),
                              .source = rows->string(row, 1),
                              .finished = rows->boolean(row, 2),
                              .passed = rows->boolean(row, 3),
                              .failing = failing_of(*rows, row, 4)};
            const auto tenants = relay::tenants_of(route.source, about_.name);
            if (!tenants.empty() && !event.tenant_id.empty() &&
                std::find(tenants.begin(), tenants.end(), event.tenant_id) == tenants.end()) {
                continue;
            }
            routes.push_back(std::move(route));
        }
        return routes;
    }

    // Its row is gone, and attempts of it are not forgotten yet.
    Result<std::optional<EventTrace>> find_mentioned(const std::string& id) {
        const auto rows = connection_.query(
            "SELECT d.route, d.source, " + bit_of("l.done", "d.position") + ", " +
                failing_columns() + " FROM " + table_.side + "outbox_delivery d LEFT JOIN " +
                table_.side +
                "outbox_ledger l ON l.source = d.source AND l.route = d.route AND l.segment = "
                "d.position / 65536 WHERE d.event_id = $2 AND (d.source = $1 OR "
                "starts_with(d.source, $1 || '/')) ORDER BY d.route, d.source",
            Params().text(about_.name).text(id));
        if (!rows.ok()) return rows.status();
        if (rows->empty()) return std::optional<EventTrace>();
        EventTrace trace;
        for (int row = 0; row < rows->size(); ++row) {
            trace.routes.push_back({.route = rows->string(row, 0),
                                    .source = rows->string(row, 1),
                                    .finished = table_.by_position && rows->boolean(row, 2),
                                    .failing = failing_of(*rows, row, 3)});
        }
        return std::optional(std::move(trace));
    }

    // The columns that rows are ordered by, without the table's alias.
    [[nodiscard]] std::vector<std::string> order_columns() const {
        if (!table_.position.empty()) return {quote_identifier(table_.position)};
        const std::string id = quote_identifier(table_.column("id"));
        if (table_.created_at.empty()) return {id};
        return {quote_identifier(table_.created_at), id};
    }
    [[nodiscard]] std::string order_of(const std::string& alias) const {
        std::string list;
        for (const std::string& column : order_columns()) {
            list.append(list.empty() ? "ROW(" : ", ").append(alias).append(column);
        }
        return list + ")";
    }

    // Keys are a tenant's own.
    Result<EarlierOfKey> earlier_of_key(const TracedRoute& route, const TracedEvent& event,
                                        const std::string& raw_id) {
        Params params = Params().text(raw_id).text(route.source).text(route.route).text(event.key);
        std::string ledger;
        std::string joined;
        std::string unfinished = any_unfinished(table_) + " AND " +
                                 (about_.is_other ? "(true OR " : "(") +
                                 not_done(table_, "$2", "$3") + ")";
        std::string of_event = id_condition(raw_id);
        if (table_.by_position) {
            // The segments are unpacked once and not for each row.
            ledger = "WITH l AS MATERIALIZED (SELECT segment, done | done AS done FROM " +
                     table_.side + "outbox_ledger WHERE source = $2 AND route = $3) ";
            joined = " LEFT JOIN l ON l.segment = " + position_ + " / 65536";
            unfinished = position_ + " > 0 AND " + bit_of("l.done", position_) + " = false";
            params.integer(event.position);
            of_event += " AND " + position_ + " = $5";  // two may have one id
        }
        const std::string same_tenant =
            tenant_of(table_, config_.default_tenant) + " = " + quote_literal(event.tenant_id);
        const std::string limit = std::to_string(BoundedCount::kLimit + 1);
        const auto rows = connection_.query(
            ledger + "SELECT u.id, u.position, count(*) OVER () FROM (SELECT " +
                table_.quoted("id") + "::text AS id, " + position_ + " AS position, " +
                order_of("t.") + " AS place FROM " + table_.sql + " t" + joined +
                " CROSS JOIN (SELECT t.* FROM " + table_.sql + " t WHERE " + of_event +
                " LIMIT 1) e WHERE " + key_of(table_) + " = $4 AND " + same_tenant + " AND " +
                unfinished + " AND " + order_of("t.") + " < " + order_of("e.") +
                " ORDER BY place LIMIT " + limit + ") u ORDER BY u.place LIMIT 1",
            params);
        if (!rows.ok()) return rows.status();
        EarlierOfKey earlier;
        if (rows->empty()) return earlier;
        const std::int64_t count = rows->integer(0, 2);
        earlier.id = event_id(rows->string(0, 0));
        earlier.position = rows->integer(0, 1);
        earlier.count = {std::min(count, BoundedCount::kLimit), count > BoundedCount::kLimit};
        const auto failing = connection_.query(
            "SELECT " + failing_columns() + " FROM " + table_.side +
                "outbox_delivery d WHERE d.source = $1 AND d.route = $2 AND d.event_id = $3" +
                and_known(),
            Params().text(route.source).text(route.route).text(earlier.id));
        if (!failing.ok()) return failing.status();
        if (!failing->empty()) earlier.failing = failing_of(*failing, 0, 0);
        return earlier;
    }

    Connection connection_;
    const PostgresSourceConfig config_;
    const Table table_;
    const bool has_audit_;
    const std::string position_;  // of a row t, as SQL
    TracedTable about_;
};

}  // namespace

Result<std::unique_ptr<EventTracer>> open_tracer(const PostgresSourceConfig& config) {
    auto connection = Connection::open(config.url, config.connect_timeout_s);
    if (!connection.ok()) return connection.status();
    connection->name_holders(config.url, config.connect_timeout_s);
    auto table = resolve_table(*connection, config);
    if (!table.ok()) return table.status();
    const auto side = look_for_side_tables(*connection, quote_identifier(table->schema));
    if (!side.ok()) return side.status();
    table->side = quote_identifier(side->schema) + ".";
    table->has_side_tables = !side->none;
    Status status = require_owners(*connection, side->schema, config, &*table);
    if (status.ok()) status = connection->follow(table->path);
    if (status.ok()) {
        status = connection->execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    }
    if (!status.ok()) return status;
    auto tracer =
        std::make_unique<PostgresTracer>(*std::move(connection), config, *std::move(table), *side);
    if (Status looked = tracer->look_at_ledgers(); !looked.ok()) return looked;
    return std::unique_ptr<EventTracer>(std::move(tracer));
}

}  // namespace outbox::postgres
