#include "databases/sqlite/record/ledger.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sys/stat.h>
#include <utility>

#include "core/producer_name.h"
#include "core/sql_text.h"
#include "databases/sqlite/source/route_ledgers.h"

namespace outbox::sqlite {
namespace {

constexpr std::array kTablesOfRoutes{"outbox_routes",       "outbox_ledger_segments",
                                     "outbox_route_done",   "outbox_delivery",
                                     "outbox_dead_letters", "outbox_route_stats"};

bool names(std::span<const spi::RouteName> routes, const std::string& name) {
    return std::any_of(routes.begin(), routes.end(),
                       [&](const spi::RouteName& route) { return route.name == name; });
}

}  // namespace

std::span<const std::uint8_t, spi::PositionSet::kSegmentBytes> bits_of(std::string_view blob) {
    return std::span<const std::uint8_t, spi::PositionSet::kSegmentBytes>(
        reinterpret_cast<const std::uint8_t*>(blob.data()), spi::PositionSet::kSegmentBytes);
}

Result<spi::Beginning> Ledger::begin(Database& database,
                                     std::span<const spi::RouteName> routes) const {
    spi::Beginning out;
    // What is taken over is theirs again where this fails.
    const auto held = held_routes(database);
    if (!held.ok()) return held.status();
    Status status = take_over_tenants(database, out);
    if (!status.ok()) return status;
    auto known = load_routes(database);
    status = known.status();
    if (status.ok()) status = check_life(database, *known, out);
    if (status.ok()) status = take_over_names(database, routes, out);
    // Before: what a route has taken that goes now is answered for.
    if (status.ok()) status = take_filters(database, routes);
    if (status.ok()) status = refuse_gone(database, routes, *held);
    // Before: a route that takes the place of the only one goes on behind what that one finished
    // and is still there.
    if (status.ok()) status = add_new(database, routes);
    if (status.ok()) status = forget_gone(database, routes, out);
    if (status.ok()) status = part_lives(database);
    if (status.ok()) known = load_routes(database);
    if (status.ok()) status = known.status();
    if (!status.ok()) return status;
    for (const spi::RouteName& route : routes) {
        spi::RouteBeginning beginning;
        for (const Known& one : *known) {
            if (one.name != route.name) continue;
            beginning.destination = one.destination;
            auto producer = this->producer(database, one);
            if (!producer.ok()) return producer.status();
            beginning.producer = std::move(*producer);
        }
        if (table_.native) {
            auto finished = load(database, route.name);
            if (!finished.ok()) return finished.status();
            beginning.finished = std::move(*finished);
        }
        out.routes.push_back(std::move(beginning));
    }
    return out;
}

Result<std::vector<Ledger::Known>> Ledger::load_routes(Database& database) const {
    Statement rows(database,
                   "SELECT route, coalesce(destination, ''), since FROM outbox_routes WHERE "
                   "source = ?");
    rows.bind(table_.source);
    std::vector<Known> known;
    while (rows.step()) known.push_back({rows.string(0), rows.string(1), rows.integer(2)});
    if (Status status = rows.status(); !status.ok()) return status;
    return known;
}

Result<std::vector<std::string>> Ledger::destinations(Database& database,
                                                      std::span<const std::string> routes) const {
    const auto known = load_routes(database);
    if (!known.ok()) return known.status();
    std::vector<std::string> out(routes.size());
    for (const Known& one : *known) {
        const auto at = std::find(routes.begin(), routes.end(), one.name);
        if (at != routes.end())
            out[static_cast<std::size_t>(at - routes.begin())] = one.destination;
    }
    return out;
}

Status Ledger::set_destination(Database& database, const std::string& route,
                               const std::string& name) const {
    Statement update(database,
                     "UPDATE outbox_routes SET destination = ? WHERE source = ? AND route = ? AND "
                     "destination IS NULL");
    return update.bind(name).bind(table_.source).bind(route).run();
}

Result<spi::PositionSet> Ledger::load(Database& database, const std::string& route) const {
    Statement rows(
        database,
        "SELECT segment, done FROM outbox_ledger_segments WHERE source = ? AND route = ?");
    rows.bind(table_.source).bind(route);
    spi::PositionSet set;
    while (rows.step()) {
        const std::string_view bits = rows.text(1);
        if (bits.size() != spi::PositionSet::kSegmentBytes) {
            return ErrorInfo{ErrorCode::kTableShape,
                             Advice::kStop,
                             {},
                             "outbox_ledger_segments.done has not 8192 bytes"};
        }
        set.add_segment(rows.integer(0), bits_of(bits));
    }
    if (Status status = rows.status(); !status.ok()) return status;
    return set;
}

Status Ledger::save(Database& database, const std::string& route, std::int64_t segment,
                    const spi::PositionSet& set) const {
    if (set.empty()) {
        Statement remove(database,
                         "DELETE FROM outbox_ledger_segments WHERE source = ? AND route = ? AND "
                         "segment = ?");
        return remove.bind(table_.source).bind(route).bind(segment).run();
    }
    Statement upsert(database,
                     "INSERT INTO outbox_ledger_segments (source, route, segment, done) VALUES (?, "
                     "?, ?, ?) ON CONFLICT (source, route, segment) DO UPDATE SET done = "
                     "excluded.done");
    Status status;
    set.for_each_segment([&](std::int64_t, const spi::PositionSet::Bits& bits) {
        upsert.bind(table_.source).bind(route).bind(segment);
        upsert.bind_blob({reinterpret_cast<const char*>(bits.data()), bits.size()});
        status = upsert.run();
    });
    return status;
}

Status Ledger::add(Database& database, const std::string& route,
                   const spi::Finished& finished) const {
    Status status = add_bits(database, route, finished.positions,
                             "INSERT INTO outbox_ledger_segments (source, route, segment, done) "
                             "VALUES (?1, ?2, ?3, ?4) ON CONFLICT (source, route, segment) DO "
                             "UPDATE SET done = excluded.done",
                             "done");
    if (!status.ok() || finished.passed.empty()) return status;
    return add_bits(database, route, finished.passed,
                    "UPDATE outbox_ledger_segments SET passed = ?4 WHERE source = ?1 AND route = "
                    "?2 AND segment = ?3",
                    "passed");
}

// Those that `column` has and `positions`, which `write` then puts there.
Status Ledger::add_bits(Database& database, const std::string& route,
                        std::span<const spi::Position> positions, const char* write,
                        const char* column) const {
    std::map<std::int64_t, spi::PositionSet> segments;
    for (const spi::Position position : positions) {
        segments[spi::PositionSet::segment_of(position)].add(position);
    }
    Statement row(database, std::string("SELECT ") + column +
                                " FROM outbox_ledger_segments WHERE source = ? AND route = ? AND "
                                "segment = ?");
    Statement update(database, write);
    for (auto& [segment, set] : segments) {
        row.bind(table_.source).bind(route).bind(segment);
        if (row.step() && !row.text(0).empty()) set.add_segment(segment, bits_of(row.text(0)));
        if (Status status = row.status(); !status.ok()) return status;
        row.reset();
        Status status;
        set.for_each_segment([&](std::int64_t, const spi::PositionSet::Bits& bits) {
            update.bind(table_.source).bind(route).bind(segment);
            update.bind_blob({reinterpret_cast<const char*>(bits.data()), bits.size()});
            status = update.run();
            update.reset();
        });
        if (!status.ok()) return status;
    }
    return {};
}

Status Ledger::subtract(Database& database, std::span<const spi::Position> positions) const {
    std::map<std::int64_t, std::vector<spi::Position>> segments;
    for (const spi::Position position : positions) {
        segments[spi::PositionSet::segment_of(position)].push_back(position);
    }
    for (const auto& [segment, gone] : segments) {
        Statement rows(
            database,
            "SELECT route, done FROM outbox_ledger_segments WHERE source = ? AND segment "
            "= ?");
        rows.bind(table_.source).bind(segment);
        std::map<std::string, spi::PositionSet> kept;
        while (rows.step()) kept[rows.string(0)].add_segment(segment, bits_of(rows.text(1)));
        if (Status status = rows.status(); !status.ok()) return status;
        rows.reset();
        for (auto& [route, set] : kept) {
            set.remove(gone);
            if (Status status = save(database, route, segment, set); !status.ok()) return status;
        }
    }
    return {};
}

// Positions that the ledger calls finished mean events of the table it was kept for. SQLite keeps
// the highest position ever given; where that is lower than what was finished, the table began
// anew.
Status Ledger::check_life(Database& database, std::span<const Known> known,
                          spi::Beginning& out) const {
    if (!table_.native) return check_life_of_ids(database, out);
    spi::Position top = 0;
    for (const Known& route : known) {
        const auto finished = load(database, route.name);
        if (!finished.ok()) return finished.status();
        top = std::max(top, finished->highest());
    }
    if (top == 0) return {};
    const auto given = last_position(database, table_.name);
    if (!given.ok()) return given.status();
    if (*given >= top) return {};
    out.notes.push_back("table " + table_.name + " began anew: its positions go up to " +
                        std::to_string(*given) + " and had reached " + std::to_string(top) +
                        "; what was known of the old ones is set aside, and all that it holds is "
                        "sent");
    if (Status anew = begin_anew(database); !anew.ok()) return anew;
    Statement forget(database, "DELETE FROM outbox_ledger_segments WHERE source = ?");
    return forget.bind(table_.source).run();
}

// A row that waits for another route is there until all have finished it. Where one is not, SQLite
// may have given its number, and those of others, to new rows; AUTOINCREMENT has not, as long as it
// is above them.
Status Ledger::check_life_of_ids(Database& database, spi::Beginning& out) const {
    if (!table_.integer_id) return {};
    Statement gone(database,
                   "SELECT EXISTS (SELECT 1 FROM outbox_route_done d WHERE d.source = ?1 AND "
                   "d.event_id LIKE 'i%' AND NOT EXISTS (SELECT 1 FROM " +
                       table_.sql + " t WHERE " + table_.quoted("id") +
                       " = CAST(substr(d.event_id, 2) AS integer))" +
                       (table_.autoincrement
                            ? " AND CAST(substr(d.event_id, 2) AS integer) > coalesce((SELECT "
                              "max(seq) FROM sqlite_sequence WHERE name = ?2), 0))"
                            : ") AND coalesce(?2, '') IS NOT NULL"));
    gone.bind(table_.source).bind(table_.name);
    const bool anew = gone.step() && gone.integer(0) != 0;
    if (Status status = gone.status(); !status.ok()) return status;
    if (!anew) return {};
    if (Status begun = begin_anew(database); !begun.ok()) return begun;
    for (const char* table : {"outbox_route_done", "outbox_delivery"}) {
        Statement forget(database, "DELETE FROM " + std::string(table) + " WHERE source = ?");
        if (Status status = forget.bind(table_.source).run(); !status.ok()) return status;
    }
    out.notes.push_back("rows of table " + table_.name +
                        " are gone that waited for a route, and their ids may be given once more; "
                        "what was known by them is set aside, and all that it holds unfinished is "
                        "sent. Consumers that remember ids of old events take new ones of the same "
                        "id for repeats");
    // An old event's letter stays, under an id that no row has.
    Statement keep(database,
                   "UPDATE outbox_dead_letters SET id = id || '~' || dead_id WHERE source = ? AND "
                   "id NOT LIKE '%~' || dead_id");
    return keep.bind(table_.source).run();
}

Status Ledger::rename(Database& database, const std::string& from, const std::string& to) const {
    // Figures may have outlived a route that had the name before.
    Statement figures(database, "DELETE FROM outbox_route_stats WHERE source = ? AND route = ?");
    if (Status status = figures.bind(table_.source).bind(to).run(); !status.ok()) return status;
    for (const char* table : kTablesOfRoutes) {
        Statement update(database, "UPDATE " + std::string(table) +
                                       " SET route = ? WHERE source = ? AND route = ?");
        Status status = update.bind(to).bind(table_.source).bind(from).run();
        if (!status.ok()) return status;
    }
    return {};
}

// Earlier versions named routes otherwise, and kept no list of them.
Status Ledger::take_over_names(Database& database, std::span<const spi::RouteName> routes,
                               spi::Beginning& out) const {
    const auto known = load_routes(database);
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
                Statement any(database,
                              "SELECT EXISTS (SELECT 1 FROM outbox_route_stats WHERE source = ?1 "
                              "AND route = ?2) OR EXISTS (SELECT 1 FROM outbox_dead_letters WHERE "
                              "source = ?1 AND route = ?2) OR EXISTS (SELECT 1 FROM "
                              "outbox_delivery WHERE source = ?1 AND route = ?2)");
                any.bind(table_.source).bind(former);
                had = any.step() && any.integer(0) != 0;
                if (Status status = any.status(); !status.ok()) return status;
            }
            if (!had) continue;
            if (Status status = rename(database, former, route.name); !status.ok()) return status;
            out.notes.push_back("route '" + former + "' of an earlier version is now '" +
                                route.name + "'");
            break;
        }
    }
    return {};
}

Result<bool> Ledger::has_unfinished(Database& database, const std::string& route) const {
    if (!table_.native) {
        Statement any(database, "SELECT EXISTS (SELECT 1 FROM " + table_.sql + " t WHERE " +
                                    any_unfinished(table_) + " AND " + tenant_condition(table_) +
                                    " AND " + not_done(table_, quote_literal(table_.source), "?1") +
                                    ")");
        any.bind(route);
        const bool found = any.step() && any.integer(0) != 0;
        if (Status status = any.status(); !status.ok()) return status;
        return found;
    }
    const auto finished = load(database, route);
    if (!finished.ok()) return finished.status();
    Statement rows(database,
                   "SELECT position, tenant_id FROM " + table_.sql + " t WHERE position > 0");
    bool found = false;
    while (!found && rows.step()) {
        found = !finished->contains(rows.integer(0)) && table_.wants(rows.text(1));
    }
    if (Status status = rows.status(); !status.ok()) return status;
    return found;
}

Status Ledger::refuse_gone(Database& database, std::span<const spi::RouteName> routes,
                           const std::vector<relay::HeldRoute>& held) const {
    const auto known = load_routes(database);
    if (!known.ok()) return known.status();
    for (const Known& route : *known) {
        if (names(routes, route.name)) continue;
        const auto unfinished = has_unfinished(database, route.name);
        if (!unfinished.ok()) return unfinished.status();
        if (!*unfinished) continue;
        std::vector<std::string> configured;
        for (const spi::RouteName& one : routes) configured.push_back(one.name);
        return spi::route_gone(route.name, route.destination, configured,
                               relay::whose_route(route.name, table_.source, table_.name, held));
    }
    return {};
}

Status Ledger::forget_gone(Database& database, std::span<const spi::RouteName> routes,
                           spi::Beginning& out) const {
    const auto known = load_routes(database);
    if (!known.ok()) return known.status();
    for (const Known& route : *known) {
        if (names(routes, route.name)) continue;
        for (const char* table :
             {"outbox_routes", "outbox_ledger_segments", "outbox_route_done", "outbox_delivery"}) {
            Statement remove(
                database, "DELETE FROM " + std::string(table) + " WHERE source = ? AND route = ?");
            Status status = remove.bind(table_.source).bind(route.name).run();
            if (!status.ok()) return status;
        }
        out.notes.push_back("route '" + route.name +
                            "' is not configured any more and has nothing left to do: forgotten");
    }
    return {};
}

// What a route passed over by another filter is unfinished, as it may want it now. The first route
// answers for what nobody wants, which other filters or another first route may change; but not for
// what somebody has taken.
Status Ledger::take_filters(Database& database, std::span<const spi::RouteName> routes) const {
    struct Filter {
        std::string text;
        bool first = false;
    };
    std::map<std::string, Filter> known;
    Statement rows(database,
                   "SELECT route, coalesce(filter, ''), first FROM outbox_routes WHERE source = ?");
    rows.bind(table_.source);
    while (rows.step()) known[rows.string(0)] = {rows.string(1), rows.integer(2) != 0};
    if (Status status = rows.status(); !status.ok()) return status;
    bool others = false;
    for (std::size_t i = routes.size(); i-- > 0;) {
        const auto it = known.find(routes[i].name);
        if (it == known.end()) continue;
        const bool first = i == 0;
        const bool own = it->second.text != routes[i].filter;
        others = others || own || it->second.first != first;
        if (!own && !(first && others)) continue;
        Status status = take_back_passed(database, routes[i].name, own);
        Statement take(database,
                       "UPDATE outbox_routes SET filter = ? WHERE source = ? AND route = ?");
        take.bind(routes[i].filter).bind(table_.source).bind(routes[i].name);
        if (status.ok()) status = take.run();
        if (!status.ok()) return status;
    }
    if (!others) return {};
    Statement first(database, "UPDATE outbox_routes SET first = route = ? WHERE source = ?");
    return first.bind(routes.front().name).bind(table_.source).run();
}

// `all`: what another route has taken, too.
Status Ledger::take_back_passed(Database& database, const std::string& route, bool all) const {
    Statement done(database,
                   "DELETE FROM outbox_route_done AS d WHERE source = ?1 AND route = ?2 AND "
                   "passed" +
                       std::string(all ? ""
                                       : " AND NOT EXISTS (SELECT 1 FROM outbox_route_done o "
                                         "WHERE o.source = ?1 AND o.event_id = d.event_id AND NOT "
                                         "o.passed)"));
    if (Status status = done.bind(table_.source).bind(route).run(); !status.ok()) return status;
    Statement rows(database,
                   "SELECT segment FROM outbox_ledger_segments WHERE source = ? AND route = ? AND "
                   "passed IS NOT NULL");
    rows.bind(table_.source).bind(route);
    std::vector<std::int64_t> segments;
    while (rows.step()) segments.push_back(rows.integer(0));
    if (Status status = rows.status(); !status.ok()) return status;
    rows.reset();
    for (const std::int64_t segment : segments) {
        Status status = take_back_segment(database, route, segment, all);
        if (!status.ok()) return status;
    }
    return {};
}

Status Ledger::take_back_segment(Database& database, const std::string& route, std::int64_t segment,
                                 bool all) const {
    using Bits = spi::PositionSet::Bits;
    Statement rows(database,
                   "SELECT route, done, passed FROM outbox_ledger_segments WHERE source = ? AND "
                   "segment = ?");
    rows.bind(table_.source).bind(segment);
    Bits done{};
    Bits passed{};
    Bits taken{};  // by others
    while (rows.step()) {
        const auto theirs = bits_of(rows.text(1));
        const std::string_view over = rows.text(2);
        if (rows.text(0) == route) {
            std::copy(theirs.begin(), theirs.end(), done.begin());
            std::copy(over.begin(), over.end(), passed.begin());
            continue;
        }
        for (std::size_t i = 0; i < taken.size(); ++i) {
            const auto not_taken = over.empty() ? 0U : static_cast<unsigned char>(over[i]);
            taken[i] |= static_cast<std::uint8_t>(theirs[i] & ~not_taken);
        }
    }
    if (Status status = rows.status(); !status.ok()) return status;
    rows.reset();
    for (std::size_t i = 0; i < done.size(); ++i) {
        const unsigned kept = all ? 0U : passed[i] & taken[i];
        done[i] = static_cast<std::uint8_t>(done[i] & ~(passed[i] & ~kept));
        passed[i] = static_cast<std::uint8_t>(kept);
    }
    const auto text = [](const Bits& bits) {
        return std::string_view(reinterpret_cast<const char*>(bits.data()), bits.size());
    };
    Statement update(database,
                     "UPDATE outbox_ledger_segments SET done = ?, passed = ? WHERE source = ? AND "
                     "route = ? AND segment = ?");
    update.bind_blob(text(done)).bind_blob(text(passed));
    return update.bind(table_.source).bind(route).bind(segment).run();
}

// A new route begins with the events that not every known one has finished.
// What destinations remember of these routes' events is of others from now on.
Status Ledger::begin_anew(Database& database) const {
    Statement update(database, "UPDATE outbox_routes SET since = ? WHERE source = ?");
    return update.bind(now_us()).bind(table_.source).run();
}

// Ledgers that began in one instant are told apart by it all the same.
Status Ledger::part_lives(Database& database) const {
    const auto known = load_routes(database);
    if (!known.ok()) return known.status();
    std::set<std::int64_t> lives;
    for (const Known& route : *known) {
        if (lives.insert(route.since_us).second) continue;
        const std::int64_t since_us = *lives.rbegin() + 1;
        lives.insert(since_us);
        Statement update(database,
                         "UPDATE outbox_routes SET since = ? WHERE source = ? AND route = ?");
        update.bind(since_us).bind(table_.source).bind(route.name);
        if (Status status = update.run(); !status.ok()) return status;
    }
    return {};
}

// A copy has what the file has written, and is another file.
Result<std::string> Ledger::producer(const Database& database, const Known& route) const {
    struct stat file{};
    if (stat(database.path().c_str(), &file) != 0) {
        return ErrorInfo{ErrorCode::kConnectFailed, Advice::kRetryDestination, "",
                         "the file " + database.path() + " is away; is its volume there?"};
    }
    return producer_name({std::to_string(file.st_dev) + '/' + std::to_string(file.st_ino), "",
                          route.since_us, table_.source});
}

Result<spi::PositionSet> Ledger::common(Database& database, std::span<const Known> known) const {
    auto finished = load(database, known.front().name);
    for (std::size_t i = 1; finished.ok() && i < known.size(); ++i) {
        const auto other = load(database, known[i].name);
        if (!other.ok()) return other;
        finished->keep_common(*other);
    }
    return finished;
}

Result<spi::PositionSet> Ledger::finished_by_all(Database& database) const {
    const auto known = load_routes(database);
    if (!known.ok()) return known.status();
    return known->empty() ? Result<spi::PositionSet>(spi::PositionSet()) : common(database, *known);
}

Result<spi::Position> Ledger::forget_below_rows(Database& database) const {
    Statement row(database, "SELECT coalesce((SELECT min(position) FROM " + table_.sql +
                                " WHERE position > 0), (SELECT max(segment) * 65536 FROM "
                                "outbox_ledger_segments WHERE source = ?), 0)");
    row.bind(table_.source);
    const spi::Position lowest = row.step() ? row.integer(0) : 0;
    if (Status status = row.status(); !status.ok()) return status;
    Statement forget(database,
                     "DELETE FROM outbox_ledger_segments WHERE source = ? AND segment < ?");
    Status status = forget.bind(table_.source).bind(spi::PositionSet::segment_of(lowest)).run();
    if (!status.ok()) return status;
    return lowest;
}

Status Ledger::add_new(Database& database, std::span<const spi::RouteName> routes) const {
    auto known = load_routes(database);
    if (!known.ok()) return known.status();
    // Those that go count only where none stays.
    if (std::any_of(known->begin(), known->end(),
                    [&](const Known& one) { return names(routes, one.name); })) {
        std::erase_if(*known, [&](const Known& one) { return !names(routes, one.name); });
    }
    for (const spi::RouteName& route : routes) {
        if (std::any_of(known->begin(), known->end(),
                        [&](const Known& one) { return one.name == route.name; })) {
            continue;
        }
        Statement insert(database,
                         "INSERT INTO outbox_routes (source, route, filter, first, since) VALUES "
                         "(?, ?, ?, ?, ?)");
        insert.bind(table_.source).bind(route.name).bind(route.filter);
        insert.bind(std::int64_t{&route == routes.data()}).bind(now_us());
        Status status = insert.run();
        if (!status.ok()) return status;
        if (known->empty() || !table_.native) continue;
        const auto finished = common(database, *known);
        if (!finished.ok()) return finished.status();
        status = add(database, route.name, {0, finished->positions(), {}});
        if (!status.ok()) return status;
    }
    return {};
}

}  // namespace outbox::sqlite
