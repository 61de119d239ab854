// Relays of one table for other tenants than before.
#include <array>

#include "databases/postgres/record/ledger.h"
#include "relay/tenants.h"

namespace outbox::postgres {
namespace {

using relay::covers;
using relay::overlap;
using relay::tenants_of;

constexpr std::array kLedgers{"outbox_ledger", "outbox_route_done"};

}  // namespace

// The state of a relay is kept by the tenants that it serves. Where those were others before, what
// concerns ours goes on here: no dead letter is forgotten, no key that it blocks goes on, and
// nothing is sent again.
Status LedgerTable::take_over_tenants(Connection& connection, spi::Beginning& out) const {
    const std::string table = table_.schema + "." + table_.name;
    // Two that begin at once must see each other.
    const Result<Rows> alone = connection.query(
        "SELECT pg_advisory_xact_lock(hashtextextended('outbox_tenants ' || $1, 0))",
        Params().text(table));
    if (!alone.ok()) return alone.status();
    const std::vector<std::string> ours = tenants_of(table_.source, table);
    const Result<Rows> sources = connection.query(
        "SELECT source FROM " + table_.side +
            "outbox_routes WHERE source <> $1 AND (source = $2 "
            "OR starts_with(source, $2 || '/')) UNION SELECT source FROM " +
            table_.side +
            "outbox_dead_letters WHERE source <> $1 AND (source = $2 OR starts_with(source, $2 || "
            "'/')) ORDER BY 1",
        Params().text(table_.source).text(table));
    if (!sources.ok()) return sources.status();
    const auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    for (int row = 0; row < sources->size(); ++row) {
        const std::string former = sources->string(row, 0);
        const std::vector<std::string> theirs = tenants_of(former, table);
        if (!overlap(ours, theirs)) continue;
        Status status = end_former_lease(connection, former);
        std::int64_t dead = 0;
        if (status.ok()) status = take_over_dead(connection, former, ours, dead);
        const bool all = covers(ours, theirs);
        if (status.ok()) {
            status = all ? take_over_ledgers(connection, former)
                         : refuse_open_events(connection, former);
        }
        if (status.ok() && !all && known->empty()) status = inherit_routes(connection, former);
        if (!status.ok()) return status;
        if (all || dead > 0) {
            out.notes.push_back(relay::tenants_taken_over(table_.source, former, dead));
        }
    }
    return {};
}

Result<std::vector<relay::HeldRoute>> LedgerTable::held_routes(Connection& connection) const {
    const Result<Rows> rows = connection.query(
        "SELECT source, route FROM " + table_.side +
            "outbox_routes WHERE source = $1 OR starts_with(source, $1 || '/') ORDER BY 1, 2",
        Params().text(table_.schema + "." + table_.name));
    if (!rows.ok()) return rows.status();
    std::vector<relay::HeldRoute> held;
    for (int row = 0; row < rows->size(); ++row) {
        held.push_back({rows->string(row, 0), rows->string(row, 1)});
    }
    return held;
}

// None of them has finished anything of ours; one that is not configured any more is to be missed.
Status LedgerTable::inherit_routes(Connection& connection, const std::string& former) const {
    return connection
        .query("INSERT INTO " + table_.side +
                   "outbox_routes (source, route, destination, life, since) SELECT $1, route, "
                   "destination, life, since FROM " +
                   table_.side + "outbox_routes WHERE source = $2 ON CONFLICT DO NOTHING",
               Params().text(table_.source).text(former))
        .status();
}

// It has ended, or this fails; and what it may still write is refused from now on.
Status LedgerTable::end_former_lease(Connection& connection, const std::string& former) const {
    Result<Rows> held = connection.query(
        "SELECT owner FROM " + table_.side +
            "outbox_lease l WHERE source = $1 AND owner IS NOT NULL AND expires_at > "
            "clock_timestamp() AND (backend_start IS NULL OR EXISTS (SELECT FROM pg_stat_activity "
            "a WHERE a.pid = backend_pid AND (a.backend_start IS NULL OR a.backend_start = "
            "l.backend_start))) FOR UPDATE",
        Params().text(former));
    if (!held.ok()) return held.status();
    if (!held->empty()) {
        return relay::tenants_are_served(table_.source, former, held->string(0, 0));
    }
    return connection
        .query("UPDATE " + table_.side +
                   "outbox_lease SET epoch = epoch + 1, owner = NULL, expires_at = NULL, "
                   "backend_pid = NULL, backend_start = NULL WHERE source = $1",
               Params().text(former))
        .status();
}

Status LedgerTable::take_over_dead(Connection& connection, const std::string& former,
                                   const std::vector<std::string>& ours,
                                   std::int64_t& count) const {
    const Result<Rows> moved = connection.query(
        "UPDATE " + table_.side +
            "outbox_dead_letters d SET source = $1 WHERE source = $2 AND ($3::text[] = '{}' OR "
            "coalesce(nullif(tenant_id, ''), $4) = ANY($3::text[])) AND NOT EXISTS (SELECT FROM " +
            table_.side +
            "outbox_dead_letters o WHERE o.source = $1 AND o.route = d.route AND o.id = d.id AND "
            "coalesce(o.position, 0) = coalesce(d.position, 0))",
        Params().text(table_.source).text(former).texts(ours).text(default_tenant_));
    if (moved.ok()) count = moved->affected();
    return moved.status();
}

Status LedgerTable::take_over_ledgers(Connection& connection, const std::string& former) const {
    const std::string side = table_.side;
    const Params params = Params().text(table_.source).text(former);
    // Bits of another life of the table mean other events. Without them what is there is sent
    // again.
    const Result<Rows> others =
        connection.query("DELETE FROM " + side +
                             "outbox_ledger WHERE source IN ($1, $2) AND (SELECT count(DISTINCT "
                             "life) > 1 FROM " +
                             side + "outbox_ledger WHERE source IN ($1, $2)) AND life <> $3",
                         Params().text(table_.source).text(former).text(identity_.life()));
    if (!others.ok()) return others.status();
    // Where rows stay, what all routes of the one or the other had finished is history for all.
    if (table_.keep) {
        const Result<Rows> history = connection.query(
            "INSERT INTO " + side +
                "outbox_ledger AS l (source, route, segment, life, done) SELECT $1, r.route, "
                "f.segment, f.life, f.done FROM (SELECT segment, max(life) AS life, bit_or(done) "
                "AS done FROM (SELECT l.segment, max(l.life) AS life, bit_and(l.done) AS done "
                "FROM " +
                side + "outbox_ledger l JOIN (SELECT source, count(*) AS routes FROM " + side +
                "outbox_routes WHERE source IN ($1, $2) GROUP BY source) s USING (source) GROUP BY "
                "l.source, l.segment, s.routes HAVING count(*) >= s.routes) each GROUP BY segment) "
                "f, (SELECT DISTINCT route FROM " +
                side +
                "outbox_routes WHERE source IN ($1, $2)) r ON CONFLICT (source, route, segment) DO "
                "UPDATE SET done = l.done | excluded.done",
            params);
        if (!history.ok()) return history.status();
    }
    for (const std::string& sql :
         {"INSERT INTO " + side +
              "outbox_routes AS r (source, route, destination, life, filter, first, since) "
              "SELECT $1, route, destination, life, filter, first, since FROM " +
              side +
              "outbox_routes WHERE source = $2 ON CONFLICT (source, route) DO UPDATE SET filter = "
              "CASE WHEN r.filter = excluded.filter AND r.first = excluded.first THEN r.filter END",
          "INSERT INTO " + side +
              "outbox_ledger AS l (source, route, segment, life, done, passed) SELECT $1, route, "
              "segment, life, done, passed FROM " +
              side +
              "outbox_ledger WHERE source = $2 ON CONFLICT (source, route, segment) DO UPDATE SET "
              "done = l.done | excluded.done, passed = coalesce(l.passed | excluded.passed, "
              "l.passed, excluded.passed), life = coalesce(l.life, excluded.life)",
          "INSERT INTO " + side +
              "outbox_route_done (source, event_id, route, passed) SELECT $1, event_id, route, "
              "passed FROM " +
              side + "outbox_route_done WHERE source = $2 ON CONFLICT DO NOTHING",
          "INSERT INTO " + side +
              "outbox_delivery (source, route, event_id, position, key, attempts, "
              "next_attempt_at, error_code, last_error) SELECT $1, route, event_id, position, "
              "key, attempts, next_attempt_at, error_code, last_error FROM " +
              side + "outbox_delivery WHERE source = $2 ON CONFLICT DO NOTHING"}) {
        if (const Result<Rows> rows = connection.query(sql, params); !rows.ok()) {
            return rows.status();
        }
    }
    // What was settled was so for fewer tenants: from the ledgers it is known again.
    if (table_.keep) {
        const Result<Rows> rows =
            connection.query("UPDATE " + side + "outbox_routes SET settled = 0 WHERE source = $1",
                             Params().text(table_.source));
        if (!rows.ok()) return rows.status();
    }
    for (const char* of_former :
         {"outbox_routes", "outbox_ledger", "outbox_route_done", "outbox_delivery"}) {
        const Result<Rows> rows = connection.query(
            "DELETE FROM " + side + of_former + " WHERE source = $1", Params().text(former));
        if (!rows.ok()) return rows.status();
    }
    return {};
}

// Its ledgers speak of tenants that are not ours, too.
Status LedgerTable::refuse_open_events(Connection& connection, const std::string& former) const {
    for (const char* ledger : kLedgers) {
        const Result<Rows> open = connection.query(
            "SELECT EXISTS (SELECT FROM " + table_.side + ledger + " WHERE source = $1)",
            Params().text(former));
        if (!open.ok()) return open.status();
        if (!open->boolean(0, 0)) continue;
        if (!table_.keep) {
            const std::string table = table_.schema + "." + table_.name;
            return relay::tenants_left_open(table_.source, former,
                                            relay::tenant_arguments(tenants_of(former, table)));
        }
        return {ErrorCode::kConflict, Advice::kStop,
                "a relay served " + former +
                    ", and what it published stays in the table (after_publish = keep): " +
                    table_.source +
                    " is a part of it and would send all that again. Serve at least the tenants of "
                    "before"};
    }
    return {};
}

}  // namespace outbox::postgres
