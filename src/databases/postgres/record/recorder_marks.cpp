// The owner's rows: their columns, and the mark of those that every route has finished.
#include <algorithm>
#include <iterator>

#include "databases/postgres/errors.h"
#include "databases/postgres/record/halves.h"
#include "databases/postgres/record/recorder.h"
#include "databases/postgres/record/refusal.h"
#include "databases/postgres/source/decode.h"

namespace outbox::postgres {
namespace {

// A trigger may have kept the row as it was.
void take_ended(const Rows& rows, std::unordered_set<std::string>& ids) {
    for (int row = 0; row < rows.size(); ++row) {
        if (!rows.boolean(row, 1)) ids.insert(rows.string(row, 0));
    }
}

}  // namespace

// One by one; what the owner's table refuses stands in ours alone.
Status PostgresRecorder::write_owners(Connection& connection, const spi::RecordBatch& batch,
                                      std::span<const Statement> owners) {
    for (const Statement& statement : owners) {
        const auto taken = owner_takes(connection, statement, nullptr);
        if (!taken.ok()) return taken.status();
    }
    if (batch.redelivered.empty()) return {};
    const auto taken = owner_takes(connection, writer_.redelivered(batch.redelivered), nullptr);
    if (!taken.ok() || *taken) return taken.status();
    const Statement letters = writer_.remove_letters(batch.redelivered);
    return connection.query(letters.sql, letters.params).status();
}

// False: the owner's table refuses it, and nothing of it stands. Appends the ids that it returns.
Result<bool> PostgresRecorder::owner_takes(Connection& connection, const Statement& statement,
                                           std::unordered_set<std::string>* ids) {
    Status status = connection.execute("SAVEPOINT outbox_owner");
    if (!status.ok()) return status;
    const Result<Rows> rows = connection.query(statement.sql, statement.params);
    if (!rows.ok()) {
        if (!may_concern_rows(connection.handle(), rows.error())) return rows.status();
        status = connection.execute("ROLLBACK TO SAVEPOINT outbox_owner");
        if (!status.ok()) return status;
        if (!rows_are_to_blame(connection, rows.error(), statement.sql, statement.params)) {
            return rows.status();
        }
        refusal_ = words_of(rows.error());
        return false;
    }
    if (ids != nullptr) take_ended(*rows, *ids);
    status = connection.execute("RELEASE SAVEPOINT outbox_owner");
    if (!status.ok()) return status;
    return true;
}

// Of a table without positions: rows that every route has finished get their mark, others are
// written down for the route.
Status PostgresRecorder::end_rows(Connection& connection, const spi::RecordBatch& batch,
                                  bool careful) {
    std::vector<std::string> raw_ids;
    std::vector<Statement> statements;
    for (const spi::Finished& finished : batch.finished) {
        const std::string& route = route_name(finished.route);
        const std::vector<std::string> ids = keys_of(finished.positions).raw_ids;
        raw_ids.insert(raw_ids.end(), ids.begin(), ids.end());
        if (routes_.size() > 1) {
            statements.push_back(
                {"INSERT INTO " + table_.side +
                     "outbox_route_done (source, event_id, route, passed) SELECT $1, " +
                     done_id(table_, "id") +
                     ", $2, id = ANY($4::text[]) FROM unnest($3::text[]) AS id "
                     "ON CONFLICT DO NOTHING",
                 Params()
                     .text(table_.source)
                     .text(route)
                     .texts(ids)
                     .texts(keys_of(finished.passed).raw_ids)});
        }
        if (!has_dead_) continue;
        // A dead row that its owner set back and that is published now has no dead letter any more.
        std::unordered_set<std::string> dead_now;
        for (const spi::DeadLetter& dead : batch.dead) {
            if (dead.route == route && !dead.event.empty()) {
                dead_now.emplace(dead.event.events().front().id);
            }
        }
        std::vector<std::string> published;
        for (const std::string& raw_id : ids) {
            std::string id = event_id_of(raw_id);
            if (!dead_now.contains(id)) published.push_back(std::move(id));
        }
        statements.push_back({"DELETE FROM " + table_.side +
                                  "outbox_dead_letters WHERE source = $1 AND route = $2 "
                                  "AND id = ANY($3::text[])",
                              Params().text(table_.source).text(route).texts(published)});
    }
    if (raw_ids.empty()) return {};
    if (Status status = connection.run_pipeline(statements); !status.ok()) return status;
    if (routes_.size() > 1) {
        auto complete = finished_by_all(connection, std::move(raw_ids));
        if (!complete.ok()) return complete.status();
        raw_ids = std::move(*complete);
    }
    return mark(connection, std::move(raw_ids), careful).status();
}

Result<std::vector<std::string>> PostgresRecorder::finished_by_all(
    Connection& connection, std::vector<std::string> raw_ids) {
    Result<Rows> rows = connection.query(
        // Looked up for each: as a join it is planned to read all that is done.
        "SELECT r.id FROM unnest($2::text[]) AS r(id) WHERE (SELECT count(*) FROM " + table_.side +
            "outbox_route_done d WHERE d.source = $1 AND d.event_id = " + done_id(table_, "r.id") +
            " AND d.route = ANY($3::text[])) = cardinality($3::text[])",
        Params().text(table_.source).texts(raw_ids).texts(routes_));
    if (!rows.ok()) return rows.status();
    std::vector<std::string> complete;
    for (int row = 0; row < rows->size(); ++row) complete.push_back(rows->string(row, 0));
    return complete;
}

// Writes the end of rows that every route has finished; how many got it. Those that somebody holds
// or that the owner's table refuses to change (`careful`) are owed it, which is written down, and
// keeps them from being read again.
Result<std::size_t> PostgresRecorder::mark(Connection& connection, std::vector<std::string> raw_ids,
                                           bool careful) {
    if (raw_ids.empty()) return std::size_t{0};
    std::unordered_set<std::string> dead_ids;
    if (has_dead_) {
        std::vector<std::string> ids;
        for (const std::string& raw_id : raw_ids) ids.push_back(event_id_of(raw_id));
        Result<Rows> rows =
            connection.query("SELECT id FROM " + table_.side +
                                 "outbox_dead_letters WHERE source = $1 AND id = ANY($2::text[])",
                             Params().text(table_.source).texts(ids));
        if (!rows.ok()) return rows.status();
        for (int row = 0; row < rows->size(); ++row) dead_ids.insert(rows->string(row, 0));
    }
    const auto first_dead = std::partition(
        raw_ids.begin(), raw_ids.end(),
        [&](const std::string& raw_id) { return !dead_ids.contains(event_id_of(raw_id)); });
    std::unordered_set<std::string> marked;
    Status status = mark_as(connection, {raw_ids.begin(), first_dead}, &TableWriter::published,
                            careful, marked);
    if (status.ok()) {
        status =
            mark_as(connection, {first_dead, raw_ids.end()}, &TableWriter::dead, careful, marked);
    }
    if (!status.ok()) return status;
    if (routes_.size() <= 1 && !careful && marked.size() == raw_ids.size()) return marked.size();
    std::vector<Statement> statements;
    statements.push_back(
        {"DELETE FROM " + table_.side +
             "outbox_route_done WHERE source = $1 AND event_id = ANY(ARRAY(SELECT " +
             done_id(table_, "id") + " FROM unnest($2::text[]) AS id))",
         Params().text(table_.source).texts(raw_ids)});
    std::erase_if(raw_ids, [&](const std::string& raw_id) { return marked.contains(raw_id); });
    if (!raw_ids.empty()) statements.push_back(writer_.owed(raw_ids));
    status = connection.run_pipeline(statements);
    if (!status.ok()) return status;
    if (!raw_ids.empty() && refusal_.empty()) {
        // Nobody holds them, and nobody has ended or removed them.
        const Statement kept = writer_.unfinished(raw_ids);
        const Result<Rows> rows = connection.query(kept.sql, kept.params);
        if (!rows.ok()) return rows.status();
        if (!rows->empty()) refusal_ = kKeptSilently;
    }
    return marked.size();
}

Status PostgresRecorder::mark_as(Connection& connection, std::vector<std::string> raw_ids,
                                 Ending ending, bool careful,
                                 std::unordered_set<std::string>& marked) {
    if (raw_ids.empty()) return {};
    if (!careful) {
        const Statement statement = (writer_.*ending)(raw_ids, false);
        const Result<Rows> rows = connection.query(statement.sql, statement.params);
        if (!rows.ok()) return rows.status();
        take_ended(*rows, marked);
        return {};
    }
    return in_halves(
        std::span<const std::string>(raw_ids),
        [&](std::span<const std::string> part) {
            const std::vector<std::string> ids(part.begin(), part.end());
            return owner_takes(connection, (writer_.*ending)(ids, true), &marked);
        },
        [](const std::string& /*owed*/) {});
}

}  // namespace outbox::postgres
