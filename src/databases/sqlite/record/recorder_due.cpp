// Delayed events whose time has come: from outbox_scheduled into the outbox table.
#include <algorithm>
#include <limits>

#include "databases/sqlite/record/recorder.h"

namespace outbox::sqlite {
namespace {

constexpr std::size_t kMaxRefusedDue = 1'000;
constexpr std::chrono::seconds kRefusedDueAgain{60};
constexpr const char* kDueColumns =
    "id, aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id, "
    "schema_version, occurred_at, topic, key, routing_key, available_at";

}  // namespace

// The oldest of the events that are due, but for those that the table refuses.
Result<std::vector<SqliteRecorder::Due>> SqliteRecorder::due_now(Database& database,
                                                                 std::size_t limit) const {
    constexpr std::int64_t kLowest = std::numeric_limits<std::int64_t>::min();
    const Due after = passed_due_.value_or(Due{kLowest, kLowest});
    Statement rows(database,
                   "SELECT available_at, schedule_id FROM outbox_scheduled WHERE available_at <= "
                   "?1 AND (available_at, schedule_id) > (?2, ?3) ORDER BY available_at, "
                   "schedule_id LIMIT ?4");
    rows.bind(now_us()).bind(after.available_at).bind(after.schedule_id);
    rows.bind(limit + refused_due_.size());
    std::vector<Due> due;
    while (rows.step() && due.size() < limit) {
        if (!refused_due_.contains(rows.integer(1))) {
            due.push_back({rows.integer(0), rows.integer(1)});
        }
    }
    if (Status status = rows.status(); !status.ok()) return status;
    return due;
}

void SqliteRecorder::refuse_due(const Due& due) {
    if (refused_due_.empty() && !passed_due_) {
        try_refused_due_ = std::chrono::steady_clock::now() + kRefusedDueAgain;
        due_refused_for_ = refusal_;
    }
    refused_due_.insert(due.schedule_id);
    if (refused_due_.size() < kMaxRefusedDue) return;
    passed_due_ = passed_due_ ? std::max(*passed_due_, due) : due;
    refused_due_.clear();
}

Result<std::size_t> SqliteRecorder::move_due(std::uint64_t epoch, std::size_t limit) {
    if (!table_.native || table_.name != "outbox_events") return std::size_t{0};
    const Result<Database*> database = session_.get();
    if (!database.ok()) return database.status();
    // A look first: an idle relay must not take the write lock.
    const auto due = due_now(**database, limit);
    if (!due.ok()) return due.status();
    std::vector<bool> taken(due->size());
    const auto tried =
        in_turn(due->size(), [&](Database& writer, std::size_t& at, std::size_t to) -> Status {
            if (Status held = check_term(writer, epoch); !held.ok()) return held;
            const std::string columns = kDueColumns;
            const std::string row = " FROM outbox_scheduled WHERE schedule_id = ?1";
            Statement insert(
                writer, "INSERT INTO " + table_.sql + " (" + columns + ") SELECT " + columns + row);
            Statement remove(writer, "DELETE" + row);
            Statement there(writer, "SELECT 1" + row);
            for (; at < to; ++at) {
                const std::int64_t id = (*due)[at].schedule_id;
                taken[at] = !there.bind(id).step();  // somebody has called it off
                if (Status status = there.status(); !status.ok()) return status;
                there.reset();
                if (taken[at]) continue;
                const Result<bool> moved =
                    owner_takes(writer, insert.bind(id), std::to_string(id), false);
                if (!moved.ok()) return moved.status();
                taken[at] = *moved;
                if (!*moved) continue;
                if (Status status = remove.bind(id).run(); !status.ok()) return status;
            }
            return {};
        });
    if (!tried.ok()) return tried.status();
    std::size_t moved = 0;
    for (std::size_t at = 0; at < *tried; ++at) {
        if (taken[at]) {
            ++moved;
        } else {
            refuse_due((*due)[at]);
        }
    }
    // Those that were refused are tried again when all have been tried.
    if (*tried < limit && *tried == due->size() &&
        std::chrono::steady_clock::now() >= try_refused_due_) {
        if (refused_due_.empty() && !passed_due_) due_refused_for_.clear();
        refused_due_.clear();
        passed_due_.reset();
    }
    return moved;
}

}  // namespace outbox::sqlite
