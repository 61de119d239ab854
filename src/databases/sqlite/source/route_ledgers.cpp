#include "databases/sqlite/source/route_ledgers.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include <outbox/spi/position_set.h>

#include "core/sql_text.h"
#include "databases/sqlite/source/lease.h"
#include "relay/tenants.h"

namespace outbox::sqlite {
namespace {

// Every statement names ?3, so that each can be bound.
constexpr const char* kNoThird = " AND coalesce(?3, '') IS NOT NULL";

// Whose rows go with a route's name; its figures may have to be joined with others.
constexpr std::array kRenamed{"outbox_routes", "outbox_ledger_segments", "outbox_route_done",
                              "outbox_delivery", "outbox_dead_letters"};

}  // namespace

Result<spi::PositionSet> load_finished(Database& database, const std::string& source,
                                       const std::string& route) {
    Statement rows(
        database,
        "SELECT segment, done FROM outbox_ledger_segments WHERE source = ? AND route = ?");
    rows.bind(source).bind(route);
    spi::PositionSet finished;
    while (rows.step()) {
        const std::string_view bits = rows.text(1);
        if (bits.size() != spi::PositionSet::kSegmentBytes) {
            return ErrorInfo{ErrorCode::kTableShape,
                             Advice::kStop,
                             {},
                             "outbox_ledger_segments.done has not 8192 bytes"};
        }
        finished.add_segment(rows.integer(0),
                             std::span<const std::uint8_t, spi::PositionSet::kSegmentBytes>(
                                 reinterpret_cast<const std::uint8_t*>(bits.data()), bits.size()));
    }
    if (Status status = rows.status(); !status.ok()) return status;
    return finished;
}

Result<spi::Position> last_position(Database& database, const std::string& table) {
    Statement last(database, "SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = ?");
    last.bind(table);
    const spi::Position position = last.step() ? last.integer(0) : 0;
    if (Status status = last.status(); !status.ok()) return status;
    return position;
}

Result<bool> is_other_table(Database& database, const std::string& table) {
    Statement routes(database,
                     "SELECT source, route FROM outbox_routes WHERE " + std::string(kOfTable));
    routes.bind(table);
    spi::Position top = 0;
    while (routes.step()) {
        const auto finished = load_finished(database, routes.string(0), routes.string(1));
        if (!finished.ok()) return finished.status();
        top = std::max(top, finished->highest());
    }
    if (Status status = routes.status(); !status.ok()) return status;
    const auto last = last_position(database, table);
    if (!last.ok()) return last.status();
    return *last < top;
}

Result<std::vector<LeaseInfo>> RouteLedgers::leases() {
    Statement row(database_,
                  "SELECT owner, epoch, owner IS NOT NULL AND expires_at > ?2, acquired_at, "
                  "expires_at - ?2, locked, source, (SELECT group_concat(route, char(10)) FROM "
                  "outbox_routes r WHERE r.source = l.source) FROM outbox_lease l WHERE " +
                      std::string(kOfTable) + " ORDER BY epoch DESC");
    row.bind(table_).bind(now_us());
    std::vector<LeaseInfo> leases;
    while (row.step()) {
        const bool gone = row.integer(5) != 0 && owner_is_gone(database_.path(), row.string(6));
        LeaseInfo lease;
        lease.owner = row.string(0);
        lease.epoch = static_cast<std::uint64_t>(row.integer(1));
        lease.held = row.integer(2) != 0 && !gone;
        lease.acquired_at_us = lease.owner.empty() ? 0 : row.integer(3);
        lease.expires_in_ms = lease.held ? row.integer(4) / 1000 : 0;
        lease.tenants = relay::tenants_of(row.text(6), table_);
        lease.routes = lines_of(row.text(7));
        std::sort(lease.routes.begin(), lease.routes.end());
        leases.push_back(std::move(lease));
    }
    if (Status status = row.status(); !status.ok()) return status;
    std::stable_partition(leases.begin(), leases.end(),
                          [](const LeaseInfo& lease) { return lease.held; });
    return leases;
}

std::string RouteLedgers::source_of(const std::vector<std::string>& tenants) const {
    return relay::source_name(table_, tenants);
}

Status RouteLedgers::alone(const std::vector<std::string>& tenants,
                           const std::function<Result<bool>()>& change) {
    WriteTransaction transaction(database_);
    if (Status status = transaction.begin(); !status.ok()) return status;
    const auto held = leases();
    if (!held.ok()) return held.status();
    for (const LeaseInfo& lease : *held) {
        if (!relay::overlap(lease.tenants, tenants)) continue;
        if (lease.held) return relay_is_running(lease.owner);
        // One whose lease has run out while it was stopped must find that when it goes on.
        Statement end(database_,
                      "UPDATE outbox_lease SET epoch = epoch + 1, owner = NULL, expires_at = NULL, "
                      "locked = 0 WHERE owner IS NOT NULL AND source = ?");
        end.bind(source_of(lease.tenants));
        if (Status ended = end.run(); !ended.ok()) return ended;
    }
    const auto done = change();
    if (!done.ok()) return done.status();
    return *done ? transaction.commit() : Status();
}

Result<std::int64_t> RouteLedgers::number(const std::string& sql, const std::string& source,
                                          const std::string& second, const std::string& third) {
    Statement row(database_, sql + kNoThird);
    row.bind(source).bind(second).bind(third);
    const std::int64_t number = row.step() ? row.integer(0) : 0;
    if (Status status = row.status(); !status.ok()) return status;
    return number;
}

Status RouteLedgers::run(const std::string& sql, const std::string& source,
                         const std::string& second, const std::string& third) {
    Statement statement(database_, sql + kNoThird);
    return statement.bind(source).bind(second).bind(third).run();
}

Result<std::vector<LedgerRoute>> RouteLedgers::list(bool count_unfinished) {
    Statement rows(database_,
                   "SELECT r.route, r.source, coalesce(r.destination, ''), r.since, (SELECT "
                   "count(*) FROM outbox_dead_letters d WHERE d.source = r.source AND d.route = "
                   "r.route), coalesce(s.circuit, ''), coalesce(s.last_error, '') FROM "
                   "outbox_routes r LEFT JOIN outbox_route_stats s USING (source, route) WHERE " +
                       std::string(kOfTable) + " ORDER BY r.route, r.source");
    rows.bind(table_);
    std::vector<LedgerRoute> routes;
    while (rows.step()) {
        LedgerRoute route;
        route.name = rows.string(0);
        route.source = rows.string(1);
        route.destination = rows.string(2);
        route.since_us = rows.integer(3);
        route.dead = rows.integer(4);
        route.circuit = rows.string(5);
        route.last_error = rows.string(6);
        routes.push_back(std::move(route));
    }
    if (Status status = rows.status(); !status.ok()) return status;
    for (LedgerRoute& route : routes) {
        if (!count_unfinished) break;
        const auto unfinished = this->count_unfinished(route.source, route.name);
        if (!unfinished.ok()) return unfinished.status();
        route.unfinished = *unfinished;
    }
    return routes;
}

Result<bool> RouteLedgers::are_of_another() {
    auto table = name_table(config_);
    if (!table.ok()) return table.status();
    if (Status status = resolve_table(database_, config_, *table); !status.ok()) return status;
    if (!table->native) return false;
    return is_other_table(database_, table_);
}

Status RouteLedgers::unfinished_rows(const std::string& source, const std::string& route,
                                     const std::function<bool(const std::string&)>& take,
                                     bool nameless) {
    auto table = name_table(config_);
    if (!table.ok()) return table.status();
    if (Status status = resolve_table(database_, config_, *table); !status.ok()) return status;
    table->source = source;
    const std::string tenant = table->has("tenant_id")
                                   ? tenant_or(table->quoted("tenant_id"), config_.default_tenant)
                                   : quote_literal(config_.default_tenant);
    std::string tenants = "1";
    // Whoever serves them knows another name for them, perhaps, than this command.
    std::string of_none = "1";
    if (table->has("tenant_id")) {
        of_none = "coalesce(" + table->quoted("tenant_id") + ", '') = ''";
    }
    if (nameless) {
        tenants = of_none;
    } else if (source != table_ && table->has("tenant_id")) {
        std::string served;
        for (const std::string& one : relay::tenants_of(source, table_)) {
            served += (served.empty() ? "" : ", ") + quote_literal(one);
        }
        tenants = tenant + " IN (" + served + ")";
        if (!config_.default_tenant_given) tenants = "(" + tenants + " OR " + of_none + ")";
    }
    spi::PositionSet finished;
    if (table->native) {
        const auto other = is_other_table(database_, table_);
        if (!other.ok()) return other.status();
        auto loaded = *other ? spi::PositionSet() : load_finished(database_, source, route);
        if (!loaded.ok()) return loaded.status();
        finished = std::move(*loaded);
    }
    Statement rows(database_,
                   table->native
                       ? "SELECT position, " + tenant + " FROM " + table->sql +
                             " t WHERE position > 0 AND " + tenants
                       : "SELECT 0, " + tenant + " FROM " + table->sql + " t WHERE " +
                             any_unfinished(*table) + " AND " + tenants + " AND " +
                             not_done(*table, quote_literal(source), quote_literal(route)));
    while (rows.step()) {
        if (table->native && finished.contains(rows.integer(0))) continue;
        if (!take(rows.string(1))) break;
    }
    return rows.status();
}

Result<BoundedCount> RouteLedgers::count_unfinished(const std::string& source,
                                                    const std::string& route,
                                                    const std::string* tenant) {
    BoundedCount count;
    const bool nameless = tenant != nullptr && tenant->empty();
    const auto take = [&](const std::string& whose) {
        if (tenant != nullptr && !nameless && whose != *tenant) return true;
        count.more = count.count == BoundedCount::kLimit;
        if (!count.more) ++count.count;
        return !count.more;
    };
    const Status status = unfinished_rows(source, route, take, nameless);
    if (!status.ok()) return status;
    return count;
}

Result<TenantBacklogs> RouteLedgers::tenant_backlogs() {
    const auto routes = list(false);
    if (!routes.ok()) return routes.status();
    std::vector<std::map<std::string, std::int64_t>> counts;
    for (const LedgerRoute& route : *routes) {
        auto& of_route = counts.emplace_back();
        std::int64_t all = 0;
        const Status status =
            unfinished_rows(route.source, route.name, [&](const std::string& tenant) {
                ++of_route[tenant];
                return ++all < BoundedCount::kLimit;
            });
        if (!status.ok()) return status;
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
    Statement line(database_,
                   "INSERT INTO outbox_audit (at, os_user, source, action, detail, events, "
                   "event_ids) VALUES (?, ?, ?, ?, ?, 0, '[]')");
    return line.bind(now_us()).bind(os_user_).bind(table_).bind(action).bind(detail).run();
}

// What it said last was of where it led before.
Result<std::int64_t> RouteLedgers::accept(const std::vector<std::string>& tenants,
                                          const std::string& route) {
    WriteTransaction transaction(database_);
    if (Status begun = transaction.begin(); !begun.ok()) return begun;
    const std::string source = source_of(tenants);
    const std::string of_route = " WHERE source = ?1 AND route = ?2";
    Status status =
        run("UPDATE outbox_route_stats SET last_error = NULL, last_error_at = NULL" + of_route,
            source, route);
    if (!status.ok()) return status;
    status = run("UPDATE outbox_routes SET destination = NULL" + of_route, source, route);
    if (!status.ok()) return status;
    const std::int64_t accepted = database_.changes();
    if (accepted == 0) return accepted;
    status = note("routes accept", relay::audited_route(route, tenants));
    if (status.ok()) status = transaction.commit();
    if (!status.ok()) return status;
    return accepted;
}

// Figures of a former route of the new name may be left: they are one route's from now on. What it
// said last may call it by its old name.
Status RouteLedgers::move_stats(const std::string& source, const std::string& from,
                                const std::string& to) {
    Status status = run(
        "UPDATE outbox_route_stats AS o SET published_total = published_total + coalesce((SELECT "
        "published_total FROM outbox_route_stats n WHERE n.source = o.source AND n.route = ?3), "
        "0), dead_total = dead_total + coalesce((SELECT dead_total FROM outbox_route_stats n WHERE "
        "n.source = o.source AND n.route = ?3), 0) WHERE source = ?1 AND route = ?2",
        source, from, to);
    if (!status.ok()) return status;
    return run(
        "UPDATE OR REPLACE outbox_route_stats SET route = ?3, last_error = NULL, last_error_at = "
        "NULL WHERE source = ?1 AND route = ?2",
        source, from, to);
}

// Those that are over tell of the route under its name of then. One that runs would find nothing
// more under the name that it knows. They are the table's: where others still have a route of the
// old name, those of these tenants alone go along.
Status RouteLedgers::move_replays(const std::vector<std::string>& tenants, const std::string& from,
                                  const std::string& to) {
    Statement look(database_,
                   "SELECT 1 FROM sqlite_master WHERE name = 'outbox_replays' AND type = 'table'");
    const bool there = look.step();
    if (Status status = look.status(); !status.ok() || !there) return status;
    std::string served;
    for (const std::string& one : tenants) {
        served += (served.empty() ? "" : ", ") + quote_literal(one);
    }
    const std::string its = std::string(" WHERE route = ?2 AND ") + kOfTable +
                            " AND ((json_type(selection, '$.tenants') IS NOT NULL AND NOT EXISTS "
                            "(SELECT 1 FROM json_each(selection, '$.tenants') WHERE value NOT IN "
                            "(" +
                            served +
                            "))) OR NOT EXISTS (SELECT 1 FROM outbox_routes r WHERE r.route = ?2 "
                            "AND (r.source = ?1 OR substr(r.source, 1, length(?1) + 1) = ?1 || "
                            "'/')))";
    Statement running(database_, "SELECT run, runner FROM outbox_replays" + its +
                                     " AND state = 'running' AND runner_until > "
                                     "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS "
                                     "integer) LIMIT 1");
    running.bind(table_).bind(from);
    if (running.step()) return replay_is_running(running.string(0), running.string(1));
    if (Status status = running.status(); !status.ok()) return status;
    return run("UPDATE outbox_replays SET route = ?3" + its + " AND state IN ('running', 'failed')",
               table_, from, to);
}

Result<std::int64_t> RouteLedgers::rename(const std::vector<std::string>& tenants,
                                          const std::string& from, const std::string& to) {
    const std::string source = source_of(tenants);
    std::int64_t renamed = 0;
    const Status status = alone(tenants, [&]() -> Result<bool> {
        const std::string count =
            "SELECT count(*) FROM outbox_routes WHERE source = ?1 AND route = ?2";
        const auto old = number(count, source, from);
        if (!old.ok()) return old.status();
        if (*old == 0) return false;
        const auto taken = number(count, source, to);
        if (!taken.ok()) return taken.status();
        if (*taken > 0) {
            return ErrorInfo{
                ErrorCode::kConflict, Advice::kStop, {}, "a route '" + to + "' is there already"};
        }
        const auto twice = number(
            "SELECT count(*) FROM outbox_dead_letters WHERE source = ?1 AND route = ?3 AND id IN "
            "(SELECT id FROM outbox_dead_letters WHERE source = ?1 AND route = ?2)",
            source, from, to);
        if (!twice.ok()) return twice.status();
        if (*twice > 0) return two_letters(from, to);
        Status moved =
            run("DELETE FROM outbox_delivery WHERE source = ?1 AND route = ?2", source, to);
        for (const char* table : kRenamed) {
            if (moved.ok()) {
                moved = run("UPDATE " + std::string(table) +
                                " SET route = ?3 WHERE source = ?1 AND route = ?2",
                            source, from, to);
            }
        }
        if (moved.ok()) moved = move_replays(tenants, from, to);
        if (moved.ok()) moved = move_stats(source, from, to);
        if (moved.ok()) {
            moved = note("routes rename", relay::audited_route(from, tenants) + " is now " + to);
        }
        if (!moved.ok()) return moved;
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
        for (const char* table :
             {"outbox_routes", "outbox_ledger_segments", "outbox_route_done", "outbox_delivery"}) {
            Status removed =
                run("DELETE FROM " + std::string(table) + " WHERE source = ?1 AND route = ?2",
                    source, route);
            if (!removed.ok()) return removed;
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

Result<std::int64_t> RouteLedgers::keep() {
    const Status status = alone({}, []() -> Result<bool> { return false; });
    if (!status.ok()) return status;
    return std::int64_t{0};
}

Result<std::int64_t> RouteLedgers::forget() {
    const std::string of_table = kOfTable;
    std::int64_t routes = 0;
    const Status status = alone({}, [&]() -> Result<bool> {
        std::string rows;
        for (const char* table :
             {"outbox_ledger_segments", "outbox_route_done", "outbox_delivery"}) {
            rows += std::string(rows.empty() ? "" : " UNION ") + "SELECT source, route FROM " +
                    table + " WHERE " + of_table;
        }
        const auto forgotten = number(
            "SELECT count(*) FROM (" + rows + ") WHERE coalesce(?2, '') IS NOT NULL", table_, "");
        if (!forgotten.ok()) return forgotten.status();
        for (const char* table :
             {"outbox_ledger_segments", "outbox_route_done", "outbox_delivery"}) {
            Status removed = run("DELETE FROM " + std::string(table) +
                                     " WHERE coalesce(?2, '') IS NOT NULL AND " + of_table,
                                 table_, "");
            if (!removed.ok()) return removed;
        }
        // What destinations remember of their events is of others from now on.
        Status anew = run("UPDATE outbox_routes SET since = CAST(?2 AS integer) WHERE " + of_table,
                          table_, std::to_string(now_us()));
        if (!anew.ok()) return anew;
        routes = *forgotten;
        Status noted = note("routes begin", ledgers_of(routes) + " is forgotten");
        if (!noted.ok()) return noted;
        return true;
    });
    if (!status.ok()) return status;
    return routes;
}

}  // namespace outbox::sqlite
