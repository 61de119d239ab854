#include "databases/sqlite/source/trace.h"

#include <algorithm>
#include <utility>

#include <outbox/spi/position_set.h>

#include "core/sql_text.h"
#include "databases/sqlite/client.h"
#include "databases/sqlite/source/route_ledgers.h"
#include "databases/sqlite/source/table.h"
#include "relay/tenants.h"

namespace outbox::sqlite {
namespace {

constexpr std::size_t kRowsOfOneId = 10;  // that may share it
constexpr const char* kFailing =
    "attempts, first_failed_at, next_attempt_at, error_code, last_error";

std::string text_field(const Table& table, const char* field) {
    return table.has(field) ? "coalesce(" + table.quoted(field) + ", '')" : std::string("''");
}

std::string time_field(const Table& table, const char* field) {
    if (!table.has(field)) return "0";
    if (table.native) return "coalesce(" + table.quoted(field) + ", 0)";
    return "coalesce(" + microseconds_of(table.quoted(field)) + ", 0)";
}

std::string order_key_of(const Table& table) {
    const std::string id = text_field(table, "aggregate_id");
    return table.has("key") ? "coalesce(nullif(" + table.quoted("key") + ", ''), " + id + ")" : id;
}

FailingEvent failing_at(const Statement& row, int column) {
    return {row.integer(column), row.integer(column + 1), row.integer(column + 2),
            row.string(column + 3), row.string(column + 4)};
}

class SqliteTracer final : public EventTracer {
  public:
    SqliteTracer(std::unique_ptr<Database> database, Table table)
        : database_(std::move(database)),
          table_(std::move(table)),
          order_("t." + table_.order),
          about_{.name = table_.name, .removes = !table_.mark, .keeps_ledger = table_.native} {}

    Status look() {
        Statement tables(*database_,
                         "SELECT coalesce(sum(name = 'outbox_routes'), 0), coalesce(sum(name = "
                         "'outbox_audit'), 0), coalesce(sum(name = 'outbox_scheduled'), 0) FROM "
                         "sqlite_master WHERE type = 'table'");
        if (tables.step()) {
            has_routes_ = tables.integer(0) > 0;
            has_audit_ = tables.integer(1) > 0;
            has_scheduled_ = table_.native && tables.integer(2) > 0;
        }
        if (Status status = tables.status(); !status.ok() || !has_routes_) return status;
        Statement others(*database_,
                         "SELECT DISTINCT substr(source, 1, instr(source || '/', '/') - 1) FROM "
                         "outbox_routes WHERE NOT " +
                             std::string(kOfTable) + " ORDER BY 1 LIMIT 10");
        others.bind(table_.name);
        while (others.step()) about_.others.push_back(others.string(0));
        if (Status status = others.status(); !status.ok() || !table_.native) return status;
        const auto other = is_other_table(*database_, table_.name);
        if (!other.ok()) return other.status();
        about_.is_other = *other;
        return {};
    }

    [[nodiscard]] const TracedTable& table() const override { return about_; }

    [[nodiscard]] std::string event_id(const std::string& id) const override {
        return outbox::event_id(table_.id_prefix(), own_id(id));
    }

    Result<std::vector<EventTrace>> find(const std::string& id) override {
        std::vector<EventTrace> found;
        const std::string own = own_id(id);
        Status status = take_rows(table_.quoted("id") + " = ?1", own, kRowsOfOneId, true, found);
        // Ids of other types, as which consumers see them: without an index on that.
        if (status.ok() && found.empty() && !table_.native) {
            const std::string column = table_.quoted("id");
            status =
                take_rows("(typeof(" + column + ") = 'integer' AND CAST(" + column +
                              " AS text) = ?1) OR (typeof(" + column + ") = 'blob' AND lower(hex(" +
                              column + ")) = lower(replace(?1, '-', '')))",
                          own, kRowsOfOneId, true, found);
        }
        if (status.ok() && has_scheduled_) status = take_delayed(own, found);
        if (!status.ok()) return status;
        if (!found.empty() || !has_routes_) return found;
        auto mentioned = find_mentioned(event_id(id));
        if (!mentioned.ok()) return mentioned.status();
        if (!mentioned->routes.empty()) found.push_back(*std::move(mentioned));
        return found;
    }

    Result<std::vector<EventTrace>> of_key(const std::string& key, const std::string& tenant,
                                           std::size_t limit) override {
        std::vector<EventTrace> found;
        const std::string whose =
            tenant.empty() ? "" : " AND " + tenant_name() + " = " + quote_literal(tenant);
        Status status =
            take_rows(order_key_of(table_) + " = ?1" + whose + " AND " + any_unfinished(table_),
                      key, limit, false, found);
        if (!status.ok()) return status;
        return found;
    }

    // The file's locks do not say whose they are.
    Result<std::vector<OpenWriter>> open_writers() override { return std::vector<OpenWriter>{}; }

    Result<std::vector<AuditLine>> audit(const std::string& id) override {
        std::vector<AuditLine> lines;
        if (!has_audit_) return lines;
        Statement rows(*database_,
                       "SELECT at, os_user, action, detail, events, NOT named FROM (SELECT *, "
                       "EXISTS (SELECT 1 FROM json_each(event_ids) WHERE value = ?2) AS named "
                       "FROM outbox_audit WHERE source = ?1) WHERE named OR (events > "
                       "json_array_length(event_ids) AND action LIKE 'dead discard%') ORDER BY "
                       "audit_id");
        rows.bind(table_.name).bind(event_id(id));
        while (rows.step()) {
            lines.push_back({.at_us = rows.integer(0),
                             .who = rows.string(1),
                             .action = rows.string(2),
                             .detail = rows.string(3),
                             .events = rows.integer(4),
                             .is_unnamed = rows.integer(5) != 0});
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return lines;
    }

  private:
    [[nodiscard]] std::string tenant_name() const {
        return tenant_or(table_.has("tenant_id") ? table_.quoted("tenant_id") : "NULL",
                         table_.default_tenant);
    }
    // As the table has it, of one as it has it or as consumers see it.
    [[nodiscard]] std::string own_id(const std::string& id) const {
        const std::string prefix = table_.id_prefix();
        return id.starts_with(prefix) ? id.substr(prefix.size()) : id;
    }

    // Rows t that fit the condition, of which ?1 is a text. With what is earlier: all of them;
    // without: up to `limit` that some route has not finished.
    Status take_rows(const std::string& condition, const std::string& value, std::size_t limit,
                     bool with_earlier, std::vector<EventTrace>& out) {
        std::string finished_at = "0";
        for (const char* field : {"processed_at", "published_at"}) {
            if (table_.has(field)) finished_at = time_field(table_, field);
        }
        Statement rows(*database_,
                       "SELECT " + order_ + ", typeof(" + table_.quoted("id") + "), " +
                           table_.quoted("id") + ", " + text_field(table_, "aggregate_type") +
                           ", " + text_field(table_, "event_type") + ", " +
                           (table_.has("tenant_id") ? table_.quoted("tenant_id") : "NULL") + ", " +
                           text_field(table_, "topic") + ", " + order_key_of(table_) + ", " +
                           time_field(table_, "occurred_at") + ", " +
                           time_field(table_, "available_at") + ", " + any_unfinished(table_) +
                           " IS NOT TRUE, " + finished_at + " FROM " + table_.sql + " t WHERE " +
                           condition + " ORDER BY " + order_);
        rows.bind(value);
        while (out.size() < limit && rows.step()) {
            const std::string raw_id = raw_id_of(rows, 1, 2);
            EventTrace trace{
                .row = TracedEvent{.id = event_id_of(table_, raw_id),
                                   .position = table_.native ? rows.integer(0) : 0,
                                   .aggregate_type = rows.string(3),
                                   .event_type = rows.string(4),
                                   .tenant_id = std::string(table_.tenant_of(rows.text(5))),
                                   .topic = rows.string(6),
                                   .key = rows.string(7),
                                   .occurred_at_us = rows.integer(8),
                                   .available_at_us = rows.integer(9),
                                   .finished = rows.integer(10) != 0,
                                   .finished_at_us = rows.integer(11)}};
            if (Status status = add_routes(raw_id, trace); !status.ok()) return status;
            const auto unfinished = [](const TracedRoute& route) { return !route.finished; };
            const bool over = !trace.routes.empty() &&
                              std::none_of(trace.routes.begin(), trace.routes.end(), unfinished);
            if (!with_earlier && over) continue;
            if (with_earlier && !trace.row->finished && !trace.row->key.empty()) {
                for (TracedRoute& route : trace.routes) {
                    if (route.finished) continue;
                    Status status = add_earlier(*trace.row, rows.integer(0), route);
                    if (!status.ok()) return status;
                }
            }
            out.push_back(std::move(trace));
        }
        return rows.status();
    }

    Status take_delayed(const std::string& id, std::vector<EventTrace>& out) {
        Statement rows(*database_,
                       "SELECT id, coalesce(aggregate_type, ''), coalesce(event_type, ''), "
                       "tenant_id, coalesce(topic, ''), coalesce(nullif(key, ''), aggregate_id, "
                       "''), occurred_at, available_at FROM outbox_scheduled WHERE id = ?1 LIMIT " +
                           std::to_string(kRowsOfOneId));
        rows.bind(id);
        while (rows.step()) {
            EventTrace trace{
                .row = TracedEvent{.id = event_id(rows.string(0)),
                                   .aggregate_type = rows.string(1),
                                   .event_type = rows.string(2),
                                   .tenant_id = std::string(table_.tenant_of(rows.text(3))),
                                   .topic = rows.string(4),
                                   .key = rows.string(5),
                                   .occurred_at_us = rows.integer(6),
                                   .available_at_us = rows.integer(7)},
                .delayed = true};
            if (Status status = add_routes("t" + id, trace); !status.ok()) return status;
            out.push_back(std::move(trace));
        }
        return rows.status();
    }

    // Every route that serves the event's tenant.
    Status add_routes(const std::string& raw_id, EventTrace& trace) {
        if (!has_routes_) return {};
        const TracedEvent& event = *trace.row;
        Statement rows(*database_, "SELECT route, source FROM outbox_routes WHERE " +
                                       std::string(kOfTable) + " ORDER BY route, source");
        rows.bind(table_.name);
        while (rows.step()) {
            TracedRoute route{.route = rows.string(0), .source = rows.string(1)};
            const auto tenants = relay::tenants_of(route.source, table_.name);
            if (!tenants.empty() &&
                std::find(tenants.begin(), tenants.end(), event.tenant_id) == tenants.end()) {
                continue;
            }
            Status status = table_.native ? add_bits(event.position, route)
                                          : add_marks(done_name(raw_id), route);
            if (status.ok())
                status = add_failing(event.id, route.source, route.route, route.failing);
            if (!status.ok()) return status;
            trace.routes.push_back(std::move(route));
        }
        return rows.status();
    }

    Status add_bits(std::int64_t position, TracedRoute& route) {
        if (about_.is_other) return {};
        constexpr std::int64_t kBits = 8;
        const std::int64_t place = position % spi::PositionSet::kSegmentSize;
        Statement row(*database_,
                      "SELECT hex(substr(done, ?4, 1)), hex(substr(passed, ?4, 1)) FROM "
                      "outbox_ledger_segments WHERE source = ?1 AND route = ?2 AND segment = ?3");
        row.bind(route.source).bind(route.route);
        row.bind(spi::PositionSet::segment_of(position)).bind(place / kBits + 1);
        if (!row.step()) return row.status();
        const auto has = [&](int column) {
            if (row.text(column).empty()) return false;
            const unsigned long byte = std::stoul(row.string(column), nullptr, 16);
            return (byte >> static_cast<unsigned>(kBits - 1 - place % kBits) & 1U) != 0;
        };
        route.finished = has(0);
        route.passed = has(1);
        return {};
    }

    Status add_marks(const std::string& name, TracedRoute& route) {
        Statement row(*database_,
                      "SELECT count(*), coalesce(max(passed), 0) FROM outbox_route_done WHERE "
                      "source = ?1 AND event_id = ?2 AND route IN (?3, '')");
        row.bind(route.source).bind(name).bind(route.route);
        if (!row.step()) return row.status();
        route.finished = row.integer(0) > 0;
        route.passed = row.integer(1) > 0;
        return {};
    }

    Status add_failing(const std::string& id, const std::string& source, const std::string& route,
                       std::optional<FailingEvent>& out) {
        Statement row(*database_, std::string("SELECT ") + kFailing +
                                      " FROM outbox_delivery WHERE source = ?1 AND route = ?2 AND "
                                      "event_id = ?3");
        row.bind(source).bind(route).bind(id);
        if (row.step()) out = failing_at(row, 0);
        return row.status();
    }

    // Keys are a tenant's own.
    Status add_earlier(const TracedEvent& event, std::int64_t order, TracedRoute& route) {
        spi::PositionSet finished;
        if (table_.native && !about_.is_other) {
            auto loaded = load_finished(*database_, route.source, route.route);
            if (!loaded.ok()) return loaded.status();
            finished = *std::move(loaded);
        }
        Statement rows(*database_, "SELECT " + order_ + ", typeof(" + table_.quoted("id") + "), " +
                                       table_.quoted("id") + " FROM " + table_.sql + " t WHERE " +
                                       order_key_of(table_) + " = ?1 AND " + order_ + " < ?2 AND " +
                                       tenant_name() + " = ?3 AND " + any_unfinished(table_) +
                                       " ORDER BY " + order_);
        rows.bind(event.key).bind(order).bind(event.tenant_id);
        EarlierOfKey& earlier = route.earlier;
        while (!earlier.count.more && rows.step()) {
            const std::string raw_id = raw_id_of(rows, 1, 2);
            if (table_.native) {
                if (rows.integer(0) <= 0 || finished.contains(rows.integer(0))) continue;
            } else {
                TracedRoute other{.route = route.route, .source = route.source};
                if (Status status = add_marks(done_name(raw_id), other); !status.ok()) {
                    return status;
                }
                if (other.finished) continue;
            }
            if (earlier.id.empty()) {
                earlier.id = event_id_of(table_, raw_id);
                earlier.position = table_.native ? rows.integer(0) : 0;
            }
            earlier.count.more = earlier.count.count == BoundedCount::kLimit;
            if (!earlier.count.more) ++earlier.count.count;
        }
        if (Status status = rows.status(); !status.ok() || earlier.id.empty()) return status;
        return add_failing(earlier.id, route.source, route.route, earlier.failing);
    }

    // Its row is gone, and attempts of it are not forgotten yet.
    Result<EventTrace> find_mentioned(const std::string& id) {
        Statement rows(*database_, std::string("SELECT route, source, position, ") + kFailing +
                                       " FROM outbox_delivery WHERE event_id = ?2 AND " + kOfTable +
                                       " ORDER BY route, source");
        rows.bind(table_.name).bind(id);
        EventTrace trace;
        while (rows.step()) {
            TracedRoute route{.route = rows.string(0), .source = rows.string(1)};
            route.failing = failing_at(rows, 3);
            if (table_.native) {
                if (Status status = add_bits(rows.integer(2), route); !status.ok()) return status;
            }
            trace.routes.push_back(std::move(route));
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return trace;
    }

    const std::unique_ptr<Database> database_;
    const Table table_;
    const std::string order_;  // of a row t, as SQL
    TracedTable about_;
    bool has_routes_ = false;
    bool has_audit_ = false;
    bool has_scheduled_ = false;
};

}  // namespace

Result<std::unique_ptr<EventTracer>> open_tracer(const SqliteSourceConfig& config) {
    auto table = name_table(config);
    if (!table.ok()) return table.status();
    auto database = Database::open(table->path, config.busy_timeout_ms);
    if (!database.ok()) return database.error();
    if (Status status = resolve_table(**database, config, *table); !status.ok()) return status;
    auto tracer = std::make_unique<SqliteTracer>(*std::move(database), *std::move(table));
    if (Status status = tracer->look(); !status.ok()) return status;
    return std::unique_ptr<EventTracer>(std::move(tracer));
}

}  // namespace outbox::sqlite
