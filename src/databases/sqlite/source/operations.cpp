#include "databases/sqlite/source/operations.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "core/embedded_sql.h"
#include "core/json_text.h"
#include "core/no_operations.h"
#include "core/sql_text.h"
#include "databases/sqlite/client.h"
#include "databases/sqlite/source/route_ledgers.h"
#include "databases/sqlite/source/table.h"
#include "relay/tenants.h"

namespace outbox::sqlite {
namespace {

constexpr std::int64_t kRateIsFreshUs = 15'000'000;

constexpr const char* kNoSeventh = " AND ?7 IS NULL";

// Of a dead letter l.
constexpr const char* kRouteKnown =
    "EXISTS (SELECT 1 FROM outbox_routes r WHERE r.source = l.source AND r.route = l.route)";

// The ids go in as one JSON array, so that their number needs no own statement.
std::string where_of_dead(const DeadFilter& filter, const std::string& default_tenant) {
    std::string where = std::string(" WHERE ") + kOfTable;
    if (!filter.ids.empty()) where += " AND id IN (SELECT value FROM json_each(?2))";
    if (!filter.route.empty()) where += " AND route = ?3";
    if (!filter.event_type.empty()) where += " AND event_type = ?4";
    if (!filter.key.empty()) where += " AND coalesce(nullif(key, ''), aggregate_id) = ?5";
    if (!filter.error_code.empty()) where += " AND error_code = ?6";
    if (!filter.tenant.empty()) {
        where +=
            " AND " + tenant_or("tenant_id", default_tenant) + " = " + quote_literal(filter.tenant);
    }
    if (filter.idle) {
        where +=
            " AND (retry_requested_at IS NULL OR (source, route) NOT IN (SELECT source, route "
            "FROM outbox_routes))";
    }
    return where;
}

std::string where_scheduled(const ScheduledFilter& filter, const std::string& default_tenant) {
    std::string where = " WHERE coalesce(?1, ?2, ?3) IS NOT NULL";
    if (!filter.ids.empty()) where += " AND id IN (SELECT value FROM json_each(?1))";
    if (!filter.event_type.empty()) where += " AND event_type = ?2";
    if (!filter.key.empty()) where += " AND coalesce(nullif(key, ''), aggregate_id) = ?3";
    if (!filter.tenant.empty()) {
        where +=
            " AND " + tenant_or("tenant_id", default_tenant) + " = " + quote_literal(filter.tenant);
    }
    return where;
}

DeadInfo dead_of(const Statement& row) {
    DeadInfo dead;
    dead.dead_id = row.integer(0);
    dead.id = row.string(1);
    dead.route = row.string(2);
    dead.position = row.integer(3);
    dead.aggregate_type = row.string(4);
    dead.aggregate_id = row.string(5);
    dead.event_type = row.string(6);
    dead.tenant_id = row.string(7);
    dead.schema_id = row.string(8);
    dead.schema_version = row.string(9);
    dead.topic = row.string(10);
    dead.key = row.string(11);
    dead.routing_key = row.string(12);
    dead.headers = row.string(13);
    dead.metadata = row.string(14);
    dead.attempts = row.integer(15);
    dead.error_code = row.string(16);
    dead.error = row.string(17);
    dead.occurred_at_us = row.integer(18);
    dead.died_at_us = row.integer(19);
    dead.retry_requested_at_us = row.integer(20);
    dead.payload_is_null = row.text(21).data() == nullptr;
    dead.payload = row.string(21);
    dead.route_known = row.integer(22) != 0;
    dead.unmatched = row.integer(23) != 0;
    return dead;
}

Result<bool> has_paused_tenants(Database& database) {
    Statement look(database,
                   "SELECT 1 FROM sqlite_master WHERE name = 'outbox_paused_tenants' AND type = "
                   "'table'");
    const bool there = look.step();
    if (Status status = look.status(); !status.ok()) return status;
    return there;
}

class SqliteOperations final : public Operations {
  public:
    SqliteOperations(std::unique_ptr<Database> database, SqliteSourceConfig config,
                     std::string table, bool has_audit)
        : database_(std::move(database)),
          config_(std::move(config)),
          table_(std::move(table)),
          has_audit_(has_audit),
          ledgers_(*database_, config_, table_, os_user_) {}

    Result<std::vector<LeaseInfo>> leases() override {
        auto leases = ledgers_.leases();
        if (!leases.ok()) return leases.status();
        return leases_with_routes(std::move(*leases));
    }

    Result<std::vector<RouteInfo>> routes() override {
        const std::string of_table = kOfTable;
        // A rate that no relay has renewed for a while is not one any more. A bare column beside
        // max() is that row's: circuit and error are the newest.
        Statement rows(
            *database_,
            "SELECT route, sum(published), sum(dead_total), sum(failing), sum(dead), "
            "max(circuit), max(last_error), sum(rate), max(updated), max(path), max(path_reason), "
            "max(known), max(error_at) "
            "FROM ("
            "SELECT route, sum(published_total) AS published, sum(dead_total) AS dead_total, "
            "0 AS failing, 0 AS dead, circuit, last_error, path, path_reason, sum(CASE WHEN "
            "updated_at > ?2 THEN "
            "rate_per_s ELSE 0 END) AS rate, max(updated_at) AS updated, 0 AS known, last_error_at "
            "AS error_at FROM "
            "outbox_route_stats WHERE " +
                of_table +
                " GROUP BY route "
                "UNION ALL SELECT route, 0, 0, count(*), 0, NULL, NULL, NULL, NULL, 0, 0, 0, 0 "
                "FROM "
                "outbox_delivery "
                "WHERE " +
                of_table +
                " GROUP BY route "
                "UNION ALL SELECT route, 0, 0, 0, count(*), NULL, NULL, NULL, NULL, 0, 0, 0, 0 "
                "FROM "
                "outbox_dead_letters "
                "WHERE " +
                of_table +
                " GROUP BY route "
                "UNION ALL SELECT route, 0, 0, 0, 0, NULL, NULL, NULL, NULL, 0, 0, 1, 0 FROM "
                "outbox_routes WHERE " +
                of_table + ") GROUP BY route HAVING max(known) OR sum(dead) > 0 ORDER BY route");
        rows.bind(table_).bind(now_us() - kRateIsFreshUs);
        std::vector<RouteInfo> routes;
        while (rows.step()) {
            RouteInfo route;
            route.name = rows.string(0);
            route.published_total = rows.integer(1);
            route.dead_total = rows.integer(2);
            route.failing = rows.integer(3);
            route.dead = rows.integer(4);
            route.circuit = rows.string(5);
            route.last_error = rows.string(6);
            route.last_error_at_us = rows.integer(12);
            route.rate_per_s = rows.number(7);
            route.updated_at_us = rows.integer(8);
            route.path = rows.string(9);
            route.path_reason = rows.string(10);
            route.retired = rows.integer(11) == 0;
            routes.push_back(std::move(route));
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return routes;
    }

    Result<std::vector<StandbyInfo>> standbys() override {
        Statement rows(
            *database_,
            std::string("SELECT owner, routes, seen_at, source FROM outbox_standbys WHERE ") +
                kOfTable + " AND seen_at > ?2 ORDER BY owner");
        rows.bind(table_).bind(now_us() - kRateIsFreshUs);
        std::vector<StandbyInfo> standbys;
        while (rows.step()) {
            standbys.push_back({rows.string(0), lines_of(rows.text(1)), rows.integer(2),
                                relay::tenants_of(rows.text(3), table_)});
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return standbys;
    }

    Result<std::vector<WaitingEvent>> waiting_events(std::size_t limit) override {
        Statement rows(*database_,
                       std::string("SELECT route, event_id, position, key, attempts, "
                                   "first_failed_at, next_attempt_at, error_code, last_error FROM "
                                   "outbox_delivery WHERE ") +
                           kOfTable + " ORDER BY first_failed_at, route, event_id LIMIT ?2");
        rows.bind(table_).bind(static_cast<std::int64_t>(limit));
        std::vector<WaitingEvent> events;
        while (rows.step()) {
            events.push_back({.route = rows.string(0),
                              .id = rows.string(1),
                              .position = rows.integer(2),
                              .key = rows.string(3),
                              .attempts = rows.integer(4),
                              .first_failed_at_us = rows.integer(5),
                              .next_attempt_at_us = rows.integer(6),
                              .error_code = rows.string(7),
                              .error = rows.string(8)});
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return events;
    }

    Result<std::vector<AuditLine>> audit_lines(std::int64_t before_audit_id,
                                               std::size_t limit) override {
        std::vector<AuditLine> lines;
        if (!has_audit_) return lines;
        Statement rows(*database_,
                       "SELECT at, os_user, action, detail, audit_id, events, source FROM "
                       "outbox_audit WHERE (source IN (?1, 'webhooks', 'sagas') OR substr(source, "
                       "1, 9) = 'consumer ') AND (?2 = 0 OR audit_id < ?2) ORDER BY audit_id DESC "
                       "LIMIT ?3");
        rows.bind(table_).bind(before_audit_id).bind(static_cast<std::int64_t>(limit));
        while (rows.step()) {
            lines.push_back({rows.integer(0), rows.string(1), rows.string(2), rows.string(3),
                             rows.integer(4), rows.integer(5), rows.string(6)});
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return lines;
    }

    Result<std::vector<DeadInfo>> dead(const DeadFilter& filter, std::int64_t after_dead_id,
                                       std::size_t limit, bool with_payload) override {
        Statement rows(*database_,
                       "SELECT dead_id, id, route, position, aggregate_type, aggregate_id, "
                       "event_type, tenant_id, schema_id, schema_version, topic, key, routing_key, "
                       "headers, metadata, attempts, error_code, error, occurred_at, died_at, "
                       "retry_requested_at, " +
                           std::string(with_payload ? "payload" : "NULL") + ", " + kRouteKnown +
                           ", unmatched FROM outbox_dead_letters l" + where_dead(filter) +
                           " AND dead_id > ?7 ORDER BY dead_id LIMIT ?8");
        bind(rows, filter);
        rows.bind(after_dead_id).bind(static_cast<std::int64_t>(limit));
        std::vector<DeadInfo> letters;
        while (rows.step()) letters.push_back(dead_of(rows));
        if (Status status = rows.status(); !status.ok()) return status;
        return letters;
    }

    Result<std::int64_t> count_dead(const DeadFilter& filter) override {
        Statement row(*database_, "SELECT count(*) FROM outbox_dead_letters" + where_dead(filter) +
                                      " AND ?7 IS NULL");
        bind(row, filter);
        const std::int64_t count = row.step() ? row.integer(0) : 0;
        if (Status status = row.status(); !status.ok()) return status;
        return count;
    }

    Result<std::int64_t> last_dead() override {
        Statement row(*database_, "SELECT max(dead_id) FROM outbox_dead_letters");
        const std::int64_t last = row.step() ? row.integer(0) : 0;
        if (Status status = row.status(); !status.ok()) return status;
        return last;
    }

    Result<std::int64_t> oldest_dead_us() override {
        const DeadFilter all;
        Statement row(*database_, "SELECT min(occurred_at) FROM outbox_dead_letters" +
                                      where_dead(all) + " AND ?7 IS NULL");
        bind(row, all);
        const std::int64_t oldest = row.step() ? row.integer(0) : 0;
        if (Status status = row.status(); !status.ok()) return status;
        return oldest;
    }

    Result<std::int64_t> retry_dead(const DeadFilter& filter) override {
        return audited(filter, "dead retry", describe(filter), [&] {
            Statement update(*database_,
                             "UPDATE outbox_dead_letters SET retry_requested_at = "
                             "coalesce(retry_requested_at, ?7)" +
                                 where_dead(filter));
            bind(update, filter);
            return update.bind(now_us()).run();
        });
    }

    Result<std::int64_t> discard_dead(const DeadFilter& filter) override {
        const DeadFilter idle = filter.of_idle();
        return audited(idle, "dead discard", describe(filter), [&] {
            Statement remove(*database_,
                             "DELETE FROM outbox_dead_letters" + where_dead(idle) + kNoSeventh);
            return bind(remove, idle).run();
        });
    }

    Result<std::int64_t> edit_dead(const DeadFilter& filter, const DeadEdit& edit) override {
        const DeadFilter idle = filter.of_idle();
        const auto change = [&] {
            std::string set;
            const auto assign = [&](bool given, const std::string& assignment) {
                if (given) set += (set.empty() ? "" : ", ") + assignment;
            };
            assign(edit.payload.has_value(), "payload = ?7");
            assign(edit.topic.has_value(), "topic = nullif(?8, '')");
            assign(edit.key.has_value(), "key = nullif(?9, '')");
            assign(edit.headers.has_value(), "headers = ?10");
            Statement update(*database_, "UPDATE outbox_dead_letters SET " + set +
                                             where_dead(idle) +
                                             " AND coalesce(?7, ?8, ?9, ?10, 1) IS NOT NULL");
            bind(update, idle);
            if (edit.payload) {
                update.bind_blob(*edit.payload);
            } else {
                update.bind_null();
            }
            for (const auto& text : {edit.topic, edit.key, edit.headers}) {
                if (text) {
                    update.bind(std::string_view(*text));
                } else {
                    update.bind_null();
                }
            }
            return update.run();
        };
        return audited(idle, "dead edit", describe(filter) + ": " + describe(edit), change);
    }

    Result<std::vector<ScheduledInfo>> scheduled(const ScheduledFilter& filter,
                                                 std::size_t limit) override {
        if (table_ != "outbox_events") return no_delayed_events(table_);
        Statement rows(*database_,
                       "SELECT id, aggregate_type, aggregate_id, event_type, topic, key, "
                       "available_at, tenant_id FROM outbox_scheduled" +
                           where_of(filter) + " ORDER BY available_at, schedule_id LIMIT ?4");
        bind(rows, filter).bind(static_cast<std::int64_t>(limit));
        std::vector<ScheduledInfo> events;
        while (rows.step()) {
            events.push_back({rows.string(0), rows.string(1), rows.string(2), rows.string(3),
                              rows.string(4), rows.string(5), rows.integer(6), rows.string(7)});
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return events;
    }

    Result<std::int64_t> count_scheduled(const ScheduledFilter& filter) override {
        if (table_ != "outbox_events") return no_delayed_events(table_);
        Statement row(*database_, "SELECT count(*) FROM outbox_scheduled" + where_of(filter));
        bind(row, filter);
        const std::int64_t count = row.step() ? row.integer(0) : 0;
        if (Status status = row.status(); !status.ok()) return status;
        return count;
    }

    Result<std::int64_t> cancel_scheduled(const ScheduledFilter& filter) override {
        if (table_ != "outbox_events") return no_delayed_events(table_);
        WriteTransaction transaction(*database_);
        if (Status status = transaction.begin(); !status.ok()) return status;
        Statement ids(*database_, ids_of("outbox_scheduled", where_of(filter)));
        bind(ids, filter);
        return carry_out(transaction, ids, "scheduled cancel", describe(filter), [&] {
            Statement remove(*database_, "DELETE FROM outbox_scheduled" + where_of(filter));
            return bind(remove, filter).run();
        });
    }

    Result<std::vector<LedgerRoute>> ledger_routes(bool count_unfinished) override {
        return ledgers_.list(count_unfinished);
    }
    Result<std::int64_t> accept_destination(const std::vector<std::string>& tenants,
                                            const std::string& route) override {
        return ledgers_.accept(tenants, route);
    }
    Result<std::int64_t> rename_route(const std::vector<std::string>& tenants,
                                      const std::string& from, const std::string& to) override {
        return ledgers_.rename(tenants, from, to);
    }
    Result<RetiredRoute> retire_route(const std::vector<std::string>& tenants,
                                      const std::string& route, bool with_unfinished) override {
        return ledgers_.retire(tenants, route, with_unfinished);
    }
    Result<bool> is_other_table() override { return ledgers_.are_of_another(); }
    Result<std::int64_t> keep_ledgers() override { return ledgers_.keep(); }
    Result<std::int64_t> forget_ledgers() override { return ledgers_.forget(); }

    Result<BoundedCount> unfinished_of_tenant(const std::string& tenant_id) override {
        return ledgers_.unfinished_of(tenant_id);
    }

    Result<DelayedEvents> delayed_of_tenant(const std::string& tenant_id) override {
        if (table_ != "outbox_events") return DelayedEvents{};
        Statement row(*database_,
                      "SELECT count(*), coalesce(max(available_at), 0) FROM outbox_scheduled WHERE "
                      "coalesce(nullif(tenant_id, ''), ?1) = ?2");
        row.bind(tenant_id.empty() ? std::string_view("") : config_.default_tenant).bind(tenant_id);
        DelayedEvents delayed;
        if (row.step()) delayed = {row.integer(0), row.integer(1)};
        if (Status status = row.status(); !status.ok()) return status;
        return delayed;
    }

    Result<TenantBacklogs> tenant_backlogs() override { return ledgers_.tenant_backlogs(); }

    Result<std::vector<PausedTenant>> paused_tenants() override {
        std::vector<PausedTenant> tenants;
        const auto there = has_paused_tenants(*database_);
        if (!there.ok()) return there.status();
        if (!*there) return tenants;
        Statement rows(*database_,
                       "SELECT tenant_id, reason, os_user, paused_at FROM outbox_paused_tenants "
                       "WHERE source = ? ORDER BY tenant_id");
        rows.bind(table_);
        while (rows.step()) {
            tenants.push_back(
                {rows.string(0), rows.string(1), "user " + rows.string(2), rows.integer(3)});
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return tenants;
    }

    Result<bool> pause_tenant(const std::string& tenant_id) override {
        WriteTransaction transaction(*database_);
        if (Status status = transaction.begin(); !status.ok()) return status;
        const auto there = has_paused_tenants(*database_);
        if (!there.ok()) return there.status();
        if (!*there) {
            if (table_ == "outbox_events") return no_paused_tenants();
            const Status made = database_->execute(
                std::string(embedded_sql_text("producer/sqlite/paused_tenants.sql")));
            if (!made.ok()) return made;
        }
        Statement insert(*database_,
                         "INSERT OR IGNORE INTO outbox_paused_tenants (source, tenant_id, reason, "
                         "os_user, paused_at) VALUES (?, ?, ?, ?, ?) RETURNING 1");
        insert.bind(table_).bind(tenant_id).bind(reason()).bind(os_user_).bind(now_us());
        return change_tenant(transaction, insert, tenant_id, "tenant pause");
    }

    Result<bool> resume_tenant(const std::string& tenant_id) override {
        WriteTransaction transaction(*database_);
        if (Status status = transaction.begin(); !status.ok()) return status;
        const auto there = has_paused_tenants(*database_);
        if (!there.ok()) return there.status();
        if (!*there) return false;
        Statement remove(*database_,
                         "DELETE FROM outbox_paused_tenants WHERE source = ? AND tenant_id = ? "
                         "RETURNING 1");
        remove.bind(table_).bind(tenant_id);
        return change_tenant(transaction, remove, tenant_id, "tenant resume");
    }

    Result<std::vector<DeadRoute>> routes_of_dead(const DeadFilter& filter,
                                                  bool unknown_only) override {
        Statement rows(*database_,
                       "SELECT DISTINCT route, source FROM outbox_dead_letters l" +
                           where_dead(filter) +
                           (unknown_only ? std::string(" AND NOT ") + kRouteKnown : std::string()) +
                           " AND ?7 IS NULL ORDER BY route, source");
        bind(rows, filter);
        std::vector<DeadRoute> routes;
        while (rows.step()) {
            routes.push_back(
                {rows.string(0), rows.string(1), relay::tenants_of(rows.text(1), table_)});
        }
        if (Status status = rows.status(); !status.ok()) return status;
        return routes;
    }

    Result<std::int64_t> reroute_dead(const DeadFilter& filter, const std::string& route) override {
        WriteTransaction transaction(*database_);
        if (Status status = transaction.begin(); !status.ok()) return status;
        // Another source's would be nobody's to send.
        const std::string where =
            where_dead(filter) + " AND (source, ?7) IN (SELECT source, route FROM outbox_routes)";
        Statement twice(*database_,
                        "WITH chosen AS (SELECT dead_id, source, id FROM outbox_dead_letters" +
                            where +
                            ") SELECT min(d.route), max(d.route) FROM outbox_dead_letters d WHERE "
                            "(d.dead_id IN (SELECT dead_id FROM chosen) OR d.route = ?7) AND "
                            "(d.source, d.id) IN (SELECT source, id FROM chosen) GROUP BY "
                            "d.source, d.id HAVING count(*) > 1 LIMIT 1");
        bind(twice, filter).bind(route);
        if (twice.step()) return two_letters(twice.string(0), twice.string(1));
        if (Status status = twice.status(); !status.ok()) return status;
        Statement ids(*database_, ids_of("outbox_dead_letters", where));
        bind(ids, filter).bind(route);
        return carry_out(transaction, ids, "dead retry --to " + route, describe(filter), [&] {
            Statement update(*database_,
                             "UPDATE outbox_dead_letters SET error = 'rerouted from ' || route || "
                             "': ' || error, route = ?7, unmatched = 0, retry_requested_at = "
                             "coalesce(retry_requested_at, ?8)" +
                                 where);
            return bind(update, filter).bind(route).bind(now_us()).run();
        });
    }

  private:
    [[nodiscard]] std::string where_dead(const DeadFilter& filter) const {
        std::string where = where_of_dead(filter, config_.default_tenant);
        if (filter.up_to == 0) return where;
        return where + " AND dead_id <= " + std::to_string(filter.up_to);
    }

    // Every statement names ?7, so that each of the first six can be bound.
    Statement& bind(Statement& statement, const DeadFilter& filter) const {
        statement.bind(table_).bind(json_array(filter.ids)).bind(filter.route);
        return statement.bind(filter.event_type).bind(filter.key).bind(filter.error_code);
    }

    [[nodiscard]] std::string where_of(const ScheduledFilter& filter) const {
        return where_scheduled(filter, config_.default_tenant);
    }

    Statement& bind(Statement& statement, const ScheduledFilter& filter) const {
        return statement.bind(json_array(filter.ids)).bind(filter.event_type).bind(filter.key);
    }

    // How many, and the first of their ids as a JSON array.
    static std::string ids_of(const std::string& table, const std::string& where) {
        return "SELECT (SELECT count(*) FROM " + table + where +
               "), (SELECT json_group_array(id) FROM (SELECT id FROM " + table + where + " LIMIT " +
               std::to_string(kAuditedIds) + "))";
    }

    Result<std::int64_t> audited(const DeadFilter& filter, const std::string& action,
                                 const std::string& detail, const std::function<Status()>& change) {
        WriteTransaction transaction(*database_);
        if (Status status = transaction.begin(); !status.ok()) return status;
        Statement ids(*database_, ids_of("outbox_dead_letters", where_dead(filter) + kNoSeventh));
        bind(ids, filter);
        return carry_out(transaction, ids, action, detail, change);
    }

    Result<bool> change_tenant(WriteTransaction& transaction, Statement& change,
                               const std::string& tenant_id, const std::string& action) {
        const bool changed = change.step();
        while (change.step()) {
        }
        if (Status status = change.status(); !status.ok()) return status;
        change.reset();
        if (!changed) return false;
        Statement line(*database_,
                       "INSERT INTO outbox_audit (at, os_user, source, action, detail, events, "
                       "event_ids) VALUES (?, ?, ?, ?, ?, 0, '[]')");
        line.bind(now_us()).bind(os_user_).bind(table_).bind(action);
        Status status = line.bind(with_reason("tenant " + tenant_id)).run();
        if (status.ok()) status = transaction.commit();
        if (!status.ok()) return status;
        return true;
    }

    // What is done and the line that says so, in one transaction.
    Result<std::int64_t> carry_out(WriteTransaction& transaction, Statement& ids,
                                   const std::string& action, const std::string& detail,
                                   const std::function<Status()>& change) {
        const std::int64_t count = ids.step() ? ids.integer(0) : 0;
        const std::string first = ids.string(1);
        if (Status status = ids.status(); !status.ok()) return status;
        ids.reset();
        if (count == 0) return std::int64_t{0};
        Statement line(*database_,
                       "INSERT INTO outbox_audit (at, os_user, source, action, detail, events, "
                       "event_ids) VALUES (?, ?, ?, ?, ?, ?, ?)");
        line.bind(now_us()).bind(os_user_).bind(table_).bind(action).bind(with_reason(detail));
        if (Status status = line.bind(count).bind(first).run(); !status.ok()) return status;
        if (Status status = change(); !status.ok()) return status;
        if (Status status = transaction.commit(); !status.ok()) return status;
        return count;
    }

    std::unique_ptr<Database> database_;
    const SqliteSourceConfig config_;
    const std::string table_;
    const bool has_audit_;
    RouteLedgers ledgers_;
};

}  // namespace

Result<std::unique_ptr<Operations>> open_operations(const SqliteSourceConfig& config,
                                                    const std::string& table) {
    const Result<std::string> path = database_path(config.url);
    if (!path.ok()) return path.status();
    auto database = Database::open(*path, config.busy_timeout_ms);
    if (!database.ok()) return database.error();
    if (Status status = (*database)->execute(kDurable); !status.ok()) return status.error();
    Statement count(**database,
                    "SELECT coalesce(sum(name <> 'outbox_audit'), 0), coalesce(sum(name = "
                    "'outbox_routes'), 0), coalesce(sum(name = 'outbox_audit'), 0) FROM "
                    "sqlite_master WHERE name IN ('outbox_lease', 'outbox_routes', "
                    "'outbox_delivery', 'outbox_dead_letters', 'outbox_route_stats', "
                    "'outbox_audit')");
    const bool found = count.step();
    if (Status status = count.status(); !status.ok()) return status;
    const bool none = found && count.integer(0) == 0;
    const bool routes = found && count.integer(1) != 0;
    const bool has_audit = found && count.integer(2) != 0;
    count.reset();
    if (none) return std::unique_ptr<Operations>(new NoOperations);
    if (!routes) {
        return ErrorInfo{ErrorCode::kTableShape,
                         Advice::kStop,
                         {},
                         "the side tables of this database were made by an earlier version: "
                         "outbox_routes is missing; the relay makes it when it starts"};
    }
    return std::unique_ptr<Operations>(
        std::make_unique<SqliteOperations>(std::move(*database), config, table, has_audit));
}

}  // namespace outbox::sqlite
