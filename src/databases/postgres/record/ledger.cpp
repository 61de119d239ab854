#include "databases/postgres/record/ledger.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/source/decode.h"

namespace outbox::postgres {
namespace {

constexpr const char* kAdd = "outbox_ledger_add";
constexpr const char* kPass = "outbox_ledger_pass";
constexpr const char* kSubtract = "outbox_ledger_subtract";
constexpr const char* kLoad = "outbox_ledger_load";
constexpr std::size_t kBitsHeader = 4;  // their number, before the bits

constexpr std::array kTablesOfRoutes{"outbox_routes",       "outbox_ledger",
                                     "outbox_route_done",   "outbox_delivery",
                                     "outbox_dead_letters", "outbox_route_stats"};

bool names(std::span<const spi::RouteName> routes, const std::string& name) {
    return std::any_of(routes.begin(), routes.end(),
                       [&](const spi::RouteName& route) { return route.name == name; });
}

std::vector<std::string> names_of(std::span<const spi::RouteName> routes) {
    std::vector<std::string> out;
    for (const spi::RouteName& route : routes) out.push_back(route.name);
    return out;
}

}  // namespace

std::span<const char* const> tables_of_routes() {
    return kTablesOfRoutes;
}

LedgerTable::LedgerTable(const Table& table, Identity& identity, std::string tenants,
                         std::string default_tenant)
    : table_(table),
      identity_(identity),
      tenants_(std::move(tenants)),
      default_tenant_(std::move(default_tenant)) {}

Status LedgerTable::prepare(Connection& connection) const {
    if (!table_.by_position) return {};
    const spi::PositionSet::Bits none{};
    Status status = connection.prepare(
        kSubtract,
        "WITH l AS (SELECT route, done & ~$3 AS rest FROM " + table_.side +
            "outbox_ledger WHERE source = $1 AND "
            "segment = $2 ORDER BY route COLLATE \"C\" FOR UPDATE), kept AS (UPDATE " +
            table_.side +
            "outbox_ledger o SET "
            "done = l.rest FROM l WHERE o.source = $1 AND o.segment = $2 AND o.route = l.route AND "
            "position(B'1' IN l.rest) > 0) DELETE FROM " +
            table_.side +
            "outbox_ledger o USING l WHERE o.source = $1 AND "
            "o.segment = $2 AND o.route = l.route AND position(B'1' IN l.rest) = 0",
        Params().text({}).integer(0).bits(none));
    if (!status.ok()) return status;
    status = connection.prepare(
        kPass,
        "UPDATE " + table_.side +
            "outbox_ledger SET passed = coalesce(passed | $4, $4) WHERE source = $1 AND route = "
            "$2 AND segment = $3",
        Params().text({}).text({}).integer(0).bits(none));
    if (!status.ok()) return status;
    return connection.prepare(
        kAdd,
        "INSERT INTO " + table_.side +
            "outbox_ledger AS l (source, route, segment, life, done) VALUES ($1, $2, $3, "
            "$4, $5) ON CONFLICT (source, route, segment) DO UPDATE SET done = l.done | "
            "excluded.done, "
            "life = excluded.life",
        Params().text({}).text({}).integer(0).text({}).bits(none));
}

// Who records and who removes lock the rows in one order: by segment, and then by route.
void LedgerTable::add(std::span<const std::string> routes, std::span<const spi::Finished> finished,
                      std::vector<Statement>& out) const {
    const std::string life = identity_.life();
    std::map<std::pair<std::int64_t, std::string>, std::vector<Statement>> rows;
    for (const spi::Finished& one : finished) {
        const std::string& route = routes[one.route];
        spi::PositionSet done;
        done.add(one.positions);
        done.for_each_segment([&](std::int64_t segment, const spi::PositionSet::Bits& bits) {
            Params params;
            params.text(table_.source).text(route).integer(segment).text(life).bits(bits);
            rows[{segment, route}].push_back({{}, std::move(params), kAdd});
        });
        spi::PositionSet passed;
        passed.add(one.passed);
        passed.for_each_segment([&](std::int64_t segment, const spi::PositionSet::Bits& bits) {
            Params params;
            params.text(table_.source).text(route).integer(segment).bits(bits);
            rows[{segment, route}].push_back({{}, std::move(params), kPass});
        });
    }
    for (auto& [key, statements] : rows) {
        std::move(statements.begin(), statements.end(), std::back_inserter(out));
    }
}

void LedgerTable::subtract(std::span<const spi::Position> positions,
                           std::vector<Statement>& out) const {
    spi::PositionSet set;
    set.add(positions);
    set.for_each_segment([&](std::int64_t segment, const spi::PositionSet::Bits& bits) {
        Params params;
        params.text(table_.source).integer(segment).bits(bits);
        out.push_back({{}, std::move(params), kSubtract});
    });
}

Connection::Statement LedgerTable::forget_below(spi::Position lowest) const {
    return {"DELETE FROM " + table_.side + "outbox_ledger WHERE source = $1 AND segment < $2",
            Params().text(table_.source).integer(spi::PositionSet::segment_of(lowest))};
}

Connection::Statement LedgerTable::settled(const std::string& route, spi::Position to,
                                           spi::Position was) const {
    return {
        "UPDATE " + table_.side +
            "outbox_routes SET settled = $3, life = $5 WHERE source = $1 AND route = $2 AND "
            "settled = $4",
        Params().text(table_.source).text(route).integer(to).integer(was).text(identity_.life())};
}

Connection::Statement LedgerTable::destination(const std::string& route,
                                               std::string_view name) const {
    return {"UPDATE " + table_.side +
                "outbox_routes SET destination = $3 WHERE source = $1 AND route = $2 AND "
                "destination IS NULL",
            Params().text(table_.source).text(route).text(name)};
}

Connection::Statement LedgerTable::destinations() const {
    return {
        "SELECT route, coalesce(destination, ''), (extract(epoch FROM since) * "
        "1000000)::bigint, " +
            std::string(table_.keep ? "settled" : "0::bigint") + " FROM " + table_.side +
            "outbox_routes WHERE source = $1",
        Params().text(table_.source)};
}

Result<spi::Beginning> LedgerTable::begin(Connection& connection,
                                          std::span<const spi::RouteName> routes) {
    spi::Beginning out;
    Status status = check_layout(connection);
    if (!status.ok()) return status;
    // What is taken over is theirs again where this fails.
    const auto held = held_routes(connection);
    if (!held.ok()) return held.status();
    status = take_over_tenants(connection, out);
    if (status.ok()) status = check_life(connection, out);
    if (status.ok()) status = take_over_names(connection, routes, out);
    // Before: what a route has taken that goes now is answered for.
    if (status.ok()) status = take_filters(connection, routes);
    if (status.ok()) status = refuse_gone(connection, routes, *held);
    // Before: a route that takes the place of the only one goes on behind what that one finished
    // and is still there.
    if (status.ok()) status = add_new(connection, routes);
    if (status.ok()) status = forget_gone(connection, routes, out);
    if (status.ok() && !table_.by_position) status = note_life(connection);
    if (status.ok() && !table_.by_position) status = owe_marks(connection, routes);
    if (status.ok()) status = part_lives(connection);
    if (status.ok()) status = load(connection, routes, out);
    if (status.ok()) status = name_producers(connection, routes, out);
    if (!status.ok()) return status;
    if (std::string repeated = repeated_ids(table_); !repeated.empty()) {
        out.notes.push_back(std::move(repeated));
    }
    return out;
}

// What this process knows of the table is of its start, and a relay may have stood by for long.
Status LedgerTable::check_layout(Connection& connection) const {
    const Result<Rows> rows =
        connection.query("SELECT relkind = 'p' FROM pg_class WHERE oid = to_regclass($1)",
                         Params().text(table_.sql));
    if (!rows.ok()) return rows.status();
    if (rows->empty() || rows->boolean(0, 0) == table_.partitioned) return {};
    return {ErrorCode::kTableReset, Advice::kStop,
            "the layout of table " + table_.sql +
                " was changed since this relay started (outbox migrate --after-publish); start it "
                "again"};
}

// All that every route has finished, and what never comes.
spi::Position LedgerTable::settled_by_all(const std::vector<Known>& routes) {
    if (routes.empty()) return 0;
    return std::ranges::min(routes, {}, &Known::settled).settled;
}

Result<std::vector<LedgerTable::Known>> LedgerTable::load_routes(Connection& connection) const {
    const Statement statement = destinations();
    Result<Rows> rows = connection.query(statement.sql, statement.params);
    if (!rows.ok()) return rows.status();
    std::vector<Known> known;
    for (int row = 0; row < rows->size(); ++row) {
        known.push_back({rows->string(row, 0), rows->string(row, 1), rows->integer(row, 2),
                         rows->integer(row, 3)});
    }
    return known;
}

// Positions that the ledger calls finished mean events of the table it was kept for. Where the
// numbers go up to less than that, the table began anew; where the table is another and they do
// not, only a person knows whether it holds the same events.
Status LedgerTable::check_life(Connection& connection, spi::Beginning& out) const {
    if (!table_.by_position) return check_life_of_ids(connection, out);
    const std::string life = identity_.life();
    Result<Rows> rows = connection.query(
        "SELECT DISTINCT life FROM " + table_.side + "outbox_ledger WHERE source = $1" +
            (table_.keep ? " UNION SELECT life FROM " + table_.side +
                               "outbox_routes WHERE source = $1 AND settled > 0"
                         : std::string()),
        Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    bool other = false;
    for (int row = 0; row < rows->size(); ++row) {
        const std::string_view kept = rows->text(row, 0);
        other = other || (kept.data() != nullptr && kept != life);
    }
    rows = connection.query("SELECT segment * 65536, bit_or(done)::text FROM " + table_.side +
                                "outbox_ledger WHERE source = $1 AND "
                                "segment = (SELECT max(segment) FROM " +
                                table_.side + "outbox_ledger WHERE source = $1) GROUP BY segment",
                            Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    const auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    spi::Position top = 0;
    for (const Known& route : *known) top = std::max(top, route.settled);
    if (!rows->empty()) {
        top = std::max(
            top, rows->integer(0, 0) + static_cast<spi::Position>(rows->text(0, 1).rfind('1')));
    }
    if (top == 0) return {};
    const auto last = identity_.last_position(connection);
    if (!last.ok()) return last.status();
    if (*last < top) {
        out.notes.push_back("table " + table_.sql + " began anew: its positions go up to " +
                            std::to_string(*last) + " and had reached " + std::to_string(top) +
                            "; what was known of the old ones is set aside, and all that it holds "
                            "is sent");
        rows = connection.query("DELETE FROM " + table_.side + "outbox_ledger WHERE source = $1",
                                Params().text(table_.source));
        if (!rows.ok()) return rows.status();
        const Status anew = begin_anew(connection);
        return anew.ok() ? set_aside_ids(connection) : anew;
    }
    if (!other) {
        // `routes continue` leaves open whose it is; an earlier version did not know.
        for (const std::string table : {"outbox_ledger", "outbox_routes"}) {
            if (table == "outbox_routes" && !table_.keep) continue;
            rows = connection.query("UPDATE " + table_.side + table +
                                        " SET life = $2 WHERE source = $1 AND life IS NULL",
                                    Params().text(table_.source).text(life));
            if (!rows.ok()) return rows.status();
        }
        return {};
    }
    return {ErrorCode::kTableReset, Advice::kStop,
            "table " + table_.sql +
                " is not the one that the ledger of its routes was kept for (it was replaced, "
                "restored, or truncated with its numbers begun anew). If it holds the same events "
                "(a restored dump): outbox routes continue --db URL; if its events are others, "
                "which are all to be sent: outbox routes begin --db URL"};
}

Status LedgerTable::rename(Connection& connection, const std::string& from,
                           const std::string& to) const {
    // Figures may have outlived a route that had the name before.
    Result<Rows> figures = connection.query(
        "DELETE FROM " + table_.side + "outbox_route_stats WHERE source = $1 AND route = $2",
        Params().text(table_.source).text(to));
    if (!figures.ok()) return figures.status();
    for (const char* table : kTablesOfRoutes) {
        const Result<Rows> rows = connection.query(
            "UPDATE " + table_.side + table + " SET route = $3 WHERE source = $1 AND route = $2",
            Params().text(table_.source).text(from).text(to));
        if (!rows.ok()) return rows.status();
    }
    return {};
}

// Earlier versions named routes otherwise, and kept no list of them.
Status LedgerTable::take_over_names(Connection& connection, std::span<const spi::RouteName> routes,
                                    spi::Beginning& out) const {
    const auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    const auto knows = [&](const std::string& name) {
        return std::any_of(known->begin(), known->end(),
                           [&](const Known& route) { return route.name == name; });
    };
    for (const spi::RouteName& route : routes) {
        if (knows(route.name)) continue;
        for (const std::string& former : route.former) {
            if (names(routes, former)) continue;
            bool had = knows(former);
            if (!had && known->empty()) {
                Result<Rows> rows = connection.query(
                    "SELECT EXISTS (SELECT FROM " + table_.side +
                        "outbox_route_stats WHERE source = $1 AND route = "
                        "$2) OR EXISTS (SELECT FROM " +
                        table_.side +
                        "outbox_dead_letters WHERE source = $1 AND route = "
                        "$2) OR EXISTS (SELECT FROM " +
                        table_.side + "outbox_delivery WHERE source = $1 AND route = $2)",
                    Params().text(table_.source).text(former));
                if (!rows.ok()) return rows.status();
                had = rows->boolean(0, 0);
            }
            if (!had) continue;
            if (Status status = rename(connection, former, route.name); !status.ok()) return status;
            out.notes.push_back("route '" + former + "' of an earlier version is now '" +
                                route.name + "'");
            break;
        }
    }
    return {};
}

Result<bool> LedgerTable::has_unfinished(Connection& connection, const std::string& route) const {
    std::string sql = "SELECT EXISTS (SELECT FROM " + table_.sql + " t ";
    if (table_.by_position) {
        const std::string position = "t." + quote_identifier(table_.position);
        sql += "LEFT JOIN " + table_.side +
               "outbox_ledger l ON l.source = $1 AND l.route = $2 AND l.segment = " + position +
               " / 65536 WHERE " + tenants_ + " AND " + position + " > 0 AND " +
               above_settled(table_) + " AND (l.done IS NULL OR get_bit(l.done, (" + position +
               " % 65536)::integer) = 0))";
    } else {
        std::string unfinished;
        for (const std::string& condition : unfinished_conditions(table_)) {
            unfinished += (unfinished.empty() ? "(" : " OR ") + condition;
        }
        sql += "WHERE " + unfinished + ") AND " + tenants_ + " AND " +
               not_done(table_, "$1", "$2") + ")";
    }
    Result<Rows> rows = connection.query(sql, Params().text(table_.source).text(route));
    if (!rows.ok()) return rows.status();
    return rows->boolean(0, 0);
}

Status LedgerTable::refuse_gone(Connection& connection, std::span<const spi::RouteName> routes,
                                const std::vector<relay::HeldRoute>& held) const {
    const auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    for (const Known& route : *known) {
        if (names(routes, route.name)) continue;
        const auto unfinished = has_unfinished(connection, route.name);
        if (!unfinished.ok()) return unfinished.status();
        if (*unfinished) {
            return spi::route_gone(route.name, route.destination, names_of(routes),
                                   relay::whose_route(route.name, table_.source,
                                                      table_.schema + "." + table_.name, held));
        }
    }
    return {};
}

Status LedgerTable::forget_gone(Connection& connection, std::span<const spi::RouteName> routes,
                                spi::Beginning& out) const {
    const auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    for (const Known& route : *known) {
        if (names(routes, route.name)) continue;
        for (const char* table :
             {"outbox_routes", "outbox_ledger", "outbox_route_done", "outbox_delivery"}) {
            const Result<Rows> rows = connection.query(
                "DELETE FROM " + table_.side + table + " WHERE source = $1 AND route = $2",
                Params().text(table_.source).text(route.name));
            if (!rows.ok()) return rows.status();
        }
        out.notes.push_back("route '" + route.name +
                            "' is not configured any more and has nothing left to do: forgotten");
    }
    return {};
}

// What a route passed over by another filter is unfinished, as it may want it now. The first route
// answers for what nobody wants, which other filters or another first route may change; but not for
// what somebody has taken.
Status LedgerTable::take_filters(Connection& connection,
                                 std::span<const spi::RouteName> routes) const {
    Result<Rows> rows = connection.query(
        "SELECT route, filter, first FROM " + table_.side + "outbox_routes WHERE source = $1",
        Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    bool others = false;
    for (std::size_t i = routes.size(); i-- > 0;) {
        for (int row = 0; row < rows->size(); ++row) {
            if (rows->text(row, 0) != routes[i].name) continue;
            const bool first = i == 0;
            const bool own = rows->text(row, 1) != routes[i].filter;
            others = others || own || rows->boolean(row, 2) != first;
            if (!own && !(first && others)) continue;
            if (Status status = take_back_passed(connection, routes[i].name, own); !status.ok()) {
                return status;
            }
            const Result<Rows> taken = connection.query(
                "UPDATE " + table_.side +
                    "outbox_routes SET filter = $3 WHERE source = $1 AND route = $2",
                Params().text(table_.source).text(routes[i].name).text(routes[i].filter));
            if (!taken.ok()) return taken.status();
        }
    }
    if (!others) return {};
    return connection
        .query("UPDATE " + table_.side + "outbox_routes SET first = route = $2 WHERE source = $1",
               Params().text(table_.source).text(routes.front().name))
        .status();
}

// `all`: what another route has taken, too.
Status LedgerTable::take_back_passed(Connection& connection, const std::string& route,
                                     bool all) const {
    const Params params = Params().text(table_.source).text(route);
    if (!table_.by_position) {
        const std::string done = table_.side + "outbox_route_done";
        return connection
            .query("DELETE FROM " + done + " d WHERE source = $1 AND route = $2 AND passed" +
                       (all ? ""
                            : " AND NOT EXISTS (SELECT FROM " + done +
                                  " o WHERE o.source = $1 AND o.event_id = d.event_id AND NOT "
                                  "o.passed)"),
                   params)
            .status();
    }
    const std::string ledger = table_.side + "outbox_ledger";
    const std::string none = "B'0'::bit(65536)";
    std::string kept =
        all ? none
            : "l.passed & coalesce((SELECT bit_or(o.done & ~coalesce(o.passed, " + none +
                  ")) FROM " + ledger +
                  " o WHERE o.source = $1 AND o.segment = l.segment AND o.route <> $2), " + none +
                  ")";
    if (table_.keep) {
        // What every route has settled is history, however long it stays.
        const auto known = load_routes(connection);
        if (!known.ok()) return known.status();
        const std::string upto = std::to_string(settled_by_all(*known));
        const std::string below =
            "least(greatest(" + upto + " - l.segment * 65536 + 1, 0), 65536)::integer";
        kept = "((" + kept + ") | (l.passed & (repeat('1', " + below + ") || repeat('0', 65536 - " +
               below + "))::bit(65536)))";
        const Result<Rows> back =
            connection.query("UPDATE " + table_.side + "outbox_routes SET settled = " + upto +
                                 " WHERE source = $1 AND route = $2",
                             params);
        if (!back.ok()) return back.status();
    }
    const Result<Rows> taken = connection.query(
        "UPDATE " + ledger +
            " u SET done = u.done & ~(u.passed & ~k.kept), passed = nullif(k.kept, " + none +
            ") FROM (SELECT segment, " + kept + " AS kept FROM " + ledger +
            " l WHERE source = $1 AND route = $2 AND passed IS NOT NULL) k WHERE "
            "u.source = $1 AND u.route = $2 AND u.segment = k.segment",
        params);
    if (!taken.ok()) return taken.status();
    return connection
        .query("DELETE FROM " + ledger +
                   " WHERE source = $1 AND route = $2 AND position(B'1' IN done) = 0",
               params)
        .status();
}

// A new route begins with the events that not every known one has finished.
Status LedgerTable::add_new(Connection& connection, std::span<const spi::RouteName> routes) const {
    auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    // Those that go count only where none stays.
    if (std::any_of(known->begin(), known->end(),
                    [&](const Known& one) { return names(routes, one.name); })) {
        std::erase_if(*known, [&](const Known& one) { return !names(routes, one.name); });
    }
    const std::string settled = std::to_string(settled_by_all(*known));
    for (const spi::RouteName& route : routes) {
        if (std::any_of(known->begin(), known->end(),
                        [&](const Known& one) { return one.name == route.name; })) {
            continue;
        }
        Result<Rows> rows = connection.query(
            "INSERT INTO " + table_.side + "outbox_routes (source, route, filter, first" +
                (table_.keep ? ", settled, life) VALUES ($1, $2, $3, $4 = 1, " + settled + ", " +
                                   quote_literal(identity_.life()) + ")"
                             : std::string(") VALUES ($1, $2, $3, $4 = 1)")),
            Params()
                .text(table_.source)
                .text(route.name)
                .text(route.filter)
                .integer(&route == routes.data() ? 1 : 0));
        if (!rows.ok()) return rows.status();
        if (known->empty() || !table_.by_position) continue;
        std::vector<std::string> others;
        for (const Known& one : *known) others.push_back(one.name);
        rows = connection.query(
            "INSERT INTO " + table_.side +
                "outbox_ledger (source, route, segment, life, done) SELECT $1, $2, "
                "segment, max(life), bit_and(done) FROM " +
                table_.side +
                "outbox_ledger WHERE source = $1 AND route = "
                "ANY($3::text[]) GROUP BY segment HAVING count(*) = cardinality($3::text[])",
            Params().text(table_.source).text(route.name).texts(others));
        if (!rows.ok()) return rows.status();
    }
    return {};
}

// Rows that only a route which is gone had not finished.
Status LedgerTable::owe_marks(Connection& connection,
                              std::span<const spi::RouteName> routes) const {
    return connection
        .query("INSERT INTO " + table_.side +
                   "outbox_route_done (source, event_id, route) SELECT $1, event_id, '' "
                   "FROM " +
                   table_.side +
                   "outbox_route_done WHERE source = $1 AND route = ANY($2::text[]) GROUP BY "
                   "event_id HAVING count(*) = cardinality($2::text[]) ON CONFLICT DO NOTHING",
               Params().text(table_.source).texts(names_of(routes)))
        .status();
}

Status LedgerTable::load(Connection& connection, std::span<const spi::RouteName> routes,
                         spi::Beginning& out) const {
    const auto known = load_routes(connection);
    if (!known.ok()) return known.status();
    spi::Position lowest = 0;  // that is there
    if (table_.keep) {
        const Result<Rows> rows =
            connection.query("SELECT coalesce(min(position), 0) FROM " + table_.sql);
        if (!rows.ok()) return rows.status();
        lowest = std::max<spi::Position>(rows->integer(0, 0), 1);
    }
    out.routes.resize(routes.size());
    for (std::size_t i = 0; i < routes.size(); ++i) {
        spi::RouteBeginning& route = out.routes[i];
        for (const Known& one : *known) {
            if (one.name != routes[i].name) continue;
            route.destination = one.destination;
            route.settled = one.settled;
        }
        if (!table_.by_position) continue;
        Status status = connection.prepare(
            kLoad,
            "SELECT segment, done FROM " + table_.side +
                "outbox_ledger WHERE source = $1 AND route = $2 AND segment >= $3",
            Params().text({}).text({}).integer(0));
        if (status.ok()) {
            status = connection.start_prepared(
                kLoad, Params()
                           .text(table_.source)
                           .text(routes[i].name)
                           .integer(spi::PositionSet::segment_of(route.settled)));
        }
        std::array<Field, 2> fields;
        while (status.ok() && connection.next(fields, status)) {
            if (fields[1].size != kBitsHeader + spi::PositionSet::kSegmentBytes) {
                return {ErrorCode::kTableShape, Advice::kStop,
                        "outbox_ledger.done has not 65536 bits; outbox migrate --db URL"};
            }
            out.routes[i].finished.add_segment(
                decode_integer(fields[0]),
                std::span<const std::uint8_t, spi::PositionSet::kSegmentBytes>(
                    reinterpret_cast<const std::uint8_t*>(fields[1].data) + kBitsHeader,
                    spi::PositionSet::kSegmentBytes));
        }
        if (status.ok()) status = connection.execute(std::string("DEALLOCATE ") + kLoad);
        if (!status.ok()) return status;
        // Not read again, whatever is there.
        if (lowest > 0 && lowest <= route.settled) route.finished.add({lowest, route.settled});
    }
    return {};
}

}  // namespace outbox::postgres
