// Rows of the owner's that are published, marked and old enough to go.
#include <span>

#include "databases/postgres/errors.h"
#include "databases/postgres/record/halves.h"
#include "databases/postgres/record/recorder.h"

namespace outbox::postgres {
namespace {

constexpr std::size_t kMaxKept = 10'000;

}  // namespace

Result<std::size_t> PostgresRecorder::prune(std::chrono::seconds retention, std::size_t limit) {
    const std::string sql = writer_.prune_sql();
    if (sql.empty()) return std::size_t{0};
    const Result<Connection*> connection = session_.get();
    if (!connection.ok()) return connection.status();
    if (kept_.empty()) {
        Result<Rows> rows =
            (*connection)->query(sql, Params()
                                          .integer(retention.count())
                                          .text(table_.source)
                                          .integer(static_cast<std::int64_t>(limit)));
        if (!rows.ok() && !may_concern_rows((*connection)->handle(), rows.error())) {
            return rows.status();
        }
        if (!rows.ok()) kept_for_ = rows.error();
        if (rows.ok() && rows->affected() > 0) return static_cast<std::size_t>(rows->affected());
    }
    std::size_t removed = 0;
    Status status = (*connection)->execute("BEGIN; SET CONSTRAINTS ALL IMMEDIATE");
    if (status.ok()) status = prune_free(**connection, retention, limit, removed);
    if (status.ok()) status = (*connection)->execute("COMMIT");
    if (!status.ok()) {
        session_.drop();
        return status;
    }
    if (removed > 0 || kept_.empty()) return removed;
    return kept_for_;
}

// Passes over rows that the table keeps, and over those that somebody holds.
Status PostgresRecorder::prune_free(Connection& connection, std::chrono::seconds retention,
                                    std::size_t limit, std::size_t& removed) {
    const Result<Rows> may =
        connection.query("SELECT has_table_privilege($1, 'UPDATE')", Params().text(table_.sql));
    if (!may.ok()) return may.status();
    const bool free_only = may->boolean(0, 0);
    std::unordered_set<std::string> gone;
    std::unordered_set<std::string> passed = kept_;
    while (gone.size() < limit && passed.size() < kMaxKept) {
        const Statement some =
            writer_.prunable(retention, limit - gone.size(), {passed.begin(), passed.end()});
        const Result<Rows> rows = connection.query(some.sql, some.params);
        if (!rows.ok()) return rows.status();
        if (rows->empty()) break;
        std::vector<std::string> ids;
        for (int row = 0; row < rows->size(); ++row) ids.push_back(rows->string(row, 0));
        const Status status = in_halves(
            std::span<const std::string>(ids),
            [&](std::span<const std::string> part) {
                return owner_takes(connection,
                                   writer_.prune(retention, {part.begin(), part.end()}, free_only),
                                   &gone);
            },
            [&](const std::string& id) {
                kept_.insert(id);
                if (kept_for_.message.empty()) kept_for_.message = refusal_;
            });
        if (!status.ok()) return status;
        passed.insert(ids.begin(), ids.end());
    }
    removed = gone.size();
    return {};
}

Result<std::int64_t> PostgresRecorder::prunable(std::chrono::seconds retention) {
    const std::string sql = writer_.prunable_sql();
    if (sql.empty()) return std::int64_t{0};
    Result<Rows> rows = query(sql, Params().integer(retention.count()).text(table_.source));
    if (!rows.ok()) return rows.status();
    return rows->integer(0, 0);
}

}  // namespace outbox::postgres
