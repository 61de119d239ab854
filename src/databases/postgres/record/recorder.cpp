#include "databases/postgres/record/recorder.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/record/refusal.h"
#include "databases/postgres/source/decode.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kMaxErrorBytes = 2000;
constexpr const char* kLockTimeout = "SET lock_timeout = '500ms'";
// To find the rows that the owner's table refuses.
constexpr int kMaxParts = 64;
constexpr std::chrono::milliseconds kHalveFor{2'000};
constexpr std::size_t kMaxRefusedDue = 1'000;
constexpr std::chrono::seconds kRefusedDueAgain{60};
constexpr const char* kLogEnd = "outbox_log_end";

// Errors come from anywhere; a text column takes only UTF-8 without NUL.
std::string clean_text(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size() && out.size() < kMaxErrorBytes;) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const std::size_t size = byte < 0x80    ? 1
                                 : byte >= 0xF0 ? 4
                                 : byte >= 0xE0 ? 3
                                 : byte >= 0xC2 ? 2
                                                : 0;
        bool valid = size > 0 && byte != 0 && byte < 0xF5 && i + size <= text.size();
        for (std::size_t k = 1; valid && k < size; ++k) {
            valid = (static_cast<unsigned char>(text[i + k]) & 0xC0U) == 0x80U;
        }
        // Overlong forms, surrogates, beyond U+10FFFF.
        if (valid && size > 2) {
            const auto second = static_cast<unsigned char>(text[i + 1]);
            valid = !(byte == 0xE0 && second < 0xA0) && !(byte == 0xED && second > 0x9F) &&
                    !(byte == 0xF0 && second < 0x90) && !(byte == 0xF4 && second > 0x8F);
        }
        out += valid ? std::string(text.substr(i, size)) : "?";
        i += valid ? size : 1;
    }
    if (out.size() > kMaxErrorBytes) {
        out.resize(kMaxErrorBytes);
        while (!out.empty() && (static_cast<unsigned char>(out.back()) & 0xC0U) == 0x80U) {
            out.pop_back();
        }
        if (!out.empty() && static_cast<unsigned char>(out.back()) >= 0x80U) out.pop_back();
    }
    return out;
}

std::string make_move_due_sql(const Table& table) {
    const std::string columns =
        "id, aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id, "
        "schema_version, occurred_at, topic, key, routing_key";
    const std::string scheduled = quote_identifier(table.schema) + ".outbox_scheduled";
    return "WITH fence AS (SELECT FROM " + table.side +
           "outbox_lease WHERE source = $1 AND epoch = $2 FOR KEY SHARE), "
           "due AS (DELETE FROM " +
           scheduled + " s USING (SELECT available_at, schedule_id FROM " + scheduled +
           " WHERE available_at <= statement_timestamp() AND EXISTS (SELECT FROM fence) "
           "AND schedule_id <> ALL($4) ORDER BY available_at, schedule_id LIMIT $3) d WHERE "
           "s.available_at = d.available_at "
           "AND s.schedule_id = d.schedule_id RETURNING s.*), moved AS (INSERT INTO " +
           table.sql + " (" + columns + ", available_at) SELECT " + columns +
           ", available_at FROM due ORDER BY available_at, schedule_id RETURNING 1) "
           "SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM moved)";
}

// A trigger may have kept the row as it was.
void take_ended(const Rows& rows, std::unordered_set<std::string>& ids) {
    for (int row = 0; row < rows.size(); ++row) {
        if (!rows.boolean(row, 1)) ids.insert(rows.string(row, 0));
    }
}

}  // namespace

PostgresRecorder::PostgresRecorder(const PostgresSourceConfig& config, const Table& table,
                                   Identity& identity,
                                   std::shared_ptr<sources::PositionMap> positions)
    : table_(table),
      identity_(identity),
      tenants_(" AND " + tenant_condition(table, config)),
      move_due_sql_(make_move_due_sql(table)),
      writer_(table),
      positions_(std::move(positions)),
      ledger_(table_, identity_, tenant_condition(table, config), config.default_tenant),
      fence_(table),
      session_(
          config,
          [this](Connection& connection) {
              if (removals_) {
                  if (Status same = identity_.check(connection); !same.ok()) return same;
              }
              // A row that somebody holds delays itself alone.
              Status status = connection.execute(kLockTimeout);
              if (status.ok()) status = ledger_.prepare(connection);
              if (status.ok() && removals_) status = removals_->prepare(connection);
              if (!status.ok()) return status;
              return connection.prepare(kLogEnd, "SELECT pg_current_wal_insert_lsn()", {});
          },
          table.path) {
    if (table_.by_position) removals_.emplace(table_, identity_, ledger_, fence_);
}

TableWriter::Keys PostgresRecorder::keys_of(std::span<const spi::Position> positions) const {
    if (positions_ != nullptr) return {{}, positions_->raw_ids(positions)};
    return {{positions.begin(), positions.end()}, {}};
}

std::string PostgresRecorder::event_id_of(const std::string& raw_id) const {
    return table_.uuid_id ? raw_id : event_id(table_.id_prefix(), raw_id);
}

// A position that was made up means nothing to the next process.
std::optional<spi::Position> PostgresRecorder::stable_position(spi::Position position) const {
    return positions_ == nullptr ? std::optional(position) : std::nullopt;
}

Result<Rows> PostgresRecorder::query(const std::string& sql, const Params& params) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    return (*connection)->query(sql, params);
}

Result<spi::Beginning> PostgresRecorder::begin(std::uint64_t epoch,
                                               std::span<const spi::RouteName> routes) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    Status status = identity_.check_table(**connection);
    if (status.ok()) status = (*connection)->execute("BEGIN");
    if (!status.ok()) return status;
    auto beginning = ledger_.begin(**connection, routes);
    status = beginning.ok() ? fence_.commit(**connection, epoch, {}) : beginning.status();
    if (!status.ok()) {
        session_.drop();
        return status;
    }
    routes_.clear();
    for (const spi::RouteName& route : routes) routes_.push_back(route.name);
    return beginning;
}

Result<std::vector<std::string>> PostgresRecorder::destinations(
    std::span<const std::string> routes) {
    const Statement statement = ledger_.destinations();
    Result<Rows> rows = query(statement.sql, statement.params);
    if (!rows.ok()) return rows.status();
    std::map<std::string, std::string> known;
    for (int row = 0; row < rows->size(); ++row) {
        known.emplace(rows->string(row, 0), rows->string(row, 1));
    }
    std::vector<std::string> out;
    for (const std::string& route : routes) out.push_back(known[route]);
    return out;
}

// A new owner takes over the failing events of the last one.
Status PostgresRecorder::learn_failing(Connection& connection, std::uint64_t epoch) {
    if (failing_epoch_ == epoch) return {};
    Result<Rows> rows = connection.query("SELECT route, event_id, position FROM " + table_.side +
                                             "outbox_delivery WHERE source = $1",
                                         Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    failing_.clear();
    for (int row = 0; row < rows->size(); ++row) {
        Failing& failing = failing_[rows->string(row, 0)];
        failing.ids.insert(rows->string(row, 1));
        failing.positions.insert(rows->integer(row, 2));
    }
    rows = connection.query(
        "SELECT EXISTS (SELECT FROM " + table_.side + "outbox_dead_letters WHERE source = $1)",
        Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    has_dead_ = rows->boolean(0, 0);
    failing_epoch_ = epoch;
    return {};
}

// What is finished fails no longer.
void PostgresRecorder::forget_failing(const spi::Finished& finished, const TableWriter::Keys& keys,
                                      std::vector<Statement>& out) {
    const std::string& route = route_name(finished.route);
    const auto found = failing_.find(route);
    if (found == failing_.end()) return;
    Failing& failing = found->second;
    std::vector<std::int64_t> positions;
    std::vector<std::string> ids;
    for (const spi::Position position : keys.positions) {
        if (failing.positions.contains(position)) positions.push_back(position);
    }
    for (const std::string& raw_id : keys.raw_ids) {
        std::string id = event_id_of(raw_id);
        if (failing.ids.contains(id)) ids.push_back(std::move(id));
    }
    if (!positions.empty()) {
        out.push_back({"DELETE FROM " + table_.side +
                           "outbox_delivery WHERE source = $1 AND route = $2 AND position "
                           "= ANY($3)",
                       Params().text(table_.source).text(route).integers(positions)});
    }
    if (!ids.empty()) {
        out.push_back({"DELETE FROM " + table_.side +
                           "outbox_delivery WHERE source = $1 AND route = $2 AND event_id "
                           "= ANY($3::text[])",
                       Params().text(table_.source).text(route).texts(ids)});
    }
}

void PostgresRecorder::add_failed(const spi::Delivery& failed, bool careful, Writing& out) {
    const std::string error = clean_text(failed.error);
    Params params;
    params.text(table_.source).text(failed.route).text(failed.event_id);
    params.integer_or_null(stable_position(failed.position));
    params.text(failed.key).integer(failed.attempts).integer(failed.next_attempt_us);
    params.text(failed.error_code).text(error);
    out.ours.push_back(
        {"INSERT INTO " + table_.side +
             "outbox_delivery (source, route, event_id, position, key, attempts, "
             "next_attempt_at, error_code, last_error) VALUES ($1, $2, $3, $4, $5, $6, "
             "timestamptz '1970-01-01 00:00:00+00' + $7 * interval '1 microsecond', $8, $9) "
             "ON CONFLICT (source, route, event_id) DO UPDATE SET position = excluded.position, "
             "attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at, "
             "error_code = excluded.error_code, last_error = excluded.last_error",
         std::move(params)});
    Failing& failing = failing_[failed.route];
    failing.ids.insert(failed.event_id);
    failing.positions.insert(failed.position);
    const spi::Position position = failed.position;
    auto owners = writer_.attempt(keys_of({&position, 1}), failed.attempts, failed.next_attempt_us,
                                  error, false, careful);
    if (owners) out.owners.push_back(std::move(*owners));
}

void PostgresRecorder::add_dead(const spi::DeadLetter& dead, bool careful, Writing& out) {
    if (dead.event.empty()) return;
    has_dead_ = true;
    const spi::EventView& event = dead.event.events().front();
    const std::string error = clean_text(dead.error);
    Params params;
    params.text(table_.source).text(dead.route);
    params.integer_or_null(stable_position(dead.position)).text(event.id);
    params.text_or_null(event.aggregate_type).text_or_null(event.aggregate_id);
    params.text_or_null(event.event_type).bytes_or_null(event.payload);
    params.text_or_null(event.headers).text_or_null(event.metadata);
    params.text_or_null(event.tenant_id).text_or_null(event.schema_id);
    params.text_or_null(event.schema_version);
    params.integer_or_null(event.occurred_at_us == 0 ? std::nullopt
                                                     : std::optional(event.occurred_at_us));
    params.text_or_null(event.topic).text_or_null(event.key).text_or_null(event.routing_key);
    params.integer(dead.attempts).text(dead.error_code).text(error);
    params.integer(dead.unmatched ? 1 : 0);
    out.ours.push_back(
        {"INSERT INTO " + table_.side +
             "outbox_dead_letters (source, route, position, id, aggregate_type, "
             "aggregate_id, event_type, payload, headers, metadata, tenant_id, schema_id, "
             "schema_version, occurred_at, topic, key, routing_key, attempts, error_code, error, "
             "unmatched) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, "
             "timestamptz '1970-01-01 00:00:00+00' + $14 * interval '1 microsecond', "
             "$15, $16, $17, $18, $19, $20, $21 = 1) "
             "ON CONFLICT (source, route, id, coalesce(position, 0)) DO UPDATE SET "
             "aggregate_type = excluded.aggregate_type, aggregate_id = excluded.aggregate_id, "
             "event_type = excluded.event_type, payload = excluded.payload, "
             "headers = excluded.headers, metadata = excluded.metadata, "
             "tenant_id = excluded.tenant_id, schema_id = excluded.schema_id, "
             "schema_version = excluded.schema_version, occurred_at = excluded.occurred_at, "
             "topic = excluded.topic, key = excluded.key, routing_key = excluded.routing_key, "
             "attempts = excluded.attempts, error_code = excluded.error_code, "
             "error = excluded.error, unmatched = excluded.unmatched, "
             "died_at = clock_timestamp(), retry_requested_at = NULL",
         std::move(params)});
    out.ours.push_back({"DELETE FROM " + table_.side +
                            "outbox_delivery WHERE source = $1 AND route = $2 "
                            "AND event_id = $3",
                        Params().text(table_.source).text(dead.route).text(event.id)});
    const spi::Position position = dead.position;
    auto owners = writer_.attempt(keys_of({&position, 1}), dead.attempts, 0, error, true, careful);
    if (owners) out.owners.push_back(std::move(*owners));
}

void PostgresRecorder::add_failed_again(const spi::RecordBatch& batch,
                                        std::vector<Statement>& out) const {
    for (const spi::Delivery& failed : batch.failed_again) {
        out.push_back({"UPDATE " + table_.side +
                           "outbox_dead_letters SET attempts = $3, error_code = $4, error = $5, "
                           "died_at = clock_timestamp(), retry_requested_at = NULL "
                           "WHERE source = $1 AND dead_id = $2",
                       Params()
                           .text(table_.source)
                           .integer(failed.position)
                           .integer(failed.attempts)
                           .text(failed.error_code)
                           .text(clean_text(failed.error))});
    }
}

// For the day when the server turns out to have lost them.
Status PostgresRecorder::note_finished(Connection& connection, const spi::RecordBatch& batch) {
    if (!removals_ || batch.finished.empty()) return {};
    const Result<Rows> rows = connection.query_prepared(kLogEnd, {});
    // They were published, whatever the answer.
    const pgoutput::Lsn log_end = rows.ok() && !rows->empty()
                                      ? pgoutput::parse_lsn(rows->text(0, 0)).value_or(0)
                                      : identity_.log_end();
    for (const spi::Finished& finished : batch.finished) {
        identity_.finished(finished.positions, log_end);
    }
    return rows.status();
}

Status PostgresRecorder::record(const spi::RecordBatch& batch) {
    if (batch.empty()) return {};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    Status status = learn_failing(**connection, batch.epoch);
    if (status.ok()) status = note_finished(**connection, batch);
    if (status.ok()) status = write(**connection, batch, false);
    if (!status.ok() && concerns_rows(status.error())) {
        status = (*connection)->execute("ROLLBACK");
        if (status.ok()) status = write(**connection, batch, true);
    }
    if (!status.ok()) {
        if (status.error().code != ErrorCode::kLeaseLost) session_.drop();
        return status;
    }
    for (const spi::Finished& finished : batch.finished) {
        if (positions_ != nullptr) positions_->settle(finished.positions);
        const auto failing = failing_.find(route_name(finished.route));
        if (failing == failing_.end()) continue;
        for (const spi::Position position : finished.positions) {
            failing->second.positions.erase(position);
        }
        for (const std::string& raw_id : keys_of(finished.positions).raw_ids) {
            failing->second.ids.erase(event_id_of(raw_id));
        }
    }
    return status;
}

// One transaction. `careful`: rows of the owner's that somebody holds, or that it refuses to
// change, are passed over; what they are owed is written down.
Status PostgresRecorder::write(Connection& connection, const spi::RecordBatch& batch,
                               bool careful) {
    Writing writing;
    std::vector<Statement>& ours = writing.ours;
    ours.push_back({"BEGIN", {}});
    // What the owner checks at the end of a transaction is to be known before.
    if (careful) ours.push_back({"SET CONSTRAINTS ALL IMMEDIATE", {}});
    for (const spi::Delivery& failed : batch.failed) add_failed(failed, careful, writing);
    for (const spi::DeadLetter& dead : batch.dead) add_dead(dead, careful, writing);
    for (const spi::Finished& finished : batch.finished) {
        forget_failing(finished, keys_of(finished.positions), ours);
    }
    if (removals_) ledger_.add(routes_, batch.finished, ours);
    add_failed_again(batch, ours);
    for (const auto& [route, name] : batch.destinations) {
        ours.push_back(ledger_.destination(route_name(route), name));
    }
    if (!careful) {
        std::move(writing.owners.begin(), writing.owners.end(), std::back_inserter(ours));
        if (!batch.redelivered.empty()) ours.push_back(writer_.redelivered(batch.redelivered));
        if (removals_) return fence_.commit(connection, batch.epoch, std::move(ours));
    }
    Status status = connection.run_pipeline(ours);
    if (status.ok() && careful) status = write_owners(connection, batch, writing.owners);
    // Ids may be those of other rows by now. They stay what they are until this has ended.
    if (status.ok() && !removals_) status = identity_.check_table(connection);
    if (status.ok() && !removals_) status = end_rows(connection, batch, careful);
    return status.ok() ? fence_.commit(connection, batch.epoch, {}) : status;
}

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
        if (!concerns_rows(rows.error())) return rows.status();
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

// Where the owner's table refuses some it is halved, and halved again, until those are alone.
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
    const auto until = Clock::now() + kHalveFor;
    std::deque<std::vector<std::string>> parts;
    parts.push_back(std::move(raw_ids));
    for (int tries = 0; !parts.empty() && tries < kMaxParts && Clock::now() < until; ++tries) {
        const std::vector<std::string> part = std::move(parts.front());
        parts.pop_front();
        const auto taken = owner_takes(connection, (writer_.*ending)(part, true), &marked);
        if (!taken.ok()) return taken.status();
        if (*taken || part.size() == 1) continue;
        const auto middle = part.begin() + static_cast<std::ptrdiff_t>(part.size() / 2);
        parts.emplace_back(part.begin(), middle);
        parts.emplace_back(middle, part.end());
    }
    return {};
}

Result<spi::Removed> PostgresRecorder::remove(std::uint64_t epoch,
                                              std::span<const spi::Position> positions) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    auto removed = removals_->remove(**connection, epoch, positions);
    if (!removed.ok() && removed.error().code != ErrorCode::kLeaseLost) session_.drop();
    return removed;
}

Result<std::size_t> PostgresRecorder::move_due(std::uint64_t epoch, std::size_t limit) {
    if (!table_.has_scheduled) return std::size_t{0};
    if (Clock::now() >= try_refused_due_) refused_due_.clear();
    auto moved = move_some(epoch, limit);
    if (moved.ok() || !due_are_to_blame(moved.error(), epoch)) return moved;
    return move_singly(epoch);
}

Params PostgresRecorder::due_params(std::uint64_t epoch, std::size_t limit) const {
    return Params()
        .text(table_.source)
        .integer(static_cast<std::int64_t>(epoch))
        .integer(static_cast<std::int64_t>(limit))
        .integers(refused_due_);
}

bool PostgresRecorder::due_are_to_blame(const ErrorInfo& error, std::uint64_t epoch) {
    const Result<Connection*> connection = session_.get();
    return connection.ok() &&
           rows_are_to_blame(**connection, error, move_due_sql_, due_params(epoch, 1));
}

Result<std::size_t> PostgresRecorder::move_some(std::uint64_t epoch, std::size_t limit) {
    Result<Rows> rows = query(move_due_sql_, due_params(epoch, limit));
    if (!rows.ok()) return rows.status();
    if (rows->integer(0, 0) == 0) return fence_.lease_lost(epoch);
    return static_cast<std::size_t>(rows->integer(0, 1));
}

// The outbox table refuses one of them (a trigger, an index of the owner's): that one waits alone.
Result<std::size_t> PostgresRecorder::move_singly(std::uint64_t epoch) {
    std::size_t count = 0;
    for (int tries = 0; tries < kMaxParts; ++tries) {
        auto moved = move_some(epoch, 1);
        if (moved.ok()) {
            if (*moved == 0) break;
            ++count;
            continue;
        }
        if (refused_due_.size() >= kMaxRefusedDue || !due_are_to_blame(moved.error(), epoch)) {
            return moved;
        }
        refusal_ = words_of(moved.error());
        Result<Rows> oldest = query("SELECT schedule_id FROM " + quote_identifier(table_.schema) +
                                        ".outbox_scheduled WHERE available_at <= "
                                        "statement_timestamp() AND schedule_id <> ALL($1) ORDER "
                                        "BY available_at, schedule_id LIMIT 1",
                                    Params().integers(refused_due_));
        if (!oldest.ok()) return oldest.status();
        if (oldest->empty()) break;
        refused_due_.push_back(oldest->integer(0, 0));
        try_refused_due_ = Clock::now() + kRefusedDueAgain;
    }
    return count;
}

Result<std::size_t> PostgresRecorder::prune(std::chrono::seconds retention, std::size_t limit) {
    const std::string sql = writer_.prune_sql();
    if (sql.empty()) return std::size_t{0};
    Result<Rows> rows = query(sql, Params()
                                       .integer(retention.count())
                                       .text(table_.source)
                                       .integer(static_cast<std::int64_t>(limit)));
    if (!rows.ok()) return rows.status();
    return static_cast<std::size_t>(rows->affected());
}

Result<std::int64_t> PostgresRecorder::prunable(std::chrono::seconds retention) {
    const std::string sql = writer_.prunable_sql();
    if (sql.empty()) return std::int64_t{0};
    Result<Rows> rows = query(sql, Params().integer(retention.count()).text(table_.source));
    if (!rows.ok()) return rows.status();
    return rows->integer(0, 0);
}

Status PostgresRecorder::save_stats(std::uint64_t epoch, std::span<const spi::RouteStats> stats) {
    if (stats.empty()) return {};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    std::vector<Statement> statements;
    statements.push_back({"BEGIN", {}});
    for (const spi::RouteStats& one : stats) {
        const std::string error = clean_text(one.last_error);
        statements.push_back(
            {"INSERT INTO " + table_.side +
                 "outbox_route_stats AS s (source, route, published_total, dead_total, "
                 "circuit, last_error, rate_per_s, path, path_reason, last_error_at) VALUES ($1, "
                 "$2, "
                 "$3, $4, $5, nullif($6, ''), $7::text::double precision, $8, $9, "
                 "CASE WHEN $6 <> '' THEN to_timestamp($10 / 1e6) END) ON CONFLICT (source, route) "
                 "DO "
                 "UPDATE SET "
                 "published_total = s.published_total + excluded.published_total, "
                 "dead_total = s.dead_total + excluded.dead_total, circuit = excluded.circuit, "
                 "last_error = coalesce(excluded.last_error, s.last_error), "
                 "last_error_at = coalesce(excluded.last_error_at, s.last_error_at), "
                 "rate_per_s = excluded.rate_per_s, path = excluded.path, "
                 "path_reason = excluded.path_reason, updated_at = clock_timestamp()",
             Params()
                 .text(table_.source)
                 .text(one.route)
                 .integer(static_cast<std::int64_t>(one.published))
                 .integer(static_cast<std::int64_t>(one.dead))
                 .text(one.circuit)
                 .text(error)
                 .text(std::to_string(one.rate_per_s))
                 .text(one.path.path)
                 .text(clean_text(one.path.reason))
                 .integer(one.last_error_at_us)});
    }
    Status status = fence_.commit(**connection, epoch, std::move(statements));
    if (!status.ok() && status.error().code != ErrorCode::kLeaseLost) session_.drop();
    return status;
}

}  // namespace outbox::postgres
