// Relays of one table for other tenants than before.
#include <map>

#include "core/sql_text.h"
#include "databases/sqlite/record/ledger.h"
#include "databases/sqlite/source/lease.h"
#include "relay/tenants.h"

namespace outbox::sqlite {

// The state of a relay is kept by the tenants that it serves. Where those were others before, what
// concerns ours goes on here: no dead letter is forgotten, no key that it blocks goes on, and
// nothing is sent again.
Status Ledger::take_over_tenants(Database& database, spi::Beginning& out) const {
    Statement rows(database,
                   "SELECT source FROM outbox_routes WHERE source <> ?1 AND substr(source || '/', "
                   "1, length(?2) + 1) = ?2 || '/' UNION SELECT source FROM outbox_dead_letters "
                   "WHERE source <> ?1 AND substr(source || '/', 1, length(?2) + 1) = ?2 || '/' "
                   "ORDER BY 1");
    rows.bind(table_.source).bind(table_.name);
    std::vector<std::string> formers;
    while (rows.step()) formers.push_back(rows.string(0));
    if (Status status = rows.status(); !status.ok()) return status;
    const auto known = load_routes(database);
    if (!known.ok()) return known.status();
    for (const std::string& former : formers) {
        const std::vector<std::string> theirs = relay::tenants_of(former, table_.name);
        if (!relay::overlap(table_.tenants, theirs)) continue;
        Status status = end_former_lease(database, former);
        std::int64_t dead = 0;
        if (status.ok()) status = take_over_dead(database, former, dead);
        const bool all = relay::covers(table_.tenants, theirs);
        if (status.ok()) {
            status =
                all ? take_over_ledgers(database, former) : refuse_open_events(database, former);
        }
        if (status.ok() && !all && known->empty()) status = inherit_routes(database, former);
        if (!status.ok()) return status;
        if (all || dead > 0) {
            out.notes.push_back(relay::tenants_taken_over(table_.source, former, dead));
        }
    }
    return {};
}

Result<std::vector<relay::HeldRoute>> Ledger::held_routes(Database& database) const {
    Statement rows(database,
                   "SELECT source, route FROM outbox_routes WHERE substr(source || '/', 1, "
                   "length(?1) + 1) = ?1 || '/' ORDER BY 1, 2");
    rows.bind(table_.name);
    std::vector<relay::HeldRoute> held;
    while (rows.step()) held.push_back({rows.string(0), rows.string(1)});
    if (Status status = rows.status(); !status.ok()) return status;
    return held;
}

// None of them has finished anything of ours; one that is not configured any more is to be missed.
Status Ledger::inherit_routes(Database& database, const std::string& former) const {
    Statement copy(database,
                   "INSERT INTO outbox_routes (source, route, destination, since) SELECT ?, route, "
                   "destination, since FROM outbox_routes WHERE source = ? ON CONFLICT DO NOTHING");
    return copy.bind(table_.source).bind(former).run();
}

// It has ended, or this fails; and what it may still write is refused from now on.
Status Ledger::end_former_lease(Database& database, const std::string& former) const {
    Statement row(database,
                  "SELECT owner, locked FROM outbox_lease WHERE source = ? AND owner IS NOT NULL "
                  "AND expires_at > ?");
    row.bind(former).bind(now_us());
    const bool owned = row.step();
    const std::string owner = owned ? row.string(0) : std::string();
    const bool held = owned && (row.integer(1) == 0 || !owner_is_gone(table_.path, former));
    if (Status status = row.status(); !status.ok()) return status;
    if (held) return relay::tenants_are_served(table_.source, former, owner);
    Statement end(database,
                  "UPDATE outbox_lease SET epoch = epoch + 1, owner = NULL, expires_at = NULL, "
                  "locked = 0 WHERE source = ?");
    return end.bind(former).run();
}

Status Ledger::take_over_dead(Database& database, const std::string& former,
                              std::int64_t& count) const {
    std::string ours = "1";
    if (!table_.tenants.empty()) {
        std::string list;
        for (const std::string& tenant : table_.tenants) {
            list += (list.empty() ? "" : ", ") + quote_literal(tenant);
        }
        ours = tenant_or("tenant_id", table_.default_tenant) + " IN (" + list + ")";
    }
    Statement move(database,
                   "UPDATE OR IGNORE outbox_dead_letters SET source = ? WHERE source = "
                   "? AND " +
                       ours);
    Status status = move.bind(table_.source).bind(former).run();
    count = database.changes();
    return status;
}

Status Ledger::take_over_ledgers(Database& database, const std::string& former) const {
    Statement rows(database,
                   "SELECT route, segment, done, passed FROM outbox_ledger_segments WHERE source "
                   "= ?");
    rows.bind(former);
    struct Former {
        spi::PositionSet done;
        spi::PositionSet passed;
    };
    std::map<std::string, Former> finished;
    while (rows.step()) {
        Former& route = finished[rows.string(0)];
        route.done.add_segment(rows.integer(1), bits_of(rows.text(2)));
        if (!rows.text(3).empty()) route.passed.add_segment(rows.integer(1), bits_of(rows.text(3)));
    }
    if (Status status = rows.status(); !status.ok()) return status;
    for (const auto& [route, sets] : finished) {
        Status status = add(database, route, {0, sets.done.positions(), sets.passed.positions()});
        if (!status.ok()) return status;
    }
    // Where the two had other filters nothing that one of them passed over is finished.
    Statement filters(
        database,
        "UPDATE outbox_routes AS r SET filter = NULL WHERE source = ?1 AND EXISTS "
        "(SELECT 1 FROM outbox_routes f WHERE f.source = ?2 AND f.route = r.route AND "
        "(f.filter IS NOT r.filter OR f.first <> r.first))");
    if (Status status = filters.bind(table_.source).bind(former).run(); !status.ok()) return status;
    for (const char* table : {"outbox_routes", "outbox_route_done", "outbox_delivery"}) {
        Statement move(database, std::string("UPDATE OR IGNORE ") + table +
                                     " SET source = ? WHERE source = ?");
        Status status = move.bind(table_.source).bind(former).run();
        if (!status.ok()) return status;
    }
    for (const char* table :
         {"outbox_routes", "outbox_route_done", "outbox_delivery", "outbox_ledger_segments"}) {
        Statement remove(database, std::string("DELETE FROM ") + table + " WHERE source = ?");
        if (Status status = remove.bind(former).run(); !status.ok()) return status;
    }
    return {};
}

// Its ledgers speak of tenants that are not ours, too.
Status Ledger::refuse_open_events(Database& database, const std::string& former) const {
    Statement open(database,
                   "SELECT EXISTS (SELECT 1 FROM outbox_ledger_segments WHERE source = ?1) OR "
                   "EXISTS (SELECT 1 FROM outbox_route_done WHERE source = ?1)");
    open.bind(former);
    const bool left = open.step() && open.integer(0) != 0;
    if (Status status = open.status(); !status.ok()) return status;
    if (left) {
        return relay::tenants_left_open(
            table_.source, former, relay::tenant_arguments(relay::tenants_of(former, table_.name)));
    }
    return {};
}

}  // namespace outbox::sqlite
