#include "consumer/operate.h"

#include <optional>
#include <utility>

#include "consumer/janitor.h"
#include "consumer/libpq_session.h"
#include "consumer/message_time.h"
#include "consumer/sqlite_use.h"
#include "core/url.h"

namespace outbox::consumer {
namespace {

constexpr const char* kReading = "reading the consumer's tables";
constexpr std::int64_t kPruneRows = 10'000;
constexpr std::int64_t kMicroseconds = 1'000'000;

/// One connection that runs SQL with text parameters and gives text; and what its SQL says
/// differently. Parameters are $1, $2, ... in the order of their first use.
class Sql {
  public:
    using Row = std::vector<std::optional<std::string>>;
    using Rows = std::vector<Row>;

    Sql() = default;
    Sql(const Sql&) = delete;
    Sql& operator=(const Sql&) = delete;
    virtual ~Sql() = default;

    /// `changed`: how many rows a change touched.
    virtual Result<Rows> run(const std::string& sql, const std::vector<std::string>& parameters,
                             std::int64_t* changed = nullptr) = 0;
    /// A time column in microseconds since the Unix epoch.
    [[nodiscard]] virtual std::string microseconds(const std::string& column) const = 0;
    [[nodiscard]] virtual std::string now() const = 0;
    [[nodiscard]] virtual std::string table_count(const std::string& table) const = 0;
    [[nodiscard]] virtual std::string payload_text() const = 0;
    virtual Result<PrunedInbox> prune(std::int64_t retention_s) = 0;
    virtual Status read(const std::string& query,
                        const std::function<Status(ConsumerOperations::Cells)>& take) = 0;
};

std::int64_t number(const std::optional<std::string>& cell) {
    return cell && !cell->empty() ? std::stoll(*cell) : 0;
}

class PostgresSql final : public Sql {
  public:
    static Result<std::unique_ptr<Sql>> open(const std::string& url, int connect_timeout_s) {
        auto sql = std::unique_ptr<PostgresSql>(new PostgresSql(url, connect_timeout_s));
        if (Status status = sql->session_.connect(); !status.ok()) return status;
        return std::unique_ptr<Sql>(std::move(sql));
    }

    Result<Rows> run(const std::string& sql, const std::vector<std::string>& parameters,
                     std::int64_t* changed) override {
        std::vector<const char*> values;
        for (const std::string& parameter : parameters) values.push_back(parameter.c_str());
        const PgResult result(PQexecParams(session_.connection(), sql.c_str(),
                                           static_cast<int>(values.size()), nullptr, values.data(),
                                           nullptr, nullptr, 0));
        if (!succeeded(result.get())) {
            return pg_error(session_.connection(), result.get(), kReading);
        }
        if (changed != nullptr) *changed = number(std::string(PQcmdTuples(result.get())));
        Rows rows;
        for (int row = 0; row < PQntuples(result.get()); ++row) {
            rows.push_back(cells_of(result.get(), row));
        }
        return rows;
    }

    // Row by row: a table of effects may be larger than memory.
    Status read(const std::string& query,
                const std::function<Status(ConsumerOperations::Cells)>& take) override {
        PGconn* connection = session_.connection();
        Status status = run("BEGIN READ ONLY", {}, nullptr).status();
        if (!status.ok()) return status;
        if (PQsendQuery(connection, query.c_str()) != 1 || PQsetSingleRowMode(connection) != 1) {
            return pg_error(connection, nullptr, kReading);
        }
        while (const PgResult result{PQgetResult(connection)}) {
            if (PQresultStatus(result.get()) == PGRES_SINGLE_TUPLE) {
                if (status.ok()) status = take(cells_of(result.get(), 0));
            } else if (!succeeded(result.get()) && status.ok()) {
                status = pg_error(connection, result.get(), kReading);
            }
        }
        const Status ended = run("ROLLBACK", {}, nullptr).status();
        return status.ok() ? ended : status;
    }
    [[nodiscard]] std::string microseconds(const std::string& column) const override {
        return "(CASE WHEN isfinite(" + column + ") THEN extract(epoch FROM " + column +
               ") * 1000000 ELSE 0 END)::bigint";
    }
    [[nodiscard]] std::string now() const override { return "clock_timestamp()"; }
    [[nodiscard]] std::string table_count(const std::string& table) const override {
        return "SELECT count(to_regclass('" + table + "'))";
    }
    [[nodiscard]] std::string payload_text() const override { return "encode(payload, 'escape')"; }

    Result<PrunedInbox> prune(std::int64_t retention_s) override {
        const auto rows =
            run("SELECT inbox_prune($1::bigint * interval '1 second', $2::integer), "
                "idempotency_prune($2::integer)",
                {std::to_string(retention_s), std::to_string(kPruneRows)}, nullptr);
        if (!rows.ok()) return rows.status();
        return PrunedInbox{number((*rows)[0][0]), number((*rows)[0][1])};
    }

  private:
    static Row cells_of(const PGresult* result, int row) {
        Row cells;
        for (int column = 0; column < PQnfields(result); ++column) {
            const std::string_view text = cell(result, row, column);
            cells.push_back(text.data() == nullptr ? std::nullopt
                                                   : std::optional<std::string>(text));
        }
        return cells;
    }
    PostgresSql(const std::string& url, int connect_timeout_s)
        : session_(url, connect_timeout_s, {}, "SELECT 1") {}
    LibpqSession session_;
};

class SqliteSql final : public Sql {
  public:
    static Result<std::unique_ptr<Sql>> open(const std::string& path, int busy_timeout_s) {
        sqlite3* opened = nullptr;
        const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);
        auto sql = std::unique_ptr<SqliteSql>(new SqliteSql(opened));
        if (code != SQLITE_OK) return sqlite_error(opened, "opening " + path);
        sqlite3_extended_result_codes(opened, 1);
        sqlite3_busy_timeout(opened, busy_timeout_s * 1000);
        return std::unique_ptr<Sql>(std::move(sql));
    }

    Result<Rows> run(const std::string& sql, const std::vector<std::string>& parameters,
                     std::int64_t* changed) override {
        try {
            SqliteUse use(database_.get(), sql, kReading);
            for (const std::string& parameter : parameters) use.text(parameter);
            Rows rows;
            while (use.next()) rows.push_back(cells_of(use));
            if (changed != nullptr) *changed = sqlite3_changes(database_.get());
            return rows;
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
    [[nodiscard]] std::string payload_text() const override { return "CAST(payload AS text)"; }

    // The same rules as the SQL function inbox_prune of PostgreSQL, where they are explained.
    Result<PrunedInbox> prune(std::int64_t retention_s) override {
        if (retention_s < kLeastRetentionS) {
            return ErrorInfo{ErrorCode::kConfigInvalid,
                             Advice::kStop,
                             {},
                             "an inbox must be kept for at least two hours"};
        }
        const std::string rows = std::to_string(kPruneRows);
        const std::string now = std::to_string(wall_clock_us());
        PrunedInbox pruned;
        Status status = run("BEGIN IMMEDIATE", {}, nullptr).status();
        if (!status.ok()) return status;
        status = run("INSERT INTO outbox_inbox_floor (consumer, floor) "
                     "SELECT consumer, min($1 + 0, coalesce((SELECT min(received_at) "
                     "  FROM outbox_mailbox), $1 + 0)) - $2 * 1000000 "
                     "FROM (SELECT DISTINCT consumer FROM outbox_inbox) WHERE true "
                     "ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor "
                     "WHERE floor < excluded.floor",
                     {now, std::to_string(retention_s)}, nullptr)
                     .status();
        if (status.ok()) {
            status = run("DELETE FROM outbox_inbox WHERE (consumer, message_id) IN ("
                         "SELECT i.consumer, i.message_id FROM outbox_inbox i "
                         "JOIN outbox_inbox_floor f USING (consumer) "
                         "WHERE i.message_time < f.floor AND i.message_time > -9223372036854775807 "
                         "LIMIT $1)",
                         {rows}, &pruned.messages)
                         .status();
        }
        if (status.ok()) {
            status = run("DELETE FROM outbox_idempotency WHERE rowid IN (SELECT rowid FROM "
                         "outbox_idempotency WHERE expires_at <= $1 + 0 LIMIT $2)",
                         {now, rows}, &pruned.keys)
                         .status();
        }
        const Status ended = run(status.ok() ? "COMMIT" : "ROLLBACK", {}, nullptr).status();
        if (!status.ok()) return status;
        if (!ended.ok()) return ended;
        return pruned;
    }

    Status read(const std::string& query,
                const std::function<Status(ConsumerOperations::Cells)>& take) override {
        if (Status status = run("PRAGMA query_only = true", {}, nullptr).status(); !status.ok()) {
            return status;
        }
        try {
            SqliteUse use(database_.get(), query, kReading);
            while (use.next()) {
                if (Status status = take(cells_of(use)); !status.ok()) return status;
            }
            return {};
        } catch (const Error& error) {
            return Status(error.info());
        }
    }

  private:
    static Row cells_of(const SqliteUse& use) {
        Row cells;
        for (int column = 0; column < use.columns(); ++column) {
            cells.push_back(use.is_null(column) ? std::nullopt
                                                : std::optional<std::string>(use.bytes(column)));
        }
        return cells;
    }
    explicit SqliteSql(sqlite3* database) : database_(database) {}
    SqliteConnection database_;
};

/// Dead letters of one consumer.
class InboxDeadLetters final : public DeadLetters {
  public:
    InboxDeadLetters(Sql& sql, std::string consumer) : sql_(sql), consumer_(std::move(consumer)) {}

    Result<std::vector<DeadInfo>> dead(const DeadFilter& filter, std::int64_t /*after_dead_id*/,
                                       std::size_t limit, bool with_payload) override {
        Where where = where_of(filter);
        const auto rows = sql_.run(
            "SELECT message_id, topic, key, headers, headers ->> 'type', attempts, error_code, "
            "error, " +
                sql_.microseconds("died_at") + ", " + sql_.microseconds("retry_requested_at") +
                ", payload IS NULL, " + (with_payload ? sql_.payload_text() : "NULL") +
                " FROM outbox_inbox_dead_letters" + where.sql +
                " ORDER BY died_at, message_id LIMIT " + std::to_string(limit),
            where.parameters);
        if (!rows.ok()) return rows.status();
        std::vector<DeadInfo> out;
        for (const Sql::Row& row : *rows) {
            DeadInfo& dead = out.emplace_back();
            dead.id = row[0].value_or("");
            dead.route = consumer_;
            dead.topic = row[1].value_or("");
            dead.key = row[2].value_or("");
            dead.headers = row[3].value_or("");
            dead.event_type = row[4].value_or("");
            dead.attempts = number(row[5]);
            dead.error_code = row[6].value_or("");
            dead.error = row[7].value_or("");
            dead.died_at_us = number(row[8]);
            dead.retry_requested_at_us = number(row[9]);
            dead.payload_is_null = row[10] == "t" || row[10] == "1";
            dead.payload = row[11].value_or("");
        }
        return out;
    }
    Result<std::int64_t> count_dead(const DeadFilter& filter) override {
        Where where = where_of(filter);
        const auto rows = sql_.run("SELECT count(*) FROM outbox_inbox_dead_letters" + where.sql,
                                   where.parameters);
        if (!rows.ok()) return rows.status();
        return number((*rows)[0][0]);
    }
    Result<std::int64_t> retry_dead(const DeadFilter& filter) override {
        return change("UPDATE outbox_inbox_dead_letters SET retry_requested_at = " + sql_.now(),
                      filter);
    }
    Result<std::int64_t> discard_dead(const DeadFilter& filter) override {
        return change("DELETE FROM outbox_inbox_dead_letters", filter);
    }

  private:
    struct Where {
        std::string sql;
        std::vector<std::string> parameters;
    };
    [[nodiscard]] Where where_of(const DeadFilter& filter) const {
        Where where{" WHERE consumer = $1", {consumer_}};
        const auto add = [&](const std::string& value) {
            where.parameters.push_back(value);
            return "$" + std::to_string(where.parameters.size());
        };
        if (!filter.ids.empty()) {
            std::string list;
            for (const std::string& id : filter.ids) list += (list.empty() ? "" : ", ") + add(id);
            where.sql += " AND message_id IN (" + list + ")";
        }
        if (!filter.key.empty()) where.sql += " AND key = " + add(filter.key);
        if (!filter.error_code.empty()) where.sql += " AND error_code = " + add(filter.error_code);
        if (!filter.event_type.empty()) {
            where.sql += " AND headers ->> 'type' = " + add(filter.event_type);
        }
        return where;
    }
    Result<std::int64_t> change(const std::string& what, const DeadFilter& filter) {
        Where where = where_of(filter);
        std::int64_t changed = 0;
        const auto rows = sql_.run(what + where.sql, where.parameters, &changed);
        if (!rows.ok()) return rows.status();
        return changed;
    }

    Sql& sql_;
    std::string consumer_;
};

class InboxOperations final : public ConsumerOperations {
  public:
    explicit InboxOperations(std::unique_ptr<Sql> sql) : sql_(std::move(sql)) {}

    Result<bool> has_tables() override {
        const auto rows = sql_->run(sql_->table_count("outbox_inbox"), {});
        if (!rows.ok()) return rows.status();
        return number((*rows)[0][0]) > 0;
    }

    Result<std::vector<ConsumerInfo>> consumers() override {
        const auto rows = sql_->run(
            "SELECT n.consumer, s.applied, s.repeats, s.failed, d.dead, s.lag, " +
                sql_->microseconds("f.floor") + ", " + sql_->microseconds("s.updated_at") +
                " FROM (SELECT consumer FROM outbox_inbox_stats "
                "  UNION SELECT consumer FROM outbox_inbox_floor "
                "  UNION SELECT consumer FROM outbox_inbox_dead_letters) n "
                "LEFT JOIN (SELECT consumer, sum(applied) AS applied, sum(repeats) AS repeats, "
                "  sum(failed) AS failed, sum(lag) AS lag, max(updated_at) AS updated_at "
                "  FROM outbox_inbox_stats GROUP BY consumer) s ON s.consumer = n.consumer "
                "LEFT JOIN (SELECT consumer, count(*) AS dead FROM outbox_inbox_dead_letters "
                "  GROUP BY consumer) d ON d.consumer = n.consumer "
                "LEFT JOIN outbox_inbox_floor f ON f.consumer = n.consumer ORDER BY 1",
            {});
        if (!rows.ok()) return rows.status();
        std::vector<ConsumerInfo> out;
        for (const Sql::Row& row : *rows) {
            out.push_back({.name = row[0].value_or(""),
                           .applied_total = number(row[1]),
                           .repeats_total = number(row[2]),
                           .failed_total = number(row[3]),
                           .dead = number(row[4]),
                           .lag = number(row[5]),
                           .floor_us = number(row[6]),
                           .updated_at_us = number(row[7])});
        }
        return out;
    }

    Result<std::vector<MailboxInfo>> mailboxes() override {
        const auto rows =
            sql_->run("SELECT mailbox, count(*), " + sql_->microseconds("min(received_at)") +
                          " FROM outbox_mailbox GROUP BY mailbox ORDER BY mailbox",
                      {});
        if (!rows.ok()) return rows.status();
        std::vector<MailboxInfo> out;
        for (const Sql::Row& row : *rows) {
            const double age = static_cast<double>(wall_clock_us() - number(row[2])) /
                               static_cast<double>(kMicroseconds);
            out.push_back({row[0].value_or(""), number(row[1]), age > 0 ? age : 0});
        }
        return out;
    }

    Result<PrunedInbox> prune(std::int64_t retention_s) override {
        return sql_->prune(retention_s);
    }

    std::unique_ptr<DeadLetters> dead_letters(const std::string& consumer) override {
        return std::make_unique<InboxDeadLetters>(*sql_, consumer);
    }

    Status dead_ids(const std::function<void(std::string_view)>& take) override {
        const auto there = sql_->run(sql_->table_count("outbox_inbox_dead_letters"), {});
        if (!there.ok()) return there.status();
        if (number((*there)[0][0]) == 0) return {};
        return sql_->read("SELECT message_id FROM outbox_inbox_dead_letters",
                          [&](ConsumerOperations::Cells cells) {
                              take(cells[0].value_or(""));
                              return Status();
                          });
    }

    Status read(const std::string& query, const std::function<Status(Cells)>& take) override {
        return sql_->read(query, take);
    }

  private:
    std::unique_ptr<Sql> sql_;
};

}  // namespace

Result<std::unique_ptr<ConsumerOperations>> open_operations(const std::string& url,
                                                            int connect_timeout_s) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    auto sql = parsed->scheme == "sqlite" ? SqliteSql::open(parsed->path, connect_timeout_s)
                                          : PostgresSql::open(url, connect_timeout_s);
    if (!sql.ok()) return sql.status();
    return std::unique_ptr<ConsumerOperations>(new InboxOperations(std::move(*sql)));
}

}  // namespace outbox::consumer
