#include "sources/sqlite/recorder.h"

#include "core/utf8.h"

namespace outbox::sqlite {
namespace {

constexpr std::size_t kMaxErrorBytes = 2'000;

std::string ranges_json(const std::vector<spi::PositionRange>& ranges) {
    std::string json = "[";
    for (const spi::PositionRange& range : ranges) {
        if (json.size() > 1) json += ',';
        json += '[' + std::to_string(range.first) + ',' + std::to_string(range.last) + ']';
    }
    return json + "]";
}

// Nothing but published rows, which may go whoever holds the lease.
bool only_published(const spi::RecordBatch& batch) {
    return batch.dead_positions.empty() && batch.checkpoints.empty() && batch.failed.empty() &&
           batch.dead.empty() && batch.redelivered.empty() && batch.failed_again.empty();
}

}  // namespace

SqliteRecorder::SqliteRecorder(const Table& table)
    : table_(table), session_(table.path, table.busy_timeout_ms) {}

template <typename Work>
Status SqliteRecorder::transact(Work work) {
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    Status status;
    {
        WriteTransaction transaction(**database);
        status = transaction.begin();
        if (status.ok()) status = work(**database);
        if (status.ok()) status = transaction.commit();
    }
    if (!status.ok() && status.error().code != ErrorCode::kLeaseLost) session_.drop();
    return status;
}

ErrorInfo SqliteRecorder::lease_lost(std::uint64_t epoch) const {
    return {ErrorCode::kLeaseLost, Advice::kStop, "",
            "another relay took the lease of " + table_.source + " after epoch " +
                std::to_string(epoch)};
}

Result<bool> SqliteRecorder::holds_lease(Database& database, std::uint64_t epoch) const {
    Statement row(database, "SELECT epoch FROM outbox_lease WHERE source = ?");
    row.bind(table_.source);
    const bool holds = row.step() && static_cast<std::uint64_t>(row.integer(0)) == epoch;
    if (Status status = row.status(); !status.ok()) return status;
    return holds;
}

Status SqliteRecorder::record(const spi::RecordBatch& batch) {
    if (batch.empty()) return {};
    return transact([&](Database& database) { return write_batch(database, batch); });
}

Status SqliteRecorder::write_batch(Database& database, const spi::RecordBatch& batch) const {
    const Result<bool> owner = holds_lease(database, batch.epoch);
    if (!owner.ok()) return owner.status();
    if (!*owner && !only_published(batch)) return lease_lost(batch.epoch);
    Status status = remove(database, batch, *owner);
    if (status.ok()) status = add_failed(database, batch.failed);
    if (status.ok()) status = add_dead(database, batch.dead);
    if (status.ok()) status = save_ledger(database, batch);
    if (status.ok()) status = settle_retries(database, batch);
    return status;
}

Status SqliteRecorder::remove(Database& database, const spi::RecordBatch& batch, bool owner) const {
    Statement row(database, "DELETE FROM " + table_.sql + " WHERE position = ?");
    Statement state(database, "DELETE FROM outbox_delivery WHERE position = ? AND source = ?");
    Statement failing(database, "SELECT 1 FROM outbox_delivery LIMIT 1");
    const bool forget = owner && failing.step();
    for (const auto* positions : {&batch.published, &batch.dead_positions}) {
        for (const spi::Position position : *positions) {
            Status status = row.bind(position).run();
            if (status.ok() && forget) status = state.bind(position).bind(table_.source).run();
            if (!status.ok()) return status;
        }
    }
    return failing.status();
}

Status SqliteRecorder::add_failed(Database& database,
                                  const std::vector<spi::Delivery>& failed) const {
    if (failed.empty()) return {};
    Statement upsert(
        database,
        "INSERT INTO outbox_delivery (source, route, event_id, position, key, attempts, "
        "next_attempt_at, error_code, last_error, first_failed_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, "
        "?, ?) ON CONFLICT (source, route, event_id) DO UPDATE SET position = excluded.position, "
        "attempts = excluded.attempts, next_attempt_at = excluded.next_attempt_at, "
        "error_code = excluded.error_code, last_error = excluded.last_error");
    for (const spi::Delivery& delivery : failed) {
        upsert.bind(table_.source).bind(delivery.route).bind(delivery.event_id);
        upsert.bind(delivery.position).bind(delivery.key);
        upsert.bind(static_cast<std::int64_t>(delivery.attempts)).bind(delivery.next_attempt_us);
        upsert.bind(delivery.error_code).bind(to_storable_text(delivery.error, kMaxErrorBytes));
        if (Status status = upsert.bind(now_us()).run(); !status.ok()) return status;
    }
    return {};
}

Status SqliteRecorder::add_dead(Database& database,
                                const std::vector<spi::DeadLetter>& dead) const {
    if (dead.empty()) return {};
    Statement insert(
        database,
        "INSERT INTO outbox_dead_letters (source, route, position, id, aggregate_type, "
        "aggregate_id, event_type, payload, headers, metadata, tenant_id, schema_id, "
        "schema_version, occurred_at, topic, key, routing_key, attempts, error_code, error, "
        "died_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) "
        "ON CONFLICT (source, route, id) DO UPDATE SET position = excluded.position, "
        "attempts = excluded.attempts, error_code = excluded.error_code, error = excluded.error, "
        "died_at = excluded.died_at, retry_requested_at = NULL");
    Statement forget(database,
                     "DELETE FROM outbox_delivery WHERE source = ? AND route = ? AND event_id = ?");
    for (const spi::DeadLetter& letter : dead) {
        if (letter.event.empty()) continue;
        const spi::EventView& event = letter.event.events().front();
        insert.bind(table_.source).bind(letter.route).bind(letter.position).bind(event.id);
        insert.bind(event.aggregate_type).bind(event.aggregate_id).bind(event.event_type);
        insert.bind_blob(event.payload).bind(event.headers).bind(event.metadata);
        insert.bind(event.tenant_id).bind(event.schema_id).bind(event.schema_version);
        insert.bind(event.occurred_at_us).bind(event.topic).bind(event.key);
        insert.bind(event.routing_key).bind(static_cast<std::int64_t>(letter.attempts));
        insert.bind(letter.error_code).bind(to_storable_text(letter.error, kMaxErrorBytes));
        Status status = insert.bind(now_us()).run();
        if (status.ok()) {
            status = forget.bind(table_.source).bind(letter.route).bind(event.id).run();
        }
        if (!status.ok()) return status;
    }
    return {};
}

Status SqliteRecorder::save_ledger(Database& database, const spi::RecordBatch& batch) const {
    if (batch.checkpoints.empty()) return {};
    Statement upsert(database,
                     "INSERT INTO outbox_ledger (source, route, ranges, epoch, updated_at) VALUES "
                     "(?, ?, ?, ?, ?) ON CONFLICT (source, route) DO UPDATE SET ranges = "
                     "excluded.ranges, epoch = excluded.epoch, updated_at = excluded.updated_at");
    for (const spi::Checkpoint& checkpoint : batch.checkpoints) {
        upsert.bind(table_.source).bind(checkpoint.route).bind(ranges_json(checkpoint.ranges));
        upsert.bind(static_cast<std::int64_t>(batch.epoch));
        if (Status status = upsert.bind(now_us()).run(); !status.ok()) return status;
    }
    return {};
}

Status SqliteRecorder::settle_retries(Database& database, const spi::RecordBatch& batch) const {
    Statement remove(database, "DELETE FROM outbox_dead_letters WHERE dead_id = ? AND source = ?");
    for (const std::int64_t dead_id : batch.redelivered) {
        if (Status status = remove.bind(dead_id).bind(table_.source).run(); !status.ok()) {
            return status;
        }
    }
    Statement update(database,
                     "UPDATE outbox_dead_letters SET attempts = ?, error_code = ?, error = ?, "
                     "died_at = ?, retry_requested_at = NULL WHERE dead_id = ? AND source = ?");
    for (const spi::Delivery& failed : batch.failed_again) {
        update.bind(static_cast<std::int64_t>(failed.attempts)).bind(failed.error_code);
        update.bind(to_storable_text(failed.error, kMaxErrorBytes)).bind(now_us());
        Status status = update.bind(failed.position).bind(table_.source).run();
        if (!status.ok()) return status;
    }
    return remove.status();
}

Result<std::size_t> SqliteRecorder::move_due(std::uint64_t epoch, std::size_t limit) {
    if (table_.name != "outbox_events") return std::size_t{0};
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    // A look first: an idle relay must not take the write lock.
    Statement due(**database, "SELECT 1 FROM outbox_scheduled WHERE available_at <= ? LIMIT 1");
    due.bind(now_us());
    const bool any = due.step();
    if (Status status = due.status(); !status.ok()) return status;
    due.reset();
    if (!any) return std::size_t{0};
    std::size_t moved = 0;
    Status status = transact([&](Database& writer) -> Status {
        const Result<bool> owner = holds_lease(writer, epoch);
        if (!owner.ok()) return owner.status();
        if (!*owner) return lease_lost(epoch);
        const Result<std::size_t> count = move_rows(writer, limit);
        if (count.ok()) moved = *count;
        return count.status();
    });
    if (!status.ok()) return status;
    return moved;
}

Result<std::size_t> SqliteRecorder::move_rows(Database& database, std::size_t limit) const {
    const std::string columns =
        "id, aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id, "
        "schema_version, occurred_at, topic, key, routing_key";
    const std::string due =
        " FROM outbox_scheduled WHERE available_at <= ?1 ORDER BY available_at, schedule_id "
        "LIMIT ?2";
    const std::int64_t now = now_us();
    const auto rows = static_cast<std::int64_t>(limit);
    Statement insert(database,
                     "INSERT INTO " + table_.sql + " (" + columns + ") SELECT " + columns + due);
    Status status = insert.bind(now).bind(rows).run();
    if (!status.ok()) return status;
    const auto moved = static_cast<std::size_t>(database.changes());
    Statement remove(database,
                     "DELETE FROM outbox_scheduled WHERE schedule_id IN (SELECT "
                     "schedule_id" +
                         due + ")");
    status = remove.bind(now).bind(rows).run();
    if (!status.ok()) return status;
    return moved;
}

// Published rows are deleted at once.
Result<std::size_t> SqliteRecorder::prune(std::chrono::seconds, std::size_t) {
    return std::size_t{0};
}

Result<std::int64_t> SqliteRecorder::prunable(std::chrono::seconds) {
    return std::int64_t{0};
}

Status SqliteRecorder::save_figures(std::uint64_t epoch,
                                    std::span<const spi::RouteFigures> figures) {
    if (figures.empty()) return {};
    return transact([&](Database& database) -> Status {
        const Result<bool> owner = holds_lease(database, epoch);
        if (!owner.ok()) return owner.status();
        if (!*owner) return lease_lost(epoch);
        Statement upsert(
            database,
            "INSERT INTO outbox_route_stats AS s (source, route, published_total, dead_total, "
            "circuit, last_error, rate_per_s, updated_at) VALUES (?, ?, ?, ?, ?, nullif(?, ''), ?, "
            "?) ON CONFLICT (source, route) DO UPDATE SET published_total = s.published_total + "
            "excluded.published_total, dead_total = s.dead_total + excluded.dead_total, circuit = "
            "excluded.circuit, last_error = coalesce(excluded.last_error, s.last_error), "
            "rate_per_s = excluded.rate_per_s, updated_at = excluded.updated_at");
        for (const spi::RouteFigures& figure : figures) {
            upsert.bind(table_.source).bind(figure.route);
            upsert.bind(static_cast<std::int64_t>(figure.published));
            upsert.bind(static_cast<std::int64_t>(figure.dead)).bind(figure.circuit);
            upsert.bind(to_storable_text(figure.last_error, kMaxErrorBytes))
                .bind(figure.rate_per_s);
            if (Status status = upsert.bind(now_us()).run(); !status.ok()) return status;
        }
        return {};
    });
}

}  // namespace outbox::sqlite
