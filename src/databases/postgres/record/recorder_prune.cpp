// Rows of the owner's that are published, marked and old enough to go.
#include <span>

#include "databases/postgres/errors.h"
#include "databases/postgres/record/halves.h"
#include "databases/postgres/record/recorder.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kMaxKept = 100'000;  // that are remembered
constexpr std::chrono::seconds kLookFor{15};

}  // namespace

Result<std::size_t> PostgresRecorder::prune(std::chrono::seconds retention, std::size_t limit) {
    if (segments_) {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        auto removed = segments_->turn(**connection, retention);
        if (!removed.ok()) session_.drop();
        return removed;
    }
    const std::string sql = writer_.prune_sql();
    if (sql.empty()) return std::size_t{0};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    std::size_t removed = 0;
    if (kept_.empty()) {
        Result<Rows> rows =
            (*connection)
                ->query(
                    sql,
                    Params().integer(retention.count()).integer(static_cast<std::int64_t>(limit)));
        if (!rows.ok() && !may_concern_rows((*connection)->handle(), rows.error())) {
            return rows.status();
        }
        if (!rows.ok()) kept_for_ = rows.error();
        if (rows.ok()) removed = static_cast<std::size_t>(rows->affected());
        if (removed == limit) return removed;
    }
    Status status = (*connection)->execute("BEGIN; SET CONSTRAINTS ALL IMMEDIATE");
    if (status.ok()) status = prune_free(**connection, retention, limit - removed, removed);
    if (status.ok()) status = (*connection)->execute("COMMIT");
    if (!status.ok()) {
        session_.drop();
        return status;
    }
    if (removed > 0 || kept_.empty()) return removed;
    return kept_for_;
}

// Passes over rows that the table keeps, and over those that somebody holds; the next look goes on
// where this one has no more time.
Status PostgresRecorder::prune_free(Connection& connection, std::chrono::seconds retention,
                                    std::size_t limit, std::size_t& removed) {
    const Result<Rows> may = connection.query(
        "SELECT has_table_privilege($1, 'UPDATE'), has_table_privilege($1, 'DELETE'), "
        "quote_ident(current_user)",
        Params().text(table_.sql));
    if (!may.ok()) return may.status();
    const bool free_only = may->boolean(0, 0);
    // No row would say so where none is old enough.
    if (!may->boolean(0, 1)) {
        const std::string user = may->string(0, 2);
        return {ErrorCode::kNoRights, Advice::kStop,
                "user " + user + " may not remove rows of " + table_.source + ": GRANT DELETE ON " +
                    table_.sql + " TO " + user,
                "42501"};
    }
    std::unordered_set<std::string> gone;
    const auto until = Clock::now() + kLookFor;
    while (gone.size() < limit && Clock::now() < until) {
        const Statement some = writer_.prunable(retention, limit - gone.size(), pruned_to_);
        const Result<Rows> rows = connection.query(some.sql, some.params);
        if (!rows.ok()) return rows.status();
        if (rows->empty()) {
            pruned_to_.reset();
            break;
        }
        std::vector<std::string> ids;
        for (int row = 0; row < rows->size(); ++row) {
            std::string id = rows->string(row, 0);
            if (!kept_.contains(id)) ids.push_back(std::move(id));
        }
        std::size_t tried = 0;  // the first of them
        const Status status = in_halves(
            std::span<const std::string>(ids),
            [&](std::span<const std::string> part) {
                auto taken = owner_takes(
                    connection, writer_.prune(retention, {part.begin(), part.end()}, free_only),
                    &gone);
                if (taken.ok() && *taken) tried += part.size();
                return taken;
            },
            [&](const std::string& id) {
                ++tried;
                if (kept_.size() < kMaxKept) kept_.insert(id);
                if (kept_for_.message.empty()) kept_for_.message = refusal_;
            });
        if (!status.ok()) return status;
        if (tried == ids.size()) {
            pruned_to_ = rows->string(rows->size() - 1, 0);
        } else if (tried > 0) {
            pruned_to_ = ids[tried - 1];
        }
    }
    removed += gone.size();
    return {};
}

Result<std::int64_t> PostgresRecorder::prunable(std::chrono::seconds retention) {
    if (segments_) {
        const Result<Connection*> connection = session_.get();
        if (!connection.ok()) return connection.status();
        return segments_->rows_due(**connection, retention);
    }
    const std::string sql = writer_.prunable_sql();
    if (sql.empty()) return std::int64_t{0};
    Result<Rows> rows = query(sql, Params().integer(retention.count()));
    if (!rows.ok()) return rows.status();
    return rows->integer(0, 0);
}

}  // namespace outbox::postgres
