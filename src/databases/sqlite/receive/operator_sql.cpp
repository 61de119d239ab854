#include "databases/sqlite/receive/operator_sql.h"

#include <utility>

#include <outbox/adapters/sqlite_fence.h>

#include "consumer/janitor.h"
#include "databases/sqlite/receive/transaction.h"

namespace outbox::consumer {
namespace {

constexpr const char* kReading = "reading the consumer's tables";
constexpr std::int64_t kPruneRows = 10'000;
constexpr std::int64_t kMicroseconds = 1'000'000;
constexpr std::int64_t kAuditedIds = 1'000;  // of one action

// From before that a message may be forgotten, of $1, the time, and $2, the retention in seconds.
// As the SQL function inbox_prune of PostgreSQL, where it is explained; here the newest is one
// look.
constexpr const char* kTooOld =
    "min($1 + 0, (SELECT max(message_time) FROM outbox_inbox WHERE message_time < $1 + "
    "86400000000), coalesce((SELECT min(received_at) FROM outbox_mailbox), $1 + 0)) "
    "- $2 * 1000000";

class SqliteSql final : public Sql {
  public:
    static Result<std::unique_ptr<Sql>> open(const std::string& path, int busy_timeout_s,
                                             const core::Clock& clock) {
        auto opened = sqlite::Database::open(path, busy_timeout_s * 1000, sqlite::Role::kReceive);
        if (!opened.ok()) return opened.status();
        if (Status status = (*opened)->execute(sqlite::kDurable); !status.ok()) return status;
        auto sql = std::unique_ptr<SqliteSql>(new SqliteSql(std::move(*opened), clock));
        return std::unique_ptr<Sql>(std::move(sql));
    }

    Result<Rows> run(const std::string& sql, const std::vector<std::string>& parameters,
                     std::int64_t* changed) override {
        try {
            sqlite::Statement use = callers_statement(database_->handle(), sql, kReading);
            for (const std::string& parameter : parameters) use.lend(parameter);
            Rows rows;
            while (use.step()) rows.push_back(cells_of(use));
            if (changed != nullptr) *changed = database_->changes();
            return rows;
        } catch (const Error& error) {
            return error.info();
        }
    }
    Result<std::int64_t> change_letters(const std::string& change, Where where,
                                        const Audit& audit) override {
        Status status = run("BEGIN IMMEDIATE", {}, nullptr).status();
        if (!status.ok()) return status;
        auto count = change_audited(change, where, audit);
        status = run(count.ok() ? "COMMIT" : "ROLLBACK", {}, nullptr).status();
        if (count.ok() && !status.ok()) return status;
        return count;
    }
    Result<FenceLook> look_for(const std::string& consumer, const std::string& token) override {
        try {
            return outbox::look_for(database_->handle(), consumer, token);
        } catch (const Error& error) {
            return error.info();
        }
    }
    [[nodiscard]] std::string microseconds(const std::string& column) const override {
        return "max(" + column + ", 0)";
    }
    [[nodiscard]] std::string now() const override {
        return "CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)";
    }
    [[nodiscard]] std::string table_count(const std::string& table) const override {
        return "SELECT count(*) FROM sqlite_master WHERE name = '" + table + "'";
    }
    Result<bool> has_producer() override {
        // One that `migrate` makes, one that a relay does, and what operators do beside an adopted
        // table.
        const auto rows =
            run("SELECT count(*) FROM sqlite_master WHERE name IN ('outbox_events', "
                "'outbox_lease', 'outbox_replays', 'outbox_paused_tenants')",
                {}, nullptr);
        if (!rows.ok()) return rows.status();
        return number((*rows)[0][0]) > 0;
    }
    [[nodiscard]] std::string payload_hex() const override { return "hex(payload)"; }
    [[nodiscard]] std::string no_ids() const override { return "'[]'"; }
    [[nodiscard]] std::string header(const std::string& column,
                                     const std::string& name) const override {
        return "(CASE WHEN json_valid(" + column + ") THEN " + column + " ->> '" + name + "' END)";
    }

    Result<PrunedInbox> prune(std::int64_t retention_s, const std::string& consumer) override {
        if (retention_s < kLeastRetentionS) {
            return ErrorInfo{ErrorCode::kConfigInvalid,
                             Advice::kStop,
                             {},
                             "an inbox must be kept for at least two hours"};
        }
        const std::string rows = std::to_string(kPruneRows);
        const std::int64_t now_us = clock_.wall_us();
        const std::string now = std::to_string(now_us);
        PrunedInbox pruned;
        Status status = run("BEGIN IMMEDIATE", {}, nullptr).status();
        if (!status.ok()) return status;
        const std::string too_old = std::string("message_time > -9223372036854775807 AND ") +
                                    "message_time < " + kTooOld + " AND $3 IN ('', consumer) ";
        const std::vector<std::string> which{now, std::to_string(retention_s), consumer, rows};
        status = run("INSERT INTO outbox_inbox_floor (consumer, floor) "
                     "SELECT consumer, max(message_time) + 1 FROM ("
                     "  SELECT consumer, message_time FROM outbox_inbox WHERE " +
                         too_old +
                         "  ORDER BY message_time LIMIT $4) GROUP BY consumer "
                         "ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor "
                         "WHERE floor < excluded.floor",
                     which, nullptr)
                     .status();
        if (status.ok()) {
            status = run("DELETE FROM outbox_inbox WHERE (consumer, message_id) IN ("
                         "SELECT consumer, message_id FROM outbox_inbox "
                         "JOIN outbox_inbox_floor f USING (consumer) WHERE " +
                             too_old + "AND message_time < f.floor LIMIT $4)",
                         which, &pruned.messages)
                         .status();
        }
        if (status.ok()) {
            status = run("DELETE FROM outbox_idempotency WHERE rowid IN (SELECT rowid FROM "
                         "outbox_idempotency WHERE expires_at <= $1 + 0 "
                         "AND ((attempt = 1 AND (status IS NOT NULL OR lease_until IS NULL)) "
                         "  OR expires_at <= $1 - 604800000000) LIMIT $2)",
                         {now, rows}, &pruned.keys)
                         .status();
        }
        const std::string before = std::to_string(now_us - retention_s * kMicroseconds);
        std::int64_t steps = 0;
        if (status.ok() && consumer.empty()) {
            status = run("DELETE FROM outbox_saga WHERE rowid IN (SELECT rowid FROM outbox_saga "
                         "WHERE finished_at < $1 + 0 ORDER BY finished_at LIMIT $2)",
                         {before, rows}, &pruned.sagas)
                         .status();
        }
        if (status.ok() && consumer.empty()) {
            status = run("DELETE FROM outbox_saga_steps WHERE rowid IN (SELECT rowid FROM "
                         "outbox_saga_steps WHERE updated_at < $1 + 0 LIMIT $2)",
                         {before, rows}, &steps)
                         .status();
        }
        pruned.sagas += steps;
        const Status ended = run(status.ok() ? "COMMIT" : "ROLLBACK", {}, nullptr).status();
        if (!status.ok()) return status;
        if (!ended.ok()) return ended;
        return pruned;
    }

    Result<PrunedInbox> prunable(std::int64_t retention_s) override {
        const auto rows =
            run(std::string("SELECT (SELECT count(*) FROM outbox_inbox WHERE message_time > "
                            "-9223372036854775807 AND message_time < ") +
                    kTooOld +
                    "), "
                    "(SELECT count(*) FROM outbox_idempotency WHERE expires_at <= $1 + 0), "
                    "(SELECT count(*) FROM outbox_saga WHERE finished_at < $1 - $2 * 1000000) + "
                    "(SELECT count(*) FROM outbox_saga_steps WHERE updated_at < $1 - $2 * 1000000)",
                {std::to_string(clock_.wall_us()), std::to_string(retention_s)}, nullptr);
        if (!rows.ok()) return rows.status();
        return PrunedInbox{number((*rows)[0][0]), number((*rows)[0][1]), number((*rows)[0][2])};
    }

    Status read(const std::string& query,
                const std::function<Status(ConsumerOperations::Cells)>& take) override {
        if (Status status = run("PRAGMA query_only = true", {}, nullptr).status(); !status.ok()) {
            return status;
        }
        try {
            sqlite::Statement use = callers_statement(database_->handle(), query, kReading);
            const std::string_view rest = std::string_view(query).substr(use.sql().size());
            if (use.sql().empty()) return Status(no_query("this is none"));
            if (!callers_statement(database_->handle(), rest, kReading).sql().empty()) {
                return Status(no_query("these are several statements"));
            }
            if (use.writes()) return Status(no_query("this writes"));
            if (use.columns() == 0) return Status(no_query("this gives no rows"));
            while (use.step()) {
                if (Status status = take(cells_of(use)); !status.ok()) return status;
            }
            return {};
        } catch (const Error& error) {
            return Status(error.info());
        }
    }

  private:
    static Row cells_of(const sqlite::Statement& use) {
        Row cells;
        for (int column = 0; column < use.columns(); ++column) {
            cells.push_back(use.is_null(column) ? std::nullopt
                                                : std::optional<std::string>(use.string(column)));
        }
        return cells;
    }
    Result<std::int64_t> change_audited(const std::string& change, const Where& where,
                                        const Audit& audit) {
        const auto ids = run("SELECT count(*), json_group_array(message_id) FILTER (WHERE n <= " +
                                 std::to_string(kAuditedIds) +
                                 ") FROM (SELECT message_id, row_number() OVER () AS n FROM "
                                 "outbox_inbox_dead_letters" +
                                 where.sql() + ")",
                             where.parameters(), nullptr);
        if (!ids.ok()) return ids.status();
        const std::int64_t count = number((*ids)[0][0]);
        if (count == 0) return count;
        auto done =
            run("INSERT INTO outbox_audit (at, os_user, source, action, detail, events, "
                "event_ids) VALUES (" +
                    now() + ", $1, $2, $3, $4, $5 + 0, $6)",
                {audit.os_user, audit.source, audit.action, audit.detail, std::to_string(count),
                 (*ids)[0][1].value_or("[]")},
                nullptr);
        if (done.ok() && audit.discards) {
            done =
                run("UPDATE outbox_inbox SET discarded = 1 WHERE (consumer, message_id) IN ("
                    "SELECT consumer, message_id FROM outbox_inbox_dead_letters" +
                        where.sql() + ")",
                    where.parameters(), nullptr);
        }
        if (done.ok()) done = run(change + where.sql(), where.parameters(), nullptr);
        if (!done.ok()) return done.status();
        return count;
    }

    SqliteSql(std::unique_ptr<sqlite::Database> database, const core::Clock& clock)
        : database_(std::move(database)), clock_(clock) {}
    std::unique_ptr<sqlite::Database> database_;
    const core::Clock& clock_;
};

}  // namespace

Result<std::unique_ptr<Sql>> open_sqlite_sql(const std::string& path, int busy_timeout_s,
                                             const core::Clock& clock) {
    return SqliteSql::open(path, busy_timeout_s, clock);
}

}  // namespace outbox::consumer
