// Tables without positions: the mark of rows that every route has finished.
#include <utility>
#include <vector>

#include "core/sql_text.h"
#include "databases/sqlite/errors.h"
#include "databases/sqlite/record/recorder.h"

namespace outbox::sqlite {

// Of a table without positions: the row's end when every route has finished it, else a note that
// this one has.
Status SqliteRecorder::end_row(Database& database, const std::string& route,
                               const std::string& raw_id, How how) {
    const std::string name = done_name(raw_id);
    bool dead = how == How::kDead;
    if (routes_.size() > 1) {
        Statement note(database,
                       "INSERT INTO outbox_route_done (source, event_id, route, passed) VALUES "
                       "(?, ?, ?, ?) ON CONFLICT DO NOTHING");
        Status status = note.bind(table_.source)
                            .bind(name)
                            .bind(route)
                            .bind(std::int64_t{how == How::kPassed})
                            .run();
        if (!status.ok()) return status;
        for (const std::string& other : routes_) {
            Statement done(database,
                           "SELECT 1 FROM outbox_route_done WHERE source = ? AND event_id = ? AND "
                           "route = ?");
            done.bind(table_.source).bind(name).bind(other);
            const bool finished = done.step();
            if (status = done.status(); !status.ok()) return status;
            if (!finished) return {};
        }
        Statement letter(database,
                         "SELECT 1 FROM outbox_dead_letters WHERE source = ? AND id = ? AND route "
                         "<> ?");
        letter.bind(table_.source).bind(event_id_of(table_, raw_id)).bind(route);
        dead = dead || letter.step();
        if (status = letter.status(); !status.ok()) return status;
    }
    Statement row(database, dead ? writer_.dead : writer_.published);
    bind_raw_id(row, raw_id);
    row.bind(now_us());
    const Result<bool> ended = ends(database, row, raw_id);
    if (!ended.ok()) return ended.status();
    if (!*ended) return owe(database, name);
    if (routes_.size() <= 1) return {};
    Statement forget(database, "DELETE FROM outbox_route_done WHERE source = ? AND event_id = ?");
    return forget.bind(table_.source).bind(name).run();
}

// The owner's table refuses the row's end: that every route has finished it keeps it from being
// read again, and the mark '' says that it is owed its end, which the next start tries.
Status SqliteRecorder::owe(Database& database, const std::string& name) const {
    Statement note(database,
                   "INSERT INTO outbox_route_done (source, event_id, route) VALUES (?, ?, ?) "
                   "ON CONFLICT DO NOTHING");
    Status status = note.bind(table_.source).bind(name).bind(std::string()).run();
    for (const std::string& route : routes_) {
        if (status.ok()) status = note.bind(table_.source).bind(name).bind(route).run();
    }
    return status;
}

// Rows that only a route which is gone had not finished.
Status SqliteRecorder::end_left_rows(Database& database) {
    std::string list;
    for (const std::string& route : routes_)
        list += (list.empty() ? "" : ", ") + quote_literal(route);
    const std::string complete =
        "SELECT event_id FROM outbox_route_done WHERE source = ?1 AND "
        "route IN (" +
        list + ") GROUP BY event_id HAVING count(*) = " + std::to_string(routes_.size());
    Statement rows(database, "SELECT typeof(" + table_.quoted("id") + "), " + table_.quoted("id") +
                                 " FROM " + table_.sql + " t WHERE " + any_unfinished(table_) +
                                 " AND " + done_name_sql(table_) + " IN (" + complete +
                                 " UNION ALL SELECT event_id FROM outbox_route_done WHERE source = "
                                 "?1 AND route = '')");
    rows.bind(table_.source);
    std::vector<std::string> ids;
    while (rows.step()) ids.push_back(raw_id_of(rows, 0, 1));
    if (Status status = rows.status(); !status.ok()) return status;
    rows.reset();
    for (const std::string& id : ids) {
        // A mark that is owed is made anew where the row is refused again. Routes that are new
        // since then begin behind it.
        Statement forget(database,
                         "DELETE FROM outbox_route_done WHERE source = ? AND event_id = ? AND "
                         "route = ''");
        Status status = owe(database, done_name(id));
        if (status.ok()) status = forget.bind(table_.source).bind(done_name(id)).run();
        Statement letter(database,
                         "SELECT 1 FROM outbox_dead_letters WHERE source = ? AND id = ? AND route "
                         "= ?");
        letter.bind(table_.source).bind(event_id_of(table_, id)).bind(routes_.front());
        const bool dead = letter.step();
        if (status.ok()) status = letter.status();
        if (status.ok()) {
            status = end_row(database, routes_.front(), id, dead ? How::kDead : How::kTaken);
        }
        if (!status.ok()) return status;
    }
    // What is owed to rows that are gone, or that their owner has finished.
    Statement settled(database,
                      "DELETE FROM outbox_route_done WHERE source = ?1 AND event_id IN (SELECT "
                      "event_id FROM outbox_route_done WHERE source = ?1 AND route = '') AND "
                      "event_id NOT IN (SELECT " +
                          done_name_sql(table_) + " FROM " + table_.sql + " t WHERE " +
                          any_unfinished(table_) + " AND " + table_.quoted("id") + " IS NOT NULL)");
    if (Status status = settled.bind(table_.source).run(); !status.ok()) return status;
    if (routes_.size() > 1) return {};
    // What one route alone has finished is known by the rows themselves, but for those.
    Statement forget(database,
                     "DELETE FROM outbox_route_done WHERE source = ?1 AND event_id NOT IN (SELECT "
                     "event_id FROM outbox_route_done WHERE source = ?1 AND route = '')");
    return forget.bind(table_.source).run();
}

}  // namespace outbox::sqlite
