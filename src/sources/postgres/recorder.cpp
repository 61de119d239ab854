#include "sources/postgres/recorder.h"

#include <utility>

#include "sources/postgres/decode.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kMaxErrorBytes = 2000;
constexpr const char* kPublished = "outbox_published";
constexpr const char* kLogEnd = "outbox_log_end";

ErrorInfo lease_lost(const Table& table, std::uint64_t epoch) {
    return {ErrorCode::kLeaseLost,
            Advice::kStop,
            {},
            "another relay took the lease of " + table.source + " after epoch " +
                std::to_string(epoch)};
}

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

std::string multirange(const std::vector<spi::PositionRange>& ranges) {
    std::string out = "{";
    for (const spi::PositionRange& range : ranges) {
        if (out.size() > 1) out += ',';
        out += '[' + std::to_string(range.first) + ',' + std::to_string(range.last) + ']';
    }
    return out + '}';
}

std::string make_move_due_sql(const Table& table) {
    const std::string columns =
        "id, aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id, "
        "schema_version, occurred_at, topic, key, routing_key";
    const std::string scheduled = quote_identifier(table.schema) + ".outbox_scheduled";
    return "WITH fence AS (SELECT FROM " + table.side +
           "outbox_lease WHERE source = $1 AND epoch = $2 FOR SHARE), "
           "due AS (DELETE FROM " +
           scheduled + " s USING (SELECT available_at, schedule_id FROM " + scheduled +
           " WHERE available_at <= statement_timestamp() AND EXISTS (SELECT FROM fence) "
           "ORDER BY available_at, schedule_id LIMIT $3) d WHERE s.available_at = d.available_at "
           "AND s.schedule_id = d.schedule_id RETURNING s.*), moved AS (INSERT INTO " +
           table.sql + " (" + columns + ") SELECT " + columns +
           " FROM due ORDER BY available_at, schedule_id RETURNING 1) "
           "SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM moved)";
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
      session_(
          config,
          [this](Connection& connection) {
              if (removals_) {
                  removals_->forget_writers();
                  if (Status same = identity_.check(connection); !same.ok()) return same;
              }
              const Statement published = writer_.published({}, {});
              Status status = connection.prepare(kPublished, published.sql, published.params);
              if (!status.ok()) return status;
              return connection.prepare(kLogEnd, "SELECT pg_current_wal_insert_lsn()", {});
          },
          table.path) {
    if (table_.by_position) removals_.emplace(table_, identity_);
}

TableWriter::Keys PostgresRecorder::keys_of(std::span<const spi::Position> positions) const {
    if (positions_ != nullptr) return {{}, positions_->raw_ids(positions)};
    return {{positions.begin(), positions.end()}, {}};
}

std::string PostgresRecorder::event_id_of(const std::string& raw_id) const {
    return table_.uuid_id || looks_like_uuid(raw_id) ? raw_id : table_.id_prefix() + raw_id;
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

// A new owner takes over the failing events of the last one.
Status PostgresRecorder::learn_failing(Connection& connection, std::uint64_t epoch) {
    if (failing_epoch_ == epoch) return {};
    Result<Rows> rows = connection.query(
        "SELECT event_id, position FROM " + table_.side + "outbox_delivery WHERE source = $1",
        Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    for (int row = 0; row < rows->size(); ++row) {
        failing_ids_.insert(rows->string(row, 0));
        failing_positions_.insert(rows->integer(row, 1));
    }
    rows = connection.query(
        "SELECT EXISTS (SELECT FROM " + table_.side + "outbox_dead_letters WHERE source = $1)",
        Params().text(table_.source));
    if (!rows.ok()) return rows.status();
    has_dead_ = rows->boolean(0, 0);
    failing_epoch_ = epoch;
    return {};
}

// A dead row that its owner set back and that is published now has no dead letter any more.
void PostgresRecorder::forget_dead(const TableWriter::Keys& keys,
                                   std::vector<Statement>& out) const {
    if (!has_dead_ || keys.raw_ids.empty()) return;
    std::vector<std::string> ids;
    ids.reserve(keys.raw_ids.size());
    for (const std::string& raw_id : keys.raw_ids) ids.push_back(event_id_of(raw_id));
    out.push_back({"DELETE FROM " + table_.side +
                       "outbox_dead_letters WHERE source = $1 AND id = ANY($2::text[])",
                   Params().text(table_.source).texts(ids)});
}

void PostgresRecorder::forget_failing(const TableWriter::Keys& keys, std::vector<Statement>& out) {
    if (failing_ids_.empty()) return;
    std::vector<std::int64_t> positions;
    std::vector<std::string> ids;
    for (const spi::Position position : keys.positions) {
        if (failing_positions_.contains(position)) positions.push_back(position);
    }
    for (const std::string& raw_id : keys.raw_ids) {
        std::string id = event_id_of(raw_id);
        if (failing_ids_.contains(id)) ids.push_back(std::move(id));
    }
    if (!positions.empty()) {
        out.push_back({"DELETE FROM " + table_.side +
                           "outbox_delivery WHERE source = $1 AND position = ANY($2)",
                       Params().text(table_.source).integers(positions)});
    }
    if (!ids.empty()) {
        out.push_back({"DELETE FROM " + table_.side +
                           "outbox_delivery WHERE source = $1 AND event_id = ANY($2::text[])",
                       Params().text(table_.source).texts(ids)});
    }
}

void PostgresRecorder::add_failed(const spi::Delivery& failed, std::vector<Statement>& out) {
    const std::string error = clean_text(failed.error);
    Params params;
    params.text(table_.source).text(failed.route).text(failed.event_id);
    params.integer_or_null(stable_position(failed.position));
    params.text(failed.key).integer(failed.attempts).integer(failed.next_attempt_us);
    params.text(failed.error_code).text(error);
    out.push_back(
        {"INSERT INTO " + table_.side +
             "outbox_delivery (source, route, event_id, position, key, attempts, "
             "next_attempt_at, error_code, last_error) VALUES ($1, $2, $3, $4, $5, $6, "
             "timestamptz '1970-01-01 00:00:00+00' + $7 * interval '1 microsecond', $8, $9) "
             "ON CONFLICT (source, route, event_id) DO UPDATE SET position = excluded.position, "
             "attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at, "
             "error_code = excluded.error_code, last_error = excluded.last_error",
         std::move(params)});
    failing_ids_.insert(failed.event_id);
    failing_positions_.insert(failed.position);
    const spi::Position position = failed.position;
    auto owners = writer_.attempt(keys_of({&position, 1}), failed.attempts, failed.next_attempt_us,
                                  error, false);
    if (owners) out.push_back(std::move(*owners));
}

void PostgresRecorder::add_dead(const spi::DeadLetter& dead, std::vector<Statement>& out) {
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
    params.text_or_null(event.schema_version).integer(event.occurred_at_us);
    params.text_or_null(event.topic).text_or_null(event.key).text_or_null(event.routing_key);
    params.integer(dead.attempts).text(dead.error_code).text(error);
    out.push_back(
        {"INSERT INTO " + table_.side +
             "outbox_dead_letters (source, route, position, id, aggregate_type, "
             "aggregate_id, event_type, payload, headers, metadata, tenant_id, schema_id, "
             "schema_version, occurred_at, topic, key, routing_key, attempts, error_code, error) "
             "VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9::jsonb, $10::jsonb, $11, $12, $13, "
             "timestamptz '1970-01-01 00:00:00+00' + $14 * interval '1 microsecond', "
             "$15, $16, $17, $18, $19, $20) "
             "ON CONFLICT (source, route, id) DO UPDATE SET position = excluded.position, "
             "attempts = excluded.attempts, error_code = excluded.error_code, "
             "error = excluded.error, died_at = clock_timestamp(), retry_requested_at = NULL",
         std::move(params)});
    out.push_back({"DELETE FROM " + table_.side +
                       "outbox_delivery WHERE source = $1 AND route = $2 "
                       "AND event_id = $3",
                   Params().text(table_.source).text(dead.route).text(event.id)});
    const spi::Position position = dead.position;
    auto owners = writer_.attempt(keys_of({&position, 1}), dead.attempts, 0, error, true);
    if (owners) out.push_back(std::move(*owners));
}

void PostgresRecorder::add_retries(const spi::RecordBatch& batch,
                                   std::vector<Statement>& out) const {
    if (!batch.redelivered.empty()) out.push_back(writer_.redelivered(batch.redelivered));
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

Status PostgresRecorder::commit(Connection& connection, std::uint64_t epoch, bool fenced,
                                std::vector<Statement> statements,
                                std::vector<std::int64_t>* affected) {
    if (!fenced && statements.size() == 1) return connection.run_pipeline(statements, affected);
    if (fenced) {
        const std::vector<Statement> fence{
            {"BEGIN", {}},
            {"SELECT FROM " + table_.side +
                 "outbox_lease WHERE source = $1 AND epoch = $2 FOR SHARE",
             Params().text(table_.source).integer(static_cast<std::int64_t>(epoch))}};
        std::vector<std::int64_t> found;
        if (Status status = connection.run_pipeline(fence, &found); !status.ok()) return status;
        if (found.back() == 0) {
            if (Status status = connection.execute("ROLLBACK"); !status.ok()) return status;
            return lease_lost(table_, epoch);
        }
    } else {
        statements.insert(statements.begin(), Statement{"BEGIN", {}});
    }
    statements.push_back({"COMMIT", {}});
    Status status = connection.run_pipeline(statements, affected);
    if (affected != nullptr && !fenced && !affected->empty()) affected->erase(affected->begin());
    return status;
}

Result<std::size_t> PostgresRecorder::retry_removals() {
    if (!removals_) return std::size_t{0};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    Result<std::size_t> left = removals_->retry(**connection);
    if (!left.ok()) session_.drop();
    return left;
}

// For the day when the server turns out to have lost them.
Status PostgresRecorder::note_finished(Connection& connection,
                                       std::span<const spi::Position> positions) {
    if (!removals_) return {};
    const Result<Rows> rows = connection.query_prepared(kLogEnd, {});
    // They were published, whatever the answer.
    identity_.finished(positions, rows.ok() && !rows->empty()
                                      ? pgoutput::parse_lsn(rows->text(0, 0)).value_or(0)
                                      : identity_.log_end());
    if (!rows.ok()) session_.drop();
    return rows.status();
}

Status PostgresRecorder::record(const spi::RecordBatch& batch) {
    if (batch.empty()) return {};
    if (removals_ && removals_->full()) {
        if (const auto left = retry_removals(); !left.ok()) return left.status();
        if (removals_->full()) {
            return {ErrorCode::kQueryFailed, Advice::kRetryDestination,
                    "too many published rows are not visible yet, so that they cannot be removed; "
                    "does a commit wait for a standby that is away?"};
        }
    }
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    Status status = learn_failing(**connection, batch.epoch);
    if (!status.ok()) {
        session_.drop();
        return status;
    }
    std::vector<Statement> statements;
    if (!batch.published.empty()) {
        if (status = note_finished(**connection, batch.published); !status.ok()) return status;
        const TableWriter::Keys keys = keys_of(batch.published);
        statements.push_back(writer_.published(keys, identity_.life()));
        statements.back().prepared = kPublished;
        forget_failing(keys, statements);
        forget_dead(keys, statements);
    }
    bool fenced = statements.size() > 1;
    const std::size_t unfenced = statements.size();
    std::size_t dead_removal = 0;  // index of the statement
    for (const spi::Delivery& failed : batch.failed) add_failed(failed, statements);
    for (const spi::DeadLetter& dead : batch.dead) add_dead(dead, statements);
    if (!batch.dead_positions.empty()) {
        const TableWriter::Keys keys = keys_of(batch.dead_positions);
        dead_removal = statements.size();
        statements.push_back(writer_.dead(keys, identity_.life()));
        forget_failing(keys, statements);
    }
    for (const spi::Checkpoint& checkpoint : batch.checkpoints) {
        statements.push_back(
            {"INSERT INTO " + table_.side +
                 "outbox_ledger (source, route, ranges, epoch) VALUES ($1, $2, "
                 "$3::text::int8multirange, $4) ON CONFLICT (source, route) DO UPDATE SET "
                 "ranges = excluded.ranges, epoch = excluded.epoch, updated_at = clock_timestamp()",
             Params()
                 .text(table_.source)
                 .text(checkpoint.route)
                 .text(multirange(checkpoint.ranges))
                 .integer(static_cast<std::int64_t>(batch.epoch))});
    }
    add_retries(batch, statements);
    fenced = fenced || statements.size() > unfenced;
    std::vector<std::int64_t> affected;
    status = commit(**connection, batch.epoch, fenced, std::move(statements), &affected);
    if (!status.ok() && status.error().code != ErrorCode::kLeaseLost) session_.drop();
    if (status.ok() && removals_) {
        if (!batch.published.empty()) removals_->note(batch.published, affected.at(0));
        if (!batch.dead_positions.empty()) {
            removals_->note(batch.dead_positions, affected.at(dead_removal));
        }
    }
    if (status.ok() && positions_ != nullptr) {
        positions_->settle(batch.published);
        positions_->settle(batch.dead_positions);
    }
    return status;
}

Result<std::size_t> PostgresRecorder::move_due(std::uint64_t epoch, std::size_t limit) {
    if (!table_.has_scheduled) return std::size_t{0};
    Result<Rows> rows = query(move_due_sql_, Params()
                                                 .text(table_.source)
                                                 .integer(static_cast<std::int64_t>(epoch))
                                                 .integer(static_cast<std::int64_t>(limit)));
    if (!rows.ok()) return rows.status();
    if (rows->integer(0, 0) == 0) return lease_lost(table_, epoch);
    return static_cast<std::size_t>(rows->integer(0, 1));
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

Status PostgresRecorder::save_figures(std::uint64_t epoch,
                                      std::span<const spi::RouteFigures> figures) {
    if (figures.empty()) return {};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    std::vector<Statement> statements;
    for (const spi::RouteFigures& figure : figures) {
        const std::string error = clean_text(figure.last_error);
        statements.push_back(
            {"INSERT INTO " + table_.side +
                 "outbox_route_stats AS s (source, route, published_total, dead_total, "
                 "circuit, last_error, rate_per_s, path, path_reason) VALUES ($1, $2, $3, $4, $5, "
                 "nullif($6, ''), $7::text::double precision, $8, $9) ON CONFLICT (source, route) "
                 "DO "
                 "UPDATE SET "
                 "published_total = s.published_total + excluded.published_total, "
                 "dead_total = s.dead_total + excluded.dead_total, circuit = excluded.circuit, "
                 "last_error = coalesce(excluded.last_error, s.last_error), "
                 "rate_per_s = excluded.rate_per_s, path = excluded.path, "
                 "path_reason = excluded.path_reason, updated_at = clock_timestamp()",
             Params()
                 .text(table_.source)
                 .text(figure.route)
                 .integer(static_cast<std::int64_t>(figure.published))
                 .integer(static_cast<std::int64_t>(figure.dead))
                 .text(figure.circuit)
                 .text(error)
                 .text(std::to_string(figure.rate_per_s))
                 .text(figure.path.path)
                 .text(clean_text(figure.path.reason))});
    }
    Status status = commit(**connection, epoch, true, std::move(statements));
    if (!status.ok() && status.error().code != ErrorCode::kLeaseLost) session_.drop();
    return status;
}

}  // namespace outbox::postgres
