#include "databases/postgres/source/route_ledgers.h"

#include <algorithm>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/identity.h"
#include "databases/postgres/record/ledger.h"
#include "relay/tenants.h"

namespace outbox::postgres {
namespace {

ErrorInfo conflict(std::string message) {
    return {ErrorCode::kConflict, Advice::kStop, {}, std::move(message)};
}

}  // namespace

// As a relay that starts finds it (`LedgerTable::check_life`).
Result<bool> is_other_table(Connection& connection, const Table& table) {
    if (!table.by_position && table.uuid_id) return false;
    const std::string of_table = std::string(" WHERE ") + kOfTable;
    const std::string of_ledgers = table.side + "outbox_ledger" + of_table;
    const std::string of_routes = table.side + "outbox_routes" + of_table;
    std::string lives = "SELECT life FROM " + of_routes;
    std::string given = "SELECT";
    std::string set_back = table.integer_id ? ids_set_back(table, kOfTable) : "false";
    if (table.by_position) {
        lives = "SELECT life FROM " + of_ledgers +
                (table.keep ? " UNION SELECT life FROM " + of_routes + " AND settled > 0"
                            : std::string());
        given = last_given(table);
        set_back = "EXISTS (SELECT FROM given WHERE EXISTS (SELECT FROM " + of_ledgers +
                   " AND (segment > last / 65536 OR (segment = last / 65536 AND done << (last % "
                   "65536 + 1)::integer <> B'0'::bit(65536))))" +
                   (table.keep ? " OR EXISTS (SELECT FROM " + of_routes + " AND settled > last)"
                               : std::string()) +
                   ")";
    }
    const auto rows = connection.query(
        "WITH given AS MATERIALIZED (" + given + ") SELECT EXISTS (SELECT FROM (" + lives +
            ") known WHERE life IS NOT NULL AND life IS DISTINCT FROM (SELECT " + life_of(table) +
            ")) OR " + set_back,
        Params().text(table.schema + "." + table.name));
    if (!rows.ok()) return rows.status();
    return rows->boolean(0, 0);
}

Result<std::vector<LeaseInfo>> RouteLedgers::leases() {
    const auto rows = connection_.query(
        std::string("SELECT coalesce(owner, ''), epoch, owner IS NOT NULL AND "
                    "expires_at > clock_timestamp() AND (backend_start IS NULL OR EXISTS ("
                    "SELECT FROM pg_stat_activity a WHERE a.pid = backend_pid AND "
                    "(a.backend_start IS NULL OR a.backend_start = l.backend_start))) AS held, "
                    "CASE WHEN owner IS NULL THEN 0 ELSE (extract(epoch FROM acquired_at) * "
                    "1000000)::bigint END, coalesce(greatest(extract(epoch FROM expires_at - "
                    "clock_timestamp()) * 1000, 0), 0)::bigint, source, (SELECT "
                    "coalesce(string_agg(route, E'\\n' ORDER BY route COLLATE \"C\"), '') FROM " +
                    side_ + "outbox_routes r WHERE r.source = l.source) FROM " + side_ +
                    "outbox_lease l WHERE ") +
            kOfTable + " ORDER BY held DESC, epoch DESC",
        Params().text(table_));
    if (!rows.ok()) return rows.status();
    std::vector<LeaseInfo> leases;
    for (int row = 0; row < rows->size(); ++row) {
        LeaseInfo lease;
        lease.owner = rows->string(row, 0);
        lease.epoch = static_cast<std::uint64_t>(rows->integer(row, 1));
        lease.held = rows->boolean(row, 2);
        lease.acquired_at_us = rows->integer(row, 3);
        lease.expires_in_ms = lease.held ? rows->integer(row, 4) : 0;
        lease.tenants = relay::tenants_of(rows->text(row, 5), table_);
        lease.routes = lines_of(rows->text(row, 6));
        leases.push_back(std::move(lease));
    }
    return leases;
}

std::string RouteLedgers::source_of(const std::vector<std::string>& tenants) const {
    return relay::source_name(table_, tenants);
}

// A relay of other tenants goes on: the row that it renews is not locked. One whose lease has run
// out while it was stopped must find that when it goes on.
Status RouteLedgers::end_leases(const std::vector<std::string>& tenants) {
    const auto known = leases();
    if (!known.ok()) return known.status();
    std::vector<std::string> sources;
    for (const LeaseInfo& lease : *known) {
        if (relay::overlap(lease.tenants, tenants)) sources.push_back(source_of(lease.tenants));
    }
    const auto locked = connection_.query("SELECT FROM " + side_ +
                                              "outbox_lease WHERE source = ANY($1::text[]) ORDER "
                                              "BY source FOR UPDATE",
                                          Params().texts(sources));
    if (!locked.ok()) return locked.status();
    const auto held = leases();
    if (!held.ok()) return held.status();
    for (const LeaseInfo& lease : *held) {
        if (lease.held && relay::overlap(lease.tenants, tenants)) {
            return relay_is_running(lease.owner);
        }
    }
    return connection_
        .query("UPDATE " + side_ +
                   "outbox_lease SET epoch = epoch + 1, owner = NULL, expires_at = NULL, "
                   "backend_pid = NULL, backend_start = NULL WHERE owner IS NOT NULL AND source = "
                   "ANY($1::text[])",
               Params().texts(sources))
        .status();
}

Status RouteLedgers::alone(const std::vector<std::string>& tenants,
                           const std::function<Result<bool>()>& change) {
    if (Status begun = connection_.execute("BEGIN"); !begun.ok()) return begun;
    const Status free = end_leases(tenants);
    const Result<bool> done = free.ok() ? change() : Result<bool>(free);
    const Status ended = connection_.execute(done.ok() && *done ? "COMMIT" : "ROLLBACK");
    return done.ok() ? ended : done.status();
}

Result<std::int64_t> RouteLedgers::number(const std::string& sql, const Params& params) {
    const auto rows = connection_.query(sql, params);
    if (!rows.ok()) return rows.status();
    return rows->integer(0, 0);
}

Result<std::vector<LedgerRoute>> RouteLedgers::list(bool count_unfinished) {
    const auto rows = connection_.query(
        std::string("SELECT r.route, r.source, coalesce(r.destination, ''), (extract(epoch FROM "
                    "r.since) * 1000000)::bigint, (SELECT count(*) FROM " +
                    side_ +
                    "outbox_dead_letters d "
                    "WHERE d.source = r.source AND d.route = r.route), coalesce(s.circuit, ''), "
                    "coalesce(s.last_error, '') FROM " +
                    side_ + "outbox_routes r LEFT JOIN " + side_ +
                    "outbox_route_stats "
                    "s USING (source, route) WHERE ") +
            kOfTable + " ORDER BY r.route, r.source",
        Params().text(table_));
    if (!rows.ok()) return rows.status();
    std::vector<LedgerRoute> routes;
    for (int row = 0; row < rows->size(); ++row) {
        LedgerRoute route;
        route.name = rows->string(row, 0);
        route.source = rows->string(row, 1);
        route.destination = rows->string(row, 2);
        route.since_us = rows->integer(row, 3);
        route.dead = rows->integer(row, 4);
        route.circuit = rows->string(row, 5);
        route.last_error = rows->string(row, 6);
        if (count_unfinished) {
            const auto unfinished = this->count_unfinished(route.source, route.name);
            if (!unfinished.ok()) return unfinished.status();
            route.unfinished = *unfinished;
        }
        routes.push_back(std::move(route));
    }
    return routes;
}

Result<bool> RouteLedgers::are_of_another() {
    const auto table = resolve();
    if (!table.ok()) return table.status();
    return is_other_table(connection_, *table);
}

Result<Table> RouteLedgers::resolve() {
    auto table = resolve_table(connection_, config_);
    if (table.ok()) table->side = side_;
    return table;
}

std::string RouteLedgers::tenant_of(const Table& table) const {
    if (!table.has("tenant_id")) return quote_literal(config_.default_tenant);
    return tenant_or(table.quoted("tenant_id") + "::text", config_.default_tenant);
}

Result<std::string> RouteLedgers::unfinished_rows(const Table& table, const std::string& source,
                                                  const std::string& route,
                                                  const std::string& columns, Params& params,
                                                  bool nameless) const {
    const auto other = is_other_table(connection_, table);
    if (!other.ok()) return other.status();
    params.text(source).text(route);
    std::string tenants = "true";
    // Whoever serves them knows another name for them, perhaps, than this command.
    std::string of_none = "true";
    if (table.has("tenant_id")) {
        of_none = "coalesce(" + table.quoted("tenant_id") + "::text, '') = ''";
    }
    if (nameless) {
        tenants = of_none;
    } else if (source != table_ && table.has("tenant_id")) {
        params.texts(relay::tenants_of(source, table_));
        tenants = tenant_of(table) + " = ANY($3::text[])";
        if (!config_.default_tenant_given) tenants = "(" + tenants + " OR " + of_none + ")";
    }
    if (!table.by_position) {
        return "SELECT " + columns + " FROM " + table.sql + " t WHERE " + any_unfinished(table) +
               " AND " + tenants + " AND " + (*other ? "(true OR " : "(") +
               not_done(table, "$1", "$2") + ")";
    }
    // The segments are unpacked once (done | done is a new value) and not for each row.
    const std::string position = "t." + quote_identifier(table.position);
    return "WITH l AS MATERIALIZED (SELECT segment, done | done AS done FROM " + side_ +
           "outbox_ledger WHERE source = $1 AND route = $2" + (*other ? " AND false" : "") +
           ") SELECT " + columns + " FROM " + table.sql +
           " t LEFT JOIN l ON l.segment = " + position + " / 65536 WHERE " + tenants + " AND " +
           position + " > 0 AND " + (*other || route.empty() ? "true" : above_settled(table)) +
           " AND (l.done IS NULL OR get_bit(l.done, (" + position + " % 65536)::integer) = 0)";
}

Result<BoundedCount> RouteLedgers::count_unfinished(const std::string& source,
                                                    const std::string& route,
                                                    const std::string* tenant) {
    const auto table = resolve();
    if (!table.ok()) return table.status();
    Params params;
    const bool nameless = tenant != nullptr && tenant->empty();
    auto rows = unfinished_rows(*table, source, route, "", params, nameless);
    if (!rows.ok()) return rows.status();
    if (tenant != nullptr && !nameless)
        *rows += " AND " + tenant_of(*table) + " = " + quote_literal(*tenant);
    const auto count = number("SELECT count(*) FROM (" + *rows + " LIMIT " +
                                  std::to_string(BoundedCount::kLimit + 1) + ") u",
                              params);
    if (!count.ok()) return count.status();
    return BoundedCount{std::min(*count, BoundedCount::kLimit), *count > BoundedCount::kLimit};
}

Result<TenantBacklogs> RouteLedgers::tenant_backlogs() {
    const auto routes = list(false);
    if (!routes.ok()) return routes.status();
    const auto table = resolve();
    if (!table.ok()) return table.status();
    if (!table->has("tenant_id")) return TenantBacklogs{};
    std::vector<std::map<std::string, std::int64_t>> counts;
    for (const LedgerRoute& route : *routes) {
        Params params;
        const auto rows = unfinished_rows(*table, route.source, route.name,
                                          tenant_of(*table) + " AS tenant", params);
        if (!rows.ok()) return rows.status();
        const auto waiting =
            connection_.query("SELECT tenant, count(*) FROM (" + *rows + " LIMIT " +
                                  std::to_string(BoundedCount::kLimit) + ") u GROUP BY tenant",
                              params);
        if (!waiting.ok()) return waiting.status();
        auto& of_route = counts.emplace_back();
        for (int row = 0; row < waiting->size(); ++row) {
            of_route[waiting->string(row, 0)] = waiting->integer(row, 1);
        }
    }
    return most_of_each(counts);
}

Result<BoundedCount> RouteLedgers::unfinished_of(const std::string& tenant) {
    const auto routes = list(false);
    if (!routes.ok()) return routes.status();
    if (routes->empty()) return never_relayed();
    const auto other = are_of_another();
    if (!other.ok()) return other.status();
    if (*other) return ledgers_of_another();
    BoundedCount most;
    bool served = tenant.empty();
    for (const LedgerRoute& route : *routes) {
        served = served || relay::covers(relay::tenants_of(route.source, table_), {tenant});
        const auto count = count_unfinished(route.source, route.name, &tenant);
        if (!count.ok()) return count.status();
        most.count = std::max(most.count, count->count);
        most.more = most.more || count->more;
    }
    // Nobody has sent any of what no relay serves.
    if (!served) return count_unfinished(table_, {}, &tenant);
    return most;
}

Status RouteLedgers::note(const std::string& action, const std::string& detail) {
    return connection_
        .query("INSERT INTO " + side_ +
                   "outbox_audit (os_user, source, action, detail, events, event_ids) VALUES ($2, "
                   "$1, $3, $4, 0, '{}')",
               Params().text(table_).text(os_user_).text(action).text(detail))
        .status();
}

// What it said last was of where it led before.
Result<std::int64_t> RouteLedgers::accept(const std::vector<std::string>& tenants,
                                          const std::string& route) {
    const std::string of_route = " WHERE source = $1 AND route = $2";
    const auto rows = connection_.query(
        "WITH told AS (UPDATE " + side_ +
            "outbox_route_stats SET last_error = NULL, last_error_at = NULL" + of_route +
            "), changed AS (UPDATE " + side_ + "outbox_routes SET destination = NULL" + of_route +
            " RETURNING route) INSERT INTO " + side_ +
            "outbox_audit (os_user, source, action, detail, events, event_ids) SELECT $4, $3, "
            "'routes accept', $5, 0, '{}' FROM changed",
        Params()
            .text(source_of(tenants))
            .text(route)
            .text(table_)
            .text(os_user_)
            .text(relay::audited_route(route, tenants)));
    if (!rows.ok()) return rows.status();
    return rows->affected();
}

// Figures of a former route of the new name may be left: they are one route's from now on. What it
// said last may call it by its old name.
Status RouteLedgers::move_stats(const std::string& source, const std::string& from,
                                const std::string& to) {
    const Params params = Params().text(source).text(from).text(to);
    Status status =
        connection_
            .query("UPDATE " + side_ +
                       "outbox_route_stats n SET published_total = n.published_total + "
                       "o.published_total, dead_total = n.dead_total + o.dead_total, circuit = "
                       "o.circuit, path = o.path, path_reason = o.path_reason, last_error = NULL, "
                       "last_error_at = NULL, rate_per_s = o.rate_per_s, updated_at = "
                       "o.updated_at FROM (SELECT * FROM " +
                       side_ +
                       "outbox_route_stats WHERE source = $1 AND route = $2) o WHERE n.source = "
                       "o.source AND n.route = $3",
                   params)
            .status();
    if (!status.ok()) return status;
    return connection_
        .query("UPDATE " + side_ +
                   "outbox_route_stats o SET route = CASE WHEN t.there THEN $2 ELSE $3 END, "
                   "published_total = CASE WHEN t.there THEN 0 ELSE o.published_total END, "
                   "dead_total = CASE WHEN t.there THEN 0 ELSE o.dead_total END, last_error = "
                   "NULL, last_error_at = NULL FROM (SELECT source, bool_or(route = $3) AS there "
                   "FROM " +
                   side_ +
                   "outbox_route_stats WHERE route IN ($2, $3) AND source = $1 GROUP BY source) t "
                   "WHERE o.source = t.source AND o.route = $2",
               params)
        .status();
}

// Those that are over tell of the route under its name of then. One that runs would find nothing
// more under the name that it knows. They are the table's: where others still have a route of the
// old name, those of these tenants alone go along.
Status RouteLedgers::move_replays(const std::vector<std::string>& tenants, const std::string& from,
                                  const std::string& to) {
    const auto there = connection_.query("SELECT to_regclass($1) IS NOT NULL",
                                         Params().text(side_ + "outbox_replays"));
    if (!there.ok() || !there->boolean(0, 0)) return there.status();
    const std::string its = std::string(" WHERE route = $2 AND ") + kOfTable +
                            " AND (selection::jsonb -> 'tenants' <@ to_jsonb($3::text[]) OR NOT "
                            "EXISTS (SELECT FROM " +
                            side_ +
                            "outbox_routes r WHERE r.route = $2 AND (r.source = $1 OR "
                            "starts_with(r.source, $1 || '/'))))";
    const Params params = Params().text(table_).text(from).texts(tenants);
    const auto runs =
        connection_.query("SELECT run, runner FROM " + side_ + "outbox_replays" + its +
                              " AND state = 'running' AND runner_until > "
                              "clock_timestamp() LIMIT 1",
                          params);
    if (!runs.ok()) return runs.status();
    if (!runs->empty()) return replay_is_running(runs->string(0, 0), runs->string(0, 1));
    return connection_
        .query("UPDATE " + side_ + "outbox_replays SET route = $4" + its +
                   " AND state IN ('running', 'failed')",
               Params(params).text(to))
        .status();
}

Result<std::int64_t> RouteLedgers::rename(const std::vector<std::string>& tenants,
                                          const std::string& from, const std::string& to) {
    const std::string source = source_of(tenants);
    const Params params = Params().text(source).text(from).text(to);
    const std::string count =
        "SELECT count(*) FROM " + side_ + "outbox_routes WHERE source = $1 AND route = $2";
    std::int64_t renamed = 0;
    const Status status = alone(tenants, [&]() -> Result<bool> {
        const auto old = number(count, Params().text(source).text(from));
        if (!old.ok()) return old.status();
        if (*old == 0) return false;
        const auto taken = number(count, Params().text(source).text(to));
        if (!taken.ok()) return taken.status();
        if (*taken > 0) return conflict("a route '" + to + "' is there already");
        const auto twice =
            number("SELECT count(*) FROM " + side_ +
                       "outbox_dead_letters WHERE source = $1 AND route = $3 AND id IN (SELECT id "
                       "FROM " +
                       side_ + "outbox_dead_letters WHERE source = $1 AND route = $2)",
                   params);
        if (!twice.ok()) return twice.status();
        if (*twice > 0) return two_letters(from, to);
        Result<Rows> rows = connection_.query(
            "DELETE FROM " + side_ + "outbox_delivery WHERE source = $1 AND route = $2",
            Params().text(source).text(to));
        if (!rows.ok()) return rows.status();
        for (const std::string table : tables_of_routes()) {
            if (table == "outbox_route_stats") continue;
            rows = connection_.query(
                "UPDATE " + side_ + table + " SET route = $3 WHERE source = $1 AND route = $2",
                params);
            if (!rows.ok()) return rows.status();
        }
        if (Status moved = move_replays(tenants, from, to); !moved.ok()) return moved;
        if (Status moved = move_stats(source, from, to); !moved.ok()) return moved;
        Status noted = note("routes rename", relay::audited_route(from, tenants) + " is now " + to);
        if (!noted.ok()) return noted;
        renamed = *old;
        return true;
    });
    if (!status.ok()) return status;
    return renamed;
}

Result<RetiredRoute> RouteLedgers::retire(const std::vector<std::string>& tenants,
                                          const std::string& route, bool with_unfinished) {
    const std::string source = source_of(tenants);
    RetiredRoute out;
    const Status status = alone(tenants, [&]() -> Result<bool> {
        const auto routes = list(false);
        if (!routes.ok()) return routes.status();
        const auto one = std::ranges::find_if(*routes, [&](const LedgerRoute& known) {
            return known.source == source && known.name == route;
        });
        if (one == routes->end()) return false;
        const auto unfinished = count_unfinished(source, route);
        if (!unfinished.ok()) return unfinished.status();
        out = {.known = true, .unfinished = *unfinished, .dead = one->dead};
        if (out.unfinished.count > 0 && !with_unfinished) return false;
        Status last = refuse_to_retire_the_last(source, route, *routes);
        if (!last.ok()) return last;
        for (const char* table :
             {"outbox_routes", "outbox_ledger", "outbox_route_done", "outbox_delivery"}) {
            const auto rows = connection_.query(
                "DELETE FROM " + side_ + table + " WHERE source = $1 AND route = $2",
                Params().text(source).text(route));
            if (!rows.ok()) return rows.status();
        }
        Status noted =
            note("routes retire", relay::audited_route(route, tenants) + left_over(out.unfinished));
        if (!noted.ok()) return noted;
        out.done = true;
        return true;
    });
    if (!status.ok()) return status;
    return out;
}

// The next route would not know what of the rows that stay was published.
Status RouteLedgers::refuse_to_retire_the_last(const std::string& source, const std::string& route,
                                               const std::vector<LedgerRoute>& routes) {
    const bool others = std::ranges::any_of(routes, [&](const LedgerRoute& other) {
        return other.source == source && other.name != route;
    });
    if (others) return {};
    const auto table = resolve_table(connection_, config_);
    if (!table.ok()) return table.status();
    if (!table->keep) return {};
    return conflict("route '" + route + "' is the only one of " + source +
                    ", whose published events stay: the next route would send them all. Give it "
                    "the new one's name: outbox routes rename " +
                    route + " NAME" + relay::tenant_arguments(relay::tenants_of(source, table_)));
}

Result<std::int64_t> RouteLedgers::keep() {
    std::int64_t routes = 0;
    const Status status = alone({}, [&]() -> Result<bool> {
        const auto kept = number(std::string("WITH kept AS (UPDATE " + side_ +
                                             "outbox_ledger SET life = NULL WHERE life IS "
                                             "NOT NULL AND ") +
                                     kOfTable +
                                     " RETURNING source, route) SELECT count(DISTINCT (source, "
                                     "route)) FROM kept",
                                 Params().text(table_));
        if (!kept.ok()) return kept.status();
        routes = *kept;
        const auto settled = connection_.query(
            "UPDATE " + side_ + "outbox_routes SET life = NULL WHERE life IS NOT NULL AND " +
                kOfTable,
            Params().text(table_));
        if (!settled.ok()) return settled.status();
        if (routes + settled->affected() == 0) return true;
        Status noted =
            note("routes continue", ledgers_of(routes) + " holds for the table as it is now");
        if (!noted.ok()) return noted;
        return true;
    });
    if (!status.ok()) return status;
    return routes;
}

Result<std::int64_t> RouteLedgers::forget() {
    std::int64_t routes = 0;
    const Status status = alone({}, [&]() -> Result<bool> {
        const auto forgotten = number(
            std::string("WITH ledger AS (DELETE FROM " + side_ + "outbox_ledger WHERE ") +
                kOfTable + " RETURNING source, route), done AS (DELETE FROM " + side_ +
                "outbox_route_done WHERE " + kOfTable +
                " RETURNING source, route), delivery AS (DELETE FROM " + side_ +
                "outbox_delivery "
                "WHERE " +
                kOfTable +
                " RETURNING source, route) SELECT count(*) FROM (SELECT source, route FROM ledger "
                "UNION SELECT source, route FROM done WHERE route <> '' UNION SELECT source, route "
                "FROM delivery) f",
            Params().text(table_));
        if (!forgotten.ok()) return forgotten.status();
        routes = *forgotten;
        // What destinations remember of their events is of others from now on.
        const auto table = resolve_table(connection_, config_);
        const bool keeps = table.ok() && table->keep;
        const auto anew =
            connection_.query("UPDATE " + side_ + "outbox_routes SET since = clock_timestamp()" +
                                  (keeps ? ", settled = 0" : "") + " WHERE " + kOfTable,
                              Params().text(table_));
        if (!anew.ok()) return anew.status();
        Status noted = note("routes begin", ledgers_of(routes) + " is forgotten");
        if (!noted.ok()) return noted;
        return true;
    });
    if (!status.ok()) return status;
    return routes;
}

}  // namespace outbox::postgres
