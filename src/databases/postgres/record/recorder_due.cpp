// Delayed events whose time has come: from outbox_scheduled into the outbox table.
#include <utility>

#include "core/sql_text.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/record/recorder.h"
#include "databases/postgres/record/refusal.h"

namespace outbox::postgres {
namespace {

// To find the rows that the owner's table refuses.
constexpr int kMaxSingly = 64;
constexpr std::size_t kMaxRefusedDue = 1'000;  // by name
constexpr std::chrono::seconds kRefusedDueAgain{60};
constexpr std::chrono::seconds kNextRefusedDue{1};
constexpr const char* kLeftOut =
    "the outbox table takes rows without an error and does not have them; does a trigger of yours "
    "return NULL for them?";

// Those of a look that are due, oldest first. Parameters from $3 on.
constexpr const char* kDueOfLook =
    "available_at <= statement_timestamp() AND schedule_id <> ALL($3) AND (available_at, "
    "schedule_id) > ($4::timestamptz, $5) AND (available_at, schedule_id) <= ($6::timestamptz, $7)";

}  // namespace

std::string PostgresRecorder::move_due_sql(const Table& table) {
    const std::string columns =
        "id, aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id, "
        "schema_version, occurred_at, topic, key, routing_key";
    const std::string scheduled = quote_identifier(table.schema) + ".outbox_scheduled";
    return "WITH fence AS (SELECT FROM " + table.side +
           "outbox_lease WHERE source = $1 AND epoch = $2 FOR KEY SHARE), "
           "due AS (DELETE FROM " +
           scheduled + " s USING (SELECT available_at, schedule_id FROM " + scheduled + " WHERE " +
           kDueOfLook +
           " AND EXISTS (SELECT FROM fence) ORDER BY available_at, schedule_id LIMIT $8) d WHERE "
           "s.available_at = d.available_at "
           "AND s.schedule_id = d.schedule_id RETURNING s.*), moved AS (INSERT INTO " +
           table.sql + " (" + columns + ", available_at) SELECT " + columns +
           ", available_at FROM due ORDER BY available_at, schedule_id RETURNING 1) "
           "SELECT (SELECT count(*) FROM fence), (SELECT count(*) FROM due), (SELECT count(*) "
           "FROM moved)";
}

// Those that the outbox table refused are passed over, by name and, where they are many, up to a
// place. However many there are, the others go.
Result<std::size_t> PostgresRecorder::move_due(std::uint64_t epoch, std::size_t limit) {
    if (!table_.has_scheduled) return std::size_t{0};
    if (Clock::now() >= try_refused_due_) due_.except.clear();
    auto moved = move_of(due_, epoch, limit, [this](DuePlace place) {
        if (due_.except.empty()) try_refused_due_ = Clock::now() + kRefusedDueAgain;
        due_.except.push_back(place.schedule_id);
        if (due_.except.size() < kMaxRefusedDue) return;
        refused_before_ += due_.except.size();
        due_.except.clear();
        due_.after = place;
        refused_due_.until = std::move(place);
    });
    if (!moved.ok() || refused_before_ == 0) return moved;
    auto again = move_refused(epoch, limit);
    if (!again.ok()) return again;
    return *moved + *again;
}

// Those up to that place: some of them, and the next ones where they are taken by now.
Result<std::size_t> PostgresRecorder::move_refused(std::uint64_t epoch, std::size_t limit) {
    const auto now = Clock::now();
    if (now < next_refused_due_) return std::size_t{0};
    bool any_refused = false;
    const auto moved = move_of(refused_due_, epoch, limit, [&](DuePlace place) {
        refused_due_.after = std::move(place);
        any_refused = true;
        ++refused_again_;
    });
    if (!moved.ok()) return moved;
    refused_moved_ = refused_moved_ || *moved > 0;
    next_refused_due_ = now + (*moved > 0 ? std::chrono::seconds(0) : kNextRefusedDue);
    if (*moved > 0 || any_refused) return moved;
    // All have had their turn.
    refused_before_ = std::exchange(refused_again_, 0);
    refused_due_.after = {};
    if (refused_before_ == 0) due_.after = {};
    const bool others_go = std::exchange(refused_moved_, false);
    next_refused_due_ = now + (others_go ? kNextRefusedDue : kRefusedDueAgain);
    return moved;
}

Params PostgresRecorder::due_params(const DueLook& look, std::uint64_t epoch,
                                    std::size_t limit) const {
    Params params;
    params.text(table_.source).integer(static_cast<std::int64_t>(epoch)).integers(look.except);
    params.text(look.after.available_at).integer(look.after.schedule_id);
    params.text(look.until.available_at).integer(look.until.schedule_id);
    params.integer(static_cast<std::int64_t>(limit));
    return params;
}

// None: the outbox table refuses one of them, and nothing was moved. A row that a trigger left out
// would be lost: who lets it go elsewhere returns no NULL for a delayed one.
Result<std::optional<std::size_t>> PostgresRecorder::move_some(const DueLook& look,
                                                               std::uint64_t epoch,
                                                               std::size_t limit) {
    const Result<Connection*> session = session_.get();
    if (!session.ok()) return session.status();
    Connection& connection = **session;
    // What the owner checks at the end of a transaction is to be known before.
    Status status = connection.execute("BEGIN; SET CONSTRAINTS ALL IMMEDIATE");
    if (!status.ok()) return status;
    const Params params = due_params(look, epoch, limit);
    const Result<Rows> rows = connection.query(move_due_sql_, params);
    const bool all = rows.ok() && rows->integer(0, 1) == rows->integer(0, 2);
    status = connection.execute(all ? "COMMIT" : "ROLLBACK");
    if (!rows.ok()) {
        if (!status.ok() || !rows_are_to_blame(connection, rows.error(), move_due_sql_, params)) {
            return rows.status();
        }
        due_refusal_ = words_of(rows.error());
        return std::optional<std::size_t>();
    }
    if (!status.ok()) return status;
    if (rows->integer(0, 0) == 0) return fence_.lease_lost(epoch);
    if (all) return std::optional(static_cast<std::size_t>(rows->integer(0, 2)));
    due_refusal_ = kLeftOut;
    return std::optional<std::size_t>();
}

Result<std::size_t> PostgresRecorder::move_of(const DueLook& look, std::uint64_t epoch,
                                              std::size_t limit, const RefusesDue& refuses) {
    // Most looks find none, and cost one round trip.
    auto oldest = oldest_due(look);
    if (!oldest.ok()) return oldest.status();
    if (!*oldest) return std::size_t{0};
    auto moved = move_some(look, epoch, limit);
    if (!moved.ok()) return moved.status();
    if (*moved) return **moved;
    // A trigger or an index of the owner's refuses one of them: that one waits alone.
    std::size_t count = 0;
    for (int tries = 0; tries < kMaxSingly; ++tries) {
        oldest = oldest_due(look);
        if (!oldest.ok()) return oldest.status();
        if (!*oldest) break;
        // Only this one: an older one may be committed by now, and is not to blame.
        DuePlace place = **std::move(oldest);
        const DueLook only{.after = {place.available_at, place.schedule_id - 1}, .until = place};
        moved = move_some(only, epoch, 1);
        if (!moved.ok()) return moved.status();
        if (*moved) {
            count += **moved;
        } else {
            refuses(std::move(place));
        }
    }
    return count;
}

Result<std::optional<PostgresRecorder::DuePlace>> PostgresRecorder::oldest_due(
    const DueLook& look) {
    const Result<Rows> rows =
        query("SELECT available_at::text, schedule_id FROM " + quote_identifier(table_.schema) +
                  ".outbox_scheduled WHERE $1::text IS NOT NULL AND $2::bigint >= 0 AND " +
                  kDueOfLook + " ORDER BY available_at, schedule_id LIMIT $8",
              due_params(look, 0, 1));
    if (!rows.ok()) return rows.status();
    if (rows->empty()) return std::optional<DuePlace>();
    return std::optional(DuePlace{rows->string(0, 0), rows->integer(0, 1)});
}

}  // namespace outbox::postgres
