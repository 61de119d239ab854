#include "databases/postgres/source/operations.h"

#include <cstdlib>
#include <utility>

#include "core/no_operations.h"
#include "core/sql_text.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/source/check.h"
#include "databases/postgres/source/route_ledgers.h"
#include "databases/postgres/sql_files.h"
#include "relay/tenants.h"

namespace outbox::postgres {
namespace {

std::string epoch_us(const std::string& column) {
    // From year 1 to 9999: infinite times, too, are shown as something.
    return "CASE WHEN " + column + " IS NOT NULL THEN (least(greatest(extract(epoch FROM " +
           column + "), -62135596800), 253402300799) * 1000000)::bigint END";
}

// Of a dead letter l.
std::string route_known(const std::string& side) {
    return "EXISTS (SELECT FROM " + side +
           "outbox_routes r WHERE r.source = l.source AND r.route = l.route)";
}

// A statement's conditions with their parameters, $1 being the table.
class DeadQuery {
  public:
    DeadQuery(const std::string& table, const DeadFilter& filter, const std::string& default_tenant,
              const std::string& side) {
        params_.text(table);
        if (!filter.ids.empty()) {
            params_.texts(filter.ids);
            where_ += " AND id = ANY(" + next() + "::text[])";
        }
        equal("route", filter.route);
        equal("event_type", filter.event_type);
        equal("coalesce(nullif(key, ''), aggregate_id)", filter.key);
        equal("error_code", filter.error_code);
        equal(tenant_or("tenant_id", default_tenant), filter.tenant);
        if (filter.idle) {
            where_ +=
                " AND (retry_requested_at IS NULL OR (source, route) NOT IN (SELECT source, "
                "route FROM " +
                side + "outbox_routes))";
        }
        if (filter.up_to == 0) return;
        params_.integer(filter.up_to);
        where_ += " AND dead_id <= " + next();
    }
    // Of outbox_scheduled, which has one table's events alone.
    DeadQuery(const std::string& table, const ScheduledFilter& filter,
              const std::string& default_tenant) {
        params_.text(table);
        where_ = " WHERE $1 <> ''";
        if (!filter.ids.empty()) {
            params_.texts(filter.ids);
            where_ += " AND id::text = ANY(" + next() + "::text[])";
        }
        equal("event_type", filter.event_type);
        equal("coalesce(nullif(key, ''), aggregate_id)", filter.key);
        equal(tenant_or("tenant_id", default_tenant), filter.tenant);
    }
    void after(std::int64_t dead_id) {
        params_.integer(dead_id);
        where_ += " AND dead_id > " + next();
    }
    std::string limit(std::size_t count) {
        params_.integer(static_cast<std::int64_t>(count));
        return " LIMIT " + next();
    }
    [[nodiscard]] const std::string& where() const { return where_; }
    [[nodiscard]] const Params& params() const { return params_; }

    std::string text(const std::string& value) {
        params_.text(value);
        return next();
    }
    std::string bytes(const std::string& value) {
        params_.bytes_or_null(value);
        return next();
    }

  private:
    std::string next() { return "$" + std::to_string(++number_); }
    void equal(const std::string& column, const std::string& value) {
        if (value.empty()) return;
        params_.text(value);
        where_ += " AND " + column + " = " + next();
    }

    Params params_;
    std::string where_ = std::string(" WHERE ") + kOfTable;
    int number_ = 1;
};

DeadInfo dead_of(const Rows& rows, int row) {
    DeadInfo dead;
    dead.dead_id = rows.integer(row, 0);
    dead.id = rows.string(row, 1);
    dead.route = rows.string(row, 2);
    dead.position = rows.integer(row, 3);
    dead.aggregate_type = rows.string(row, 4);
    dead.aggregate_id = rows.string(row, 5);
    dead.event_type = rows.string(row, 6);
    dead.tenant_id = rows.string(row, 7);
    dead.schema_id = rows.string(row, 8);
    dead.schema_version = rows.string(row, 9);
    dead.topic = rows.string(row, 10);
    dead.key = rows.string(row, 11);
    dead.routing_key = rows.string(row, 12);
    dead.headers = rows.string(row, 13);
    dead.metadata = rows.string(row, 14);
    dead.attempts = rows.integer(row, 15);
    dead.error_code = rows.string(row, 16);
    dead.error = rows.string(row, 17);
    dead.occurred_at_us = rows.integer(row, 18);
    dead.died_at_us = rows.integer(row, 19);
    dead.retry_requested_at_us = rows.integer(row, 20);
    const std::string_view payload = rows.text(row, 21);
    dead.payload_is_null = payload.data() == nullptr;
    if (!dead.payload_is_null) dead.payload = decode_bytea(payload);
    dead.route_known = rows.boolean(row, 22);
    dead.unmatched = rows.boolean(row, 23);
    return dead;
}

class PostgresOperations final : public Operations {
  public:
    PostgresOperations(Connection connection, PostgresSourceConfig config, std::string side,
                       std::string table, bool has_audit)
        : connection_(std::move(connection)),
          config_(std::move(config)),
          side_(std::move(side)),
          table_(std::move(table)),
          has_audit_(has_audit),
          ledgers_(connection_, config_, side_, table_, os_user_) {}

    Result<std::vector<LeaseInfo>> leases() override {
        auto leases = ledgers_.leases();
        if (!leases.ok()) return leases.status();
        return leases_with_routes(std::move(*leases));
    }

    Result<std::vector<RouteInfo>> routes() override {
        const std::string of_table = kOfTable;
        // A rate that no relay has renewed for a while is not one any more.
        const auto rows = connection_.query(
            "WITH failing AS (SELECT route, count(*) AS n FROM " + side_ +
                "outbox_delivery WHERE " + of_table +
                " GROUP BY route), dead AS (SELECT route, count(*) AS n FROM " + side_ +
                "outbox_dead_letters "
                "WHERE " +
                of_table +
                " GROUP BY route), stats AS (SELECT route, sum(published_total)::bigint AS "
                "published_total, sum(dead_total)::bigint AS dead_total, "
                "(array_agg(circuit ORDER BY updated_at DESC))[1] AS circuit, "
                "(array_agg(last_error ORDER BY updated_at DESC))[1] AS last_error, "
                "(array_agg(last_error_at ORDER BY updated_at DESC))[1] AS last_error_at, "
                "(array_agg(path ORDER BY updated_at DESC))[1] AS path, "
                "(array_agg(path_reason ORDER BY updated_at DESC))[1] AS path_reason, "
                "sum(CASE WHEN updated_at > clock_timestamp() - interval '15 seconds' "
                "THEN rate_per_s ELSE 0 END) AS rate_per_s, max(updated_at) AS updated_at "
                "FROM " +
                side_ + "outbox_route_stats WHERE " + of_table +
                " GROUP BY route), known AS (SELECT DISTINCT route FROM " + side_ +
                "outbox_routes WHERE " + of_table +
                ") SELECT route, coalesce(s.published_total, 0), "
                "coalesce(s.dead_total, 0), coalesce(f.n, 0), coalesce(d.n, 0), "
                "coalesce(s.circuit, ''), coalesce(s.last_error, ''), coalesce(s.rate_per_s, 0), "
                "coalesce(" +
                epoch_us("s.updated_at") +
                ", 0), coalesce(s.path, ''), coalesce(s.path_reason, ''), NOT EXISTS (SELECT FROM "
                "known k WHERE k.route = a.route), coalesce(" +
                epoch_us("s.last_error_at") +
                ", 0) FROM (SELECT route FROM known UNION SELECT route "
                "FROM dead) a LEFT JOIN stats s USING (route) LEFT JOIN failing f USING (route) "
                "LEFT JOIN dead d USING (route) ORDER BY route",
            Params().text(table_));
        if (!rows.ok()) return rows.status();
        std::vector<RouteInfo> routes;
        for (int row = 0; row < rows->size(); ++row) {
            RouteInfo route;
            route.name = rows->string(row, 0);
            route.published_total = rows->integer(row, 1);
            route.dead_total = rows->integer(row, 2);
            route.failing = rows->integer(row, 3);
            route.dead = rows->integer(row, 4);
            route.circuit = rows->string(row, 5);
            route.last_error = rows->string(row, 6);
            route.rate_per_s = std::strtod(rows->string(row, 7).c_str(), nullptr);
            route.updated_at_us = rows->integer(row, 8);
            route.path = rows->string(row, 9);
            route.path_reason = rows->string(row, 10);
            route.retired = rows->boolean(row, 11);
            route.last_error_at_us = rows->integer(row, 12);
            routes.push_back(std::move(route));
        }
        return routes;
    }

    Result<std::vector<StandbyInfo>> standbys() override {
        const auto rows = connection_.query(
            "SELECT owner, routes, " + epoch_us("seen_at") + ", source FROM " + side_ +
                "outbox_standbys WHERE " + kOfTable +
                " AND seen_at > clock_timestamp() - interval '15 seconds' ORDER BY owner",
            Params().text(table_));
        if (!rows.ok()) return rows.status();
        std::vector<StandbyInfo> standbys;
        for (int row = 0; row < rows->size(); ++row) {
            standbys.push_back({rows->string(row, 0), lines_of(rows->text(row, 1)),
                                rows->integer(row, 2),
                                relay::tenants_of(rows->text(row, 3), table_)});
        }
        return standbys;
    }

    Result<std::vector<WaitingEvent>> waiting_events(std::size_t limit) override {
        const auto rows = connection_.query(
            "SELECT route, event_id, position, key, attempts, " + epoch_us("first_failed_at") +
                ", " + epoch_us("next_attempt_at") + ", error_code, last_error FROM " + side_ +
                "outbox_delivery WHERE " + kOfTable +
                " ORDER BY first_failed_at, route, event_id LIMIT $2",
            Params().text(table_).integer(static_cast<std::int64_t>(limit)));
        if (!rows.ok()) return rows.status();
        std::vector<WaitingEvent> events;
        for (int row = 0; row < rows->size(); ++row) {
            events.push_back({.route = rows->string(row, 0),
                              .id = rows->string(row, 1),
                              .position = rows->integer(row, 2),
                              .key = rows->string(row, 3),
                              .attempts = rows->integer(row, 4),
                              .first_failed_at_us = rows->integer(row, 5),
                              .next_attempt_at_us = rows->integer(row, 6),
                              .error_code = rows->string(row, 7),
                              .error = rows->string(row, 8)});
        }
        return events;
    }

    Result<std::vector<AuditLine>> audit_lines(std::int64_t before_audit_id,
                                               std::size_t limit) override {
        std::vector<AuditLine> lines;
        if (!has_audit_) return lines;
        const auto rows = connection_.query(
            "SELECT " + epoch_us("at") + ", " + kAuditedBy +
                ", action, detail, audit_id, events, source FROM " + side_ +
                "outbox_audit WHERE (source IN ($1, 'webhooks', 'sagas') OR starts_with(source, "
                "'consumer ')) AND ($2 = 0 OR audit_id < $2) ORDER BY audit_id DESC LIMIT $3",
            Params()
                .text(table_)
                .integer(before_audit_id)
                .integer(static_cast<std::int64_t>(limit)));
        if (!rows.ok()) return rows.status();
        for (int row = 0; row < rows->size(); ++row) {
            lines.push_back({rows->integer(row, 0), rows->string(row, 1), rows->string(row, 2),
                             rows->string(row, 3), rows->integer(row, 4), rows->integer(row, 5),
                             rows->string(row, 6)});
        }
        return lines;
    }

    Result<std::vector<DeadInfo>> dead(const DeadFilter& filter, std::int64_t after_dead_id,
                                       std::size_t limit, bool with_payload) override {
        DeadQuery query(table_, filter, config_.default_tenant, side_);
        query.after(after_dead_id);
        const std::string tail = query.limit(limit);
        const auto rows = connection_.query(
            "SELECT dead_id, id, route, position, aggregate_type, aggregate_id, event_type, "
            "tenant_id, schema_id, schema_version, topic, key, routing_key, headers, metadata, "
            "attempts, error_code, error, " +
                epoch_us("occurred_at") + ", " + epoch_us("died_at") + ", " +
                epoch_us("retry_requested_at") + ", " + (with_payload ? "payload" : "NULL::bytea") +
                ", " + route_known(side_) + ", unmatched FROM " + side_ + "outbox_dead_letters l" +
                query.where() + " ORDER BY dead_id" + tail,
            query.params());
        if (!rows.ok()) return rows.status();
        std::vector<DeadInfo> letters;
        letters.reserve(static_cast<std::size_t>(rows->size()));
        for (int row = 0; row < rows->size(); ++row) letters.push_back(dead_of(*rows, row));
        return letters;
    }

    Result<std::int64_t> count_dead(const DeadFilter& filter) override {
        const DeadQuery query(table_, filter, config_.default_tenant, side_);
        const auto rows = connection_.query(
            "SELECT count(*) FROM " + side_ + "outbox_dead_letters" + query.where(),
            query.params());
        if (!rows.ok()) return rows.status();
        return rows->integer(0, 0);
    }

    Result<std::int64_t> last_dead() override {
        const auto rows =
            connection_.query("SELECT max(dead_id) FROM " + side_ + "outbox_dead_letters");
        if (!rows.ok()) return rows.status();
        return rows->integer(0, 0);
    }

    Result<std::int64_t> oldest_dead_us() override {
        const DeadQuery query(table_, {}, config_.default_tenant, side_);
        const auto rows =
            connection_.query("SELECT coalesce(" + epoch_us("min(occurred_at)") + ", 0) FROM " +
                                  side_ + "outbox_dead_letters" + query.where(),
                              query.params());
        if (!rows.ok()) return rows.status();
        return rows->integer(0, 0);
    }

    Result<std::int64_t> retry_dead(const DeadFilter& filter) override {
        DeadQuery query(table_, filter, config_.default_tenant, side_);
        return audited("UPDATE " + side_ +
                           "outbox_dead_letters SET retry_requested_at = "
                           "coalesce(retry_requested_at, clock_timestamp())" +
                           query.where(),
                       query, "dead retry", describe(filter));
    }

    Result<std::int64_t> discard_dead(const DeadFilter& filter) override {
        DeadQuery query(table_, filter.of_idle(), config_.default_tenant, side_);
        return audited("DELETE FROM " + side_ + "outbox_dead_letters" + query.where(), query,
                       "dead discard", describe(filter));
    }

    Result<std::int64_t> edit_dead(const DeadFilter& filter, const DeadEdit& edit) override {
        DeadQuery query(table_, filter.of_idle(), config_.default_tenant, side_);
        std::string set;
        const auto assign = [&](const std::string& column, const std::string& value) {
            set += (set.empty() ? "" : ", ") + column + " = " + value;
        };
        if (edit.payload) assign("payload", query.bytes(*edit.payload));
        if (edit.topic) assign("topic", "nullif(" + query.text(*edit.topic) + ", '')");
        if (edit.key) assign("key", "nullif(" + query.text(*edit.key) + ", '')");
        if (edit.headers) assign("headers", query.text(*edit.headers) + "::jsonb::text");
        return audited("UPDATE " + side_ + "outbox_dead_letters SET " + set + query.where(), query,
                       "dead edit", describe(filter) + ": " + describe(edit));
    }

    Result<std::vector<ScheduledInfo>> scheduled(const ScheduledFilter& filter,
                                                 std::size_t limit) override {
        const auto place = scheduled_table();
        if (!place.ok()) return place.status();
        DeadQuery query(table_, filter, config_.default_tenant);
        const std::string tail = query.limit(limit);
        const auto rows =
            connection_.query("SELECT id, aggregate_type, aggregate_id, event_type, topic, key, " +
                                  epoch_us("available_at") + ", tenant_id FROM " + *place +
                                  query.where() + " ORDER BY available_at, schedule_id" + tail,
                              query.params());
        if (!rows.ok()) return rows.status();
        std::vector<ScheduledInfo> events;
        for (int row = 0; row < rows->size(); ++row) {
            events.push_back({rows->string(row, 0), rows->string(row, 1), rows->string(row, 2),
                              rows->string(row, 3), rows->string(row, 4), rows->string(row, 5),
                              rows->integer(row, 6), rows->string(row, 7)});
        }
        return events;
    }

    Result<std::int64_t> count_scheduled(const ScheduledFilter& filter) override {
        const auto place = scheduled_table();
        if (!place.ok()) return place.status();
        const DeadQuery query(table_, filter, config_.default_tenant);
        const auto rows =
            connection_.query("SELECT count(*) FROM " + *place + query.where(), query.params());
        if (!rows.ok()) return rows.status();
        return rows->integer(0, 0);
    }

    Result<std::int64_t> cancel_scheduled(const ScheduledFilter& filter) override {
        const auto place = scheduled_table();
        if (!place.ok()) return place.status();
        DeadQuery query(table_, filter, config_.default_tenant);
        return audited("DELETE FROM " + *place + query.where(), query, "scheduled cancel",
                       describe(filter));
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
        const auto place = scheduled_table();
        if (!place.ok() && place.error().code == ErrorCode::kUnsupported) return DelayedEvents{};
        if (!place.ok()) return place.status();
        const std::string whose = tenant_id.empty() ? "" : config_.default_tenant;
        const auto rows = connection_.query(
            "SELECT count(*), coalesce(" + epoch_us("max(available_at)") + ", 0) FROM " + *place +
                " WHERE coalesce(nullif(tenant_id, ''), " + quote_literal(whose) + ") = $1",
            Params().text(tenant_id));
        if (!rows.ok()) return rows.status();
        return DelayedEvents{rows->integer(0, 0), rows->integer(0, 1)};
    }

    Result<TenantBacklogs> tenant_backlogs() override { return ledgers_.tenant_backlogs(); }

    Result<std::vector<PausedTenant>> paused_tenants() override {
        std::vector<PausedTenant> tenants;
        const auto there = has_paused_tenants();
        if (!there.ok()) return there.status();
        if (!*there) return tenants;
        const auto rows = connection_.query(
            "SELECT tenant_id, reason, 'role ' || role || ', user ' || os_user, " +
                epoch_us("paused_at") + " FROM " + side_ +
                "outbox_paused_tenants WHERE source = $1 ORDER BY tenant_id",
            Params().text(table_));
        if (!rows.ok()) return rows.status();
        for (int row = 0; row < rows->size(); ++row) {
            tenants.push_back({rows->string(row, 0), rows->string(row, 1), rows->string(row, 2),
                               rows->integer(row, 3)});
        }
        return tenants;
    }

    Result<bool> pause_tenant(const std::string& tenant_id) override {
        if (Status made = make_paused_tenants(); !made.ok()) return made;
        if (Status seen = require_relays_see_it(); !seen.ok()) return seen;
        return change_tenant("INSERT INTO " + side_ +
                                 "outbox_paused_tenants (source, tenant_id, os_user, reason) "
                                 "VALUES ($1, $2, $3, $6) ON CONFLICT DO NOTHING",
                             tenant_id, "tenant pause");
    }

    Result<bool> resume_tenant(const std::string& tenant_id) override {
        const auto there = has_paused_tenants();
        if (!there.ok()) return there.status();
        if (!*there) return false;
        return change_tenant("DELETE FROM " + side_ +
                                 "outbox_paused_tenants WHERE source = $1 AND tenant_id = $2 AND "
                                 "$6 IS NOT NULL",
                             tenant_id, "tenant resume");
    }

    Result<std::vector<DeadRoute>> routes_of_dead(const DeadFilter& filter,
                                                  bool unknown_only) override {
        const DeadQuery query(table_, filter, config_.default_tenant, side_);
        const auto rows = connection_.query(
            "SELECT DISTINCT route, source FROM " + side_ + "outbox_dead_letters l" +
                query.where() + (unknown_only ? " AND NOT " + route_known(side_) : std::string()) +
                " ORDER BY route, source",
            query.params());
        if (!rows.ok()) return rows.status();
        std::vector<DeadRoute> routes;
        for (int row = 0; row < rows->size(); ++row) {
            routes.push_back({rows->string(row, 0), rows->string(row, 1),
                              relay::tenants_of(rows->text(row, 1), table_)});
        }
        return routes;
    }

    Result<std::int64_t> reroute_dead(const DeadFilter& filter, const std::string& route) override {
        DeadQuery query(table_, filter, config_.default_tenant, side_);
        const std::string to = query.text(route);
        // Another source's would be nobody's to send.
        const std::string where = query.where() + " AND (source, " + to +
                                  ") IN (SELECT source, route FROM " + side_ + "outbox_routes)";
        const auto twice = connection_.query(
            "WITH chosen AS (SELECT dead_id, source, id, route FROM " + side_ +
                "outbox_dead_letters" + where + ") SELECT min(d.route), max(d.route) FROM " +
                side_ +
                "outbox_dead_letters d WHERE (d.dead_id "
                "IN (SELECT dead_id FROM chosen) OR d.route = " +
                to +
                ") AND (d.source, d.id) IN (SELECT source, id FROM chosen) GROUP BY d.source, d.id "
                "HAVING count(*) > 1 LIMIT 1",
            query.params());
        if (!twice.ok()) return twice.status();
        if (!twice->empty()) return two_letters(twice->string(0, 0), twice->string(0, 1));
        return audited("UPDATE " + side_ +
                           "outbox_dead_letters SET error = 'rerouted from ' || route || ': ' || "
                           "error, route = " +
                           to +
                           ", unmatched = false, retry_requested_at = coalesce(retry_requested_at, "
                           "clock_timestamp())" +
                           where,
                       query, "dead retry --to " + route, describe(filter));
    }

  private:
    Result<bool> has_paused_tenants() {
        const auto rows = connection_.query("SELECT to_regclass($1) IS NOT NULL",
                                            Params().text(side_ + "outbox_paused_tenants"));
        if (!rows.ok()) return rows.status();
        return rows->boolean(0, 0);
    }

    // Beside an adopted table, as its side tables' owner: the relay reads no stranger's.
    Status make_paused_tenants() {
        const auto there = has_paused_tenants();
        if (!there.ok() || *there) return there.status();
        if (table_.ends_with(".outbox_events")) return no_paused_tenants();
        const auto owner = connection_.query(
            "SELECT quote_ident(pg_get_userbyid(relowner)) FROM pg_class WHERE oid = "
            "to_regclass($1)",
            Params().text(side_ + "outbox_routes"));
        if (!owner.ok()) return owner.status();
        const std::string sql = fill_sql(embedded_sql_text("producer/postgres/paused_tenants.sql"),
                                         side_.substr(0, side_.size() - 1)) +
                                "ALTER TABLE " + side_ + "outbox_paused_tenants OWNER TO " +
                                owner->string(0, 0) + ";\n";
        Status made = connection_.execute(
            "BEGIN; " + std::string(kCatalogPath) +
            "SELECT pg_advisory_xact_lock(hashtextextended('outbox side tables', 0)); " + sql +
            "COMMIT");
        if (made.ok()) return made;
        ErrorInfo error = made.error();
        if (Status back = connection_.execute("ROLLBACK"); !back.ok()) return back;
        error.code = ErrorCode::kNoRights;
        error.message =
            "the table outbox_paused_tenants is missing and cannot be made: " + error.message +
            "; have an owner run:\n" + sql;
        return error;
    }

    // A relay that may not read who is paused would send the events all the same.
    Status require_relays_see_it() {
        const std::string paused = side_ + "outbox_paused_tenants";
        const auto rows = connection_.query(
            "SELECT string_agg(DISTINCT quote_ident(r.rolname), ', ') FROM pg_stat_activity a "
            "JOIN pg_roles r ON r.oid = a.usesysid WHERE a.datname = current_database() AND "
            "has_table_privilege(r.oid, $1, 'INSERT') AND NOT has_table_privilege(r.oid, $2, "
            "'SELECT')",
            Params().text(side_ + "outbox_lease").text(paused));
        if (!rows.ok()) return rows.status();
        if (rows->text(0, 0).data() == nullptr) return {};
        const std::string roles = rows->string(0, 0);
        return {ErrorCode::kNoRights, Advice::kStop,
                "nothing is paused: " + roles +
                    ", whose relay runs, may not read who is, and would send the events all the "
                    "same. GRANT SELECT ON " +
                    paused + " TO " + roles + "; then pause again",
                "42501"};
    }

    // One statement: what is done, and the line that says so.
    Result<bool> change_tenant(const std::string& change, const std::string& tenant_id,
                               const std::string& action) {
        const auto rows = connection_.query(
            "WITH changed AS (" + change + " RETURNING tenant_id) INSERT INTO " + side_ +
                "outbox_audit (os_user, source, action, detail, events, event_ids) SELECT $3, $1, "
                "$4, $5, 0, '{}' FROM changed RETURNING audit_id",
            Params()
                .text(table_)
                .text(tenant_id)
                .text(os_user_)
                .text(action)
                .text(with_reason("tenant " + tenant_id))
                .text(reason()));
        if (!rows.ok()) return rows.status();
        return !rows->empty();
    }

    // One statement: what is done, and the line that says so.
    Result<std::int64_t> audited(const std::string& change, DeadQuery& query,
                                 const std::string& action, const std::string& detail) {
        const std::string who = query.text(os_user_);
        const std::string what = query.text(action) + ", " + query.text(with_reason(detail));
        const auto rows = connection_.query(
            "WITH changed AS (" + change + " RETURNING id::text AS event_id) INSERT INTO " + side_ +
                "outbox_audit (os_user, source, action, detail, events, event_ids) SELECT " + who +
                ", $1, " + what + ", count(*), (array_agg(event_id))[1:" +
                std::to_string(kAuditedIds) + "] FROM changed HAVING count(*) > 0 RETURNING events",
            query.params());
        if (!rows.ok()) return rows.status();
        return rows->empty() ? std::int64_t{0} : rows->integer(0, 0);
    }

    // Of the native table only.
    Result<std::string> scheduled_table() {
        const auto dot = table_.find('.');
        const std::string name = quote_identifier(table_.substr(0, dot)) + "." + "outbox_scheduled";
        const auto there =
            connection_.query("SELECT to_regclass($1) IS NOT NULL", Params().text(name));
        if (!there.ok()) return there.status();
        if (table_.substr(dot + 1) != "outbox_events" || !there->boolean(0, 0)) {
            return no_delayed_events(table_);
        }
        return name;
    }

    Connection connection_;
    const PostgresSourceConfig config_;
    const std::string side_;  // before the name of a side table
    const std::string table_;
    const bool has_audit_;
    RouteLedgers ledgers_;
};

}  // namespace

Result<std::unique_ptr<Operations>> open_operations(const PostgresSourceConfig& config,
                                                    const std::string& table) {
    auto connection = Connection::open(config.url, config.connect_timeout_s);
    if (!connection.ok()) return connection.status();
    connection->name_holders(config.url, config.connect_timeout_s);
    const auto tables =
        look_for_side_tables(*connection, quote_identifier(table.substr(0, table.find('.'))));
    if (!tables.ok()) return tables.status();
    if (tables->none) return std::unique_ptr<Operations>(new NoOperations);
    if (Status owners = require_owners(*connection, tables->schema, config); !owners.ok()) {
        return owners;
    }
    if (tables->missing.find("outbox_routes") != std::string::npos) {
        return ErrorInfo{ErrorCode::kTableShape,
                         Advice::kStop,
                         {},
                         "the side tables of this database were made by an earlier version: " +
                             tables->missing + " are missing; the relay makes them when it starts"};
    }
    return std::unique_ptr<Operations>(new PostgresOperations(
        std::move(*connection), config, quote_identifier(tables->schema) + ".", table,
        tables->missing.find("outbox_audit") == std::string::npos));
}

}  // namespace outbox::postgres
