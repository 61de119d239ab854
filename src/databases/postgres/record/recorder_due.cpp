// Delayed events whose time has come: from outbox_scheduled into the outbox table.
#include "core/sql_text.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/record/recorder.h"
#include "databases/postgres/record/refusal.h"

namespace outbox::postgres {
namespace {

// To find the rows that the owner's table refuses.
constexpr int kMaxSingly = 64;
constexpr std::size_t kMaxRefusedDue = 10'000;
constexpr std::chrono::seconds kRefusedDueAgain{60};

}  // namespace

std::string PostgresRecorder::move_due_sql(const Table& table) {
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
    for (int tries = 0; tries < kMaxSingly; ++tries) {
        auto moved = move_some(epoch, 1);
        if (moved.ok()) {
            if (*moved == 0) break;
            ++count;
            continue;
        }
        if (!due_are_to_blame(moved.error(), epoch)) return moved;
        if (refused_due_.size() >= kMaxRefusedDue) break;  // the oldest of these go first, later
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

}  // namespace outbox::postgres
