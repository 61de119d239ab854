#include "databases/postgres/record/recorder.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <map>
#include <utility>

#include "core/utf8.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/record/refusal.h"
#include "databases/postgres/source/check.h"
#include "databases/postgres/source/decode.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kMaxErrorBytes = 2000;
constexpr const char* kLockTimeout = "SET lock_timeout = '500ms'";
constexpr const char* kLogEnd = "outbox_log_end";

}  // namespace

PostgresRecorder::PostgresRecorder(const PostgresSourceConfig& config, const Table& table,
                                   Identity& identity,
                                   std::shared_ptr<relay::PositionMap> positions)
    : table_(table),
      identity_(identity),
      serves_all_(config.tenants.empty()),
      tenants_(" AND " + tenant_condition(table, config)),
      owners_(config.owners),
      move_due_sql_(move_due_sql(table)),
      writer_(table),
      positions_(std::move(positions)),
      ledger_(table_, identity_, tenant_condition(table, config), config.default_tenant),
      fence_(table),
      session_(
          config,
          [this](Connection& connection) {
              // A row that somebody holds delays itself alone.
              Status status = connection.execute(kLockTimeout);
              if (status.ok()) status = identity_.check(connection);
              if (status.ok()) {
                  status = connection.require_all_rows(all_rights_to(table_), table_.sql);
              }
              if (!status.ok()) return status;
              if (segments_) segments_->forget_writers();
              keeps_utf8_ = connection.keeps_utf8();
              can_write_ = false;
              return connection.prepare(kLogEnd, "SELECT pg_current_wal_insert_lsn()", {});
          },
          table.path) {
    if (table_.by_position) removals_.emplace(table_, identity_, ledger_, fence_);
    if (table_.keep) segments_.emplace(table_);
}

TableWriter::Keys PostgresRecorder::keys_of(std::span<const spi::Position> positions) const {
    if (positions_ != nullptr) return {{}, positions_->raw_ids(positions)};
    return {{positions.begin(), positions.end()}, {}};
}

// The words of a destination, as the database can keep them.
std::string PostgresRecorder::storable(std::string_view text) const {
    std::string out = to_storable_text(text, kMaxErrorBytes);
    if (keeps_utf8_) return out;
    for (char& c : out) {
        if (static_cast<unsigned char>(c) >= 0x80) c = '?';
    }
    return out;
}

std::string PostgresRecorder::event_id_of(const std::string& raw_id) const {
    return table_.uuid_id ? raw_id : event_id(table_.id_prefix(), raw_id);
}

// A position that was made up means nothing to the next process.
std::optional<spi::Position> PostgresRecorder::stable_position(spi::Position position) const {
    return positions_ == nullptr ? std::optional(position) : std::nullopt;
}

// To prepare a change takes the lock of one: who only looks (`outbox status`) waits for nobody.
Result<Connection*> PostgresRecorder::connection_to_write() {
    Result<Connection*> connection = session_.get();
    if (!connection.ok() || can_write_) return connection;
    Status status = ledger_.prepare(**connection);
    if (status.ok() && removals_) status = removals_->prepare(**connection);
    if (!status.ok()) {
        session_.drop();
        return status;
    }
    can_write_ = true;
    return connection;
}

Result<Rows> PostgresRecorder::query(const std::string& sql, const Params& params) {
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    return (*connection)->query(sql, params);
}

Result<spi::Beginning> PostgresRecorder::begin(std::uint64_t epoch,
                                               std::span<const spi::RouteName> routes) {
    const Result<Connection*> connection = connection_to_write();
    if (!connection.ok()) return connection.status();
    // Who cannot relay leaves the ledger as it is, for who relayed before. What else is wrong with
    // the tables shows in what follows.
    const Status rights = require_rights(**connection, table_);
    if (!rights.ok() && rights.error().code == ErrorCode::kNoRights) return rights;
    Status status = identity_.check_table(**connection);
    if (status.ok()) status = (*connection)->execute("BEGIN");
    if (!status.ok()) return status;
    auto beginning = ledger_.begin(**connection, routes);
    status = finish_beginning(**connection, epoch, beginning.status());
    if (!status.ok()) {
        session_.drop();
        return status;
    }
    routes_.clear();
    settled_.clear();
    for (std::size_t i = 0; i < routes.size(); ++i) {
        routes_.push_back(routes[i].name);
        settled_[routes[i].name] = beginning->routes[i].settled;
    }
    return beginning;
}

// Routes that are gone are those of the relay that leads by now, where the lease is another's.
Status PostgresRecorder::finish_beginning(Connection& connection, std::uint64_t epoch,
                                          const Status& begun) const {
    if (begun.ok()) return fence_.commit(connection, epoch, {});
    Status status = connection.execute("ROLLBACK");
    if (status.ok()) status = connection.execute("BEGIN");
    if (status.ok()) status = fence_.commit(connection, epoch, {});
    const bool lost = !status.ok() && status.error().code == ErrorCode::kLeaseLost;
    return lost ? status : begun;
}

Result<std::vector<std::string>> PostgresRecorder::destinations(
    std::span<const std::string> routes) {
    const Statement statement = ledger_.destinations();
    Result<Rows> rows = query(statement.sql, statement.params);
    if (!rows.ok()) return rows.status();
    std::map<std::string, std::string> known;
    for (int row = 0; row < rows->size(); ++row) {
        known.emplace(rows->string(row, 0), rows->string(row, 1));
        const auto saved = settled_.find(rows->text(row, 0));
        if (saved == settled_.end() || rows->integer(row, 3) >= saved->second) continue;
        // Somebody found a row there that is not finished: only a new term reads it.
        return ErrorInfo{ErrorCode::kServerChanged, Advice::kStop, "",
                         "route " + saved->first + " had settled all up to position " +
                             std::to_string(saved->second) + " of " + table_.sql +
                             ", and that was set back to " + std::to_string(rows->integer(row, 3)) +
                             ": a row stands there that is not finished, and is sent now"};
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
    const std::string error = storable(failed.error);
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
    const std::string error = storable(dead.error);
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
                           .text(storable(failed.error))});
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
    const Result<Connection*> connection = connection_to_write();
    if (!connection.ok()) return connection.status();
    Status status = learn_failing(**connection, batch.epoch);
    if (status.ok()) status = note_finished(**connection, batch);
    if (status.ok()) status = write(**connection, batch, false);
    if (!status.ok() && may_concern_rows((*connection)->handle(), status.error())) {
        status = (*connection)->execute("ROLLBACK");
        if (status.ok()) status = write(**connection, batch, true);
    }
    if (!status.ok()) {
        if (status.error().code != ErrorCode::kLeaseLost) session_.drop();
        return status;
    }
    for (const spi::Finished& finished : batch.finished) {
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

Result<spi::Removed> PostgresRecorder::remove(std::uint64_t epoch,
                                              std::span<const spi::Position> positions) {
    const Result<Connection*> connection = connection_to_write();
    if (!connection.ok()) return connection.status();
    auto removed = removals_->remove(**connection, epoch, positions);
    if (!removed.ok() && removed.error().code != ErrorCode::kLeaseLost) session_.drop();
    return removed;
}

Status PostgresRecorder::save_stats(std::uint64_t epoch, std::span<const spi::SavedStats> stats) {
    if (stats.empty()) return {};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    std::vector<Statement> statements;
    statements.push_back({"BEGIN", {}});
    for (const spi::SavedStats& one : stats) {
        const std::string error = storable(one.last_error);
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
                 .text(storable(one.path.reason))
                 .integer(one.last_error_at_us)});
        if (one.settled != one.settled_before) {
            statements.push_back(ledger_.settled(one.route, one.settled, one.settled_before));
        }
    }
    Status status = fence_.commit(**connection, epoch, std::move(statements));
    if (!status.ok() && status.error().code != ErrorCode::kLeaseLost) session_.drop();
    for (const spi::SavedStats& one : stats) {
        if (status.ok()) settled_[one.route] = one.settled;
    }
    return status;
}

}  // namespace outbox::postgres
