// What is remembered of rows by their ids, where another life of the table gives those again.
#include "core/producer_name.h"
#include "databases/postgres/identity.h"
#include "databases/postgres/record/ledger.h"

namespace outbox::postgres {

Status LedgerTable::check_life_of_ids(Connection& connection, spi::Beginning& out) const {
    if (table_.uuid_id) return {};
    Result<Rows> rows = connection.query("SELECT DISTINCT life FROM " + table_.side +
                                             "outbox_routes WHERE source = $1 AND life IS NOT NULL",
                                         Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    bool other = false;
    for (int row = 0; row < rows->size(); ++row) {
        other = other || rows->text(row, 0) != identity_.life();
    }
    if (!other && table_.integer_id) {
        rows = connection.query("SELECT " + ids_set_back(table_, "source = $1"),
                                Params().text(table_.source));
        if (!rows.ok()) return rows.status();
        other = rows->boolean(0, 0);
    }
    if (!other) return {};
    if (Status anew = begin_anew(connection); !anew.ok()) return anew;
    out.notes.push_back("table " + table_.sql +
                        " began anew, and may give ids once more; what was known of the old ones "
                        "is set aside, and all that it holds unfinished is sent. Consumers that "
                        "remember ids of old events take new ones of the same id for repeats");
    return set_aside_ids(connection);
}

// An old event's letter stays, under an id that no row has.
Status LedgerTable::set_aside_ids(Connection& connection) const {
    if (table_.uuid_id) return {};
    for (const char* table : {"outbox_route_done", "outbox_delivery"}) {
        const Result<Rows> rows =
            connection.query("DELETE FROM " + table_.side + table + " WHERE source = $1",
                             Params().text(table_.source));
        if (!rows.ok()) return rows.status();
    }
    return connection
        .query("UPDATE " + table_.side +
                   "outbox_dead_letters SET id = left(id, 230) || '~' || dead_id WHERE source = $1 "
                   "AND NOT id ~ ('~' || dead_id || '$')",
               Params().text(table_.source))
        .status();
}

// What destinations remember of these routes' events is of others from now on.
Status LedgerTable::begin_anew(Connection& connection) const {
    return connection
        .query("UPDATE " + table_.side + "outbox_routes SET since = clock_timestamp()" +
                   (table_.keep ? ", settled = 0" : "") + " WHERE source = $1",
               Params().text(table_.source))
        .status();
}

// Ledgers that began in one instant are told apart by it all the same.
Status LedgerTable::part_lives(Connection& connection) const {
    const std::string routes = table_.side + "outbox_routes";
    return connection
        .query("UPDATE " + routes + " r SET since = (SELECT max(since) FROM " + routes +
                   " WHERE source = $1) + d.n * interval '1 microsecond' FROM (SELECT o.route, "
                   "row_number() OVER (ORDER BY o.route) AS n FROM " +
                   routes + " o WHERE o.source = $1 AND EXISTS (SELECT FROM " + routes +
                   " e WHERE e.source = $1 AND e.since = o.since AND e.route < o.route)) d WHERE "
                   "r.source = $1 AND r.route = d.route",
               Params().text(table_.source))
        .status();
}

// A server that took the place of another may give ids once more that this one lost, and then is
// on another timeline; so may one after a crash, whose statistics begin anew.
Status LedgerTable::name_producers(Connection& connection, std::span<const spi::RouteName> routes,
                                   spi::Beginning& out) const {
    const auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    Result<Rows> database = connection.query(
        "SELECT system_identifier, (SELECT oid FROM pg_database WHERE datname = "
        "current_database()), CASE WHEN NOT pg_is_in_recovery() THEN "
        "left(pg_walfile_name(pg_current_wal_lsn()), 8) END, "
        "extract(epoch FROM " +
        std::string(kStatisticsSince) + ") FROM pg_control_system()");
    if (!database.ok()) return database.status();
    std::string of = database->string(0, 0) + '/' + database->string(0, 1);
    if (!table_.uuid_id) of += '/' + database->string(0, 2) + '/' + database->string(0, 3);
    for (std::size_t i = 0; i < routes.size(); ++i) {
        for (const Known& one : *known) {
            if (one.name != routes[i].name) continue;
            out.routes[i].producer = producer_name(
                {of, table_.uuid_id ? "" : identity_.life(), one.since_us, table_.source});
        }
    }
    return {};
}

Status LedgerTable::note_life(Connection& connection) const {
    if (table_.uuid_id) return {};
    return connection
        .query("UPDATE " + table_.side +
                   "outbox_routes SET life = $2 WHERE source = $1 AND life IS DISTINCT FROM $2",
               Params().text(table_.source).text(identity_.life()))
        .status();
}

}  // namespace outbox::postgres
