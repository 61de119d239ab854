#include "consumer/operator_sql.h"

#include <algorithm>
#include <cctype>
#include <utility>

#include "consumer/janitor.h"
#include "consumer/libpq_session.h"
#include "consumer/message_time.h"
#include "consumer/sqlite_use.h"
#include "core/schema_objects.h"
#include "core/url.h"

namespace outbox::consumer {
namespace {

constexpr const char* kReading = "reading the consumer's tables";
constexpr std::int64_t kPruneRows = 10'000;
constexpr std::int64_t kMicroseconds = 1'000'000;
constexpr std::int64_t kAuditedIds = 1'000;  // of one action

class PostgresSql final : public Sql {
  public:
    static Result<std::unique_ptr<Sql>> open(const std::string& url, int connect_timeout_s,
                                             const std::optional<Trust>& trust) {
        auto sql = std::unique_ptr<PostgresSql>(new PostgresSql(url, connect_timeout_s));
        Status status = sql->session_.connect();
        if (status.ok()) status = sql->find_place();
        if (status.ok() && trust) status = sql->require_owners(*trust);
        if (!status.ok()) return status;
        return std::unique_ptr<Sql>(std::move(sql));
    }

    Result<Rows> run(const std::string& sql, const std::vector<std::string>& parameters,
                     std::int64_t* changed) override {
        return run_as_is(own(sql), parameters, changed);
    }
    Result<Rows> run_as_is(const std::string& statement,
                           const std::vector<std::string>& parameters = {},
                           std::int64_t* changed = nullptr) {
        std::vector<const char*> values;
        for (const std::string& parameter : parameters) values.push_back(parameter.c_str());
        const LibpqSession::Use use(session_);
        const PgResult result(PQexecParams(session_.connection(), statement.c_str(),
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

    // One statement: what is done, and the line that says so.
    Result<std::int64_t> change_letters(const std::string& change, Where where,
                                        const Audit& audit) override {
        const std::string condition = where.sql();
        const std::string line = where.add(audit.os_user) + ", " + where.add(audit.source) + ", " +
                                 where.add(audit.action) + ", " + where.add(audit.detail);
        const auto rows =
            run("WITH changed AS (" + change + condition +
                    " RETURNING message_id) INSERT INTO outbox_audit (os_user, "
                    "source, action, detail, events, event_ids) SELECT " +
                    line + ", count(*), (array_agg(message_id))[1:" + std::to_string(kAuditedIds) +
                    "] FROM changed HAVING count(*) > 0 RETURNING events",
                where.parameters(), nullptr);
        if (!rows.ok()) return rows.status();
        return rows->empty() ? std::int64_t{0} : number((*rows)[0][0]);
    }

    // Row by row: a table of effects may be larger than memory.
    Status read(const std::string& query,
                const std::function<Status(ConsumerOperations::Cells)>& take) override {
        PGconn* connection = session_.connection();
        Status status = run("BEGIN READ ONLY", {}, nullptr).status();
        if (!status.ok()) return status;
        status = run("SELECT set_config('search_path', $1, true)", {path_}, nullptr).status();
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
    [[nodiscard]] std::string own(const std::string& sql) const override {
        std::string out;
        for (std::size_t at = 0; at < sql.size();) {
            std::size_t end = at;
            while (end < sql.size() && is_name(sql[end])) ++end;
            if (is_ours(std::string_view(sql).substr(at, end - at))) {
                out += at > 0 && sql[at - 1] == '\'' ? doubled(schema_) : schema_;
            }
            end = std::max(end, at + 1);
            out.append(sql, at, end - at);
            at = end;
        }
        return out;
    }
    [[nodiscard]] std::string table_count(const std::string& table) const override {
        return "SELECT count(to_regclass('" + table + "'))";
    }
    [[nodiscard]] std::string payload_hex() const override { return "encode(payload, 'hex')"; }
    // PostgreSQL keeps escapes of NUL and of halves of a surrogate pair in json, and then reads no
    // part of it. An escape stands behind an even number of backslashes.
    [[nodiscard]] std::string header(const std::string& column,
                                     const std::string& name) const override {
        const std::string unreadable = R"(\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2}))";
        return "(CASE WHEN " + column + "::text !~ '" + unreadable + "' THEN " + column +
               " ELSE regexp_replace(" + column + "::text, '" + R"((?<!\\)((?:\\\\)*))" +
               unreadable + R"(', '\1?', 'g')::json END ->> ')" + name + "')";
    }

    Result<PrunedInbox> prune(std::int64_t retention_s, const std::string& consumer) override {
        if (!consumer.empty()) {
            const auto own =
                run("SELECT inbox_prune($1::bigint * interval '1 second', $2::integer, $3), "
                    "CASE WHEN has_table_privilege('outbox_idempotency', 'SELECT') "
                    "AND has_table_privilege('outbox_idempotency', 'UPDATE') "
                    "AND has_table_privilege('outbox_idempotency', 'DELETE') "
                    "THEN idempotency_prune($2::integer) ELSE 0 END",
                    {std::to_string(retention_s), std::to_string(kPruneRows), consumer}, nullptr);
            if (!own.ok()) return own.status();
            return PrunedInbox{number((*own)[0][0]), number((*own)[0][1]), 0};
        }
        const auto rows =
            run("SELECT inbox_prune($1::bigint * interval '1 second', $2::integer), "
                "idempotency_prune($2::integer), "
                "saga_prune($1::bigint * interval '1 second', $2::integer)",
                {std::to_string(retention_s), std::to_string(kPruneRows)}, nullptr);
        if (!rows.ok()) return rows.status();
        return PrunedInbox{number((*rows)[0][0]), number((*rows)[0][1]), number((*rows)[0][2])};
    }
    void break_off() override { session_.break_off(); }
    Result<PrunedInbox> prunable(std::int64_t retention_s) override {
        const auto rows =
            run("SELECT (SELECT count(*) FROM outbox_inbox WHERE message_time > '-infinity' AND "
                "message_time < least(clock_timestamp(), (SELECT min(received_at) FROM "
                "outbox_mailbox)) - $1::bigint * interval '1 second'), "
                "(SELECT count(*) FROM outbox_idempotency WHERE expires_at <= statement_timestamp()"
                "), (SELECT count(*) FROM outbox_saga WHERE finished_at < statement_timestamp() - "
                "$1::bigint * interval '1 second') + (SELECT count(*) FROM outbox_saga_steps WHERE "
                "updated_at < statement_timestamp() - $1::bigint * interval '1 second')",
                {std::to_string(retention_s)}, nullptr);
        if (!rows.ok()) return rows.status();
        return PrunedInbox{number((*rows)[0][0]), number((*rows)[0][1]), number((*rows)[0][2])};
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
        : session_(url, connect_timeout_s, {}, {}) {}

    static bool is_name(char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    }
    static bool is_ours(std::string_view word) {
        const auto objects = schema_objects();
        return std::any_of(objects.begin(), objects.end(),
                           [&](const SchemaObject& object) { return object.name == word; });
    }
    static std::string doubled(const std::string& text) {
        std::string out;
        for (const char c : text) out.append(c == '\'' ? 2 : 1, c);
        return out;
    }

    // Where the consumer's tables are; from here on what others made there stands in for nothing
    // of the server. Triggers that users put on the tables may need the role's path.
    Status find_place() {
        auto rows = run_as_is(
            "SELECT n.nspname, pg_catalog.quote_ident(n.nspname), "
            "pg_catalog.current_setting('search_path') FROM pg_catalog.pg_namespace n "
            "WHERE n.oid OPERATOR(pg_catalog.=) coalesce((SELECT c.relnamespace FROM "
            "pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) coalesce("
            "pg_catalog.to_regclass('outbox_inbox'), pg_catalog.to_regclass('outbox_saga'))), "
            "(SELECT s.oid FROM pg_catalog.pg_namespace s WHERE s.nspname "
            "OPERATOR(pg_catalog.=) pg_catalog.current_schema()))");
        if (!rows.ok()) return rows.status();
        if (rows->empty()) {
            return {ErrorCode::kNoRights, Advice::kStop,
                    "this database has no current schema: create one that is on the search_path "
                    "of the user, or name it with --schema",
                    "3F000"};
        }
        place_ = (*rows)[0][0].value_or("");
        schema_ = (*rows)[0][1].value_or("") + ".";
        path_ = (*rows)[0][2].value_or("");
        rows = run_as_is(
            "SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', "
            "false)");
        if (!rows.ok()) return rows.status();
        return run("SELECT set_config('search_path', 'pg_catalog, ' || $1, false) WHERE EXISTS ("
                   "SELECT FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_proc p "
                   "ON p.oid = t.tgfoid WHERE NOT t.tgisinternal AND c.relnamespace = (SELECT oid "
                   "FROM pg_namespace WHERE nspname = $2) AND c.relname LIKE 'outbox\\_%' AND "
                   "p.proname NOT LIKE 'outbox\\_%')",
                   {path_, place_}, nullptr)
            .status();
    }

    // Who owns a table, view or function has it run code with the rights of whoever uses it.
    Status require_owners(const Trust& trust) {
        const auto names = objects_of_side(trust.with_events ? "" : "consumer");
        const auto rows =
            run_as_is(foreign_objects_sql(place_, names, TrustedOwners{trust.owners, true}));
        if (!rows.ok()) return rows.status();
        return rows->empty() ? Status() : foreign_owner((*rows)[0][0].value_or(""));
    }

    LibpqSession session_;
    std::string place_;   // the schema of the tables
    std::string schema_;  // quoted, with the dot behind it
    std::string path_;    // the role's own
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
    Result<std::int64_t> change_letters(const std::string& change, Where where,
                                        const Audit& audit) override {
        Status status = run("BEGIN IMMEDIATE", {}, nullptr).status();
        if (!status.ok()) return status;
        auto count = change_audited(change, where, audit);
        status = run(count.ok() ? "COMMIT" : "ROLLBACK", {}, nullptr).status();
        if (count.ok() && !status.ok()) return status;
        return count;
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
    [[nodiscard]] std::string payload_hex() const override { return "hex(payload)"; }
    [[nodiscard]] std::string header(const std::string& column,
                                     const std::string& name) const override {
        return "(CASE WHEN json_valid(" + column + ") THEN " + column + " ->> '" + name + "' END)";
    }

    // The same rules as the SQL function inbox_prune of PostgreSQL, where they are explained.
    Result<PrunedInbox> prune(std::int64_t retention_s, const std::string& consumer) override {
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
                     "FROM (SELECT DISTINCT consumer FROM outbox_inbox) "
                     "WHERE $3 IN ('', consumer) "
                     "ON CONFLICT (consumer) DO UPDATE SET floor = excluded.floor "
                     "WHERE floor < excluded.floor",
                     {now, std::to_string(retention_s), consumer}, nullptr)
                     .status();
        if (status.ok()) {
            status = run("DELETE FROM outbox_inbox WHERE (consumer, message_id) IN ("
                         "SELECT i.consumer, i.message_id FROM outbox_inbox i "
                         "JOIN outbox_inbox_floor f USING (consumer) "
                         "WHERE i.message_time < f.floor AND i.message_time > -9223372036854775807 "
                         "AND $1 IN ('', i.consumer) LIMIT $2)",
                         {consumer, rows}, &pruned.messages)
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
        const std::string before = std::to_string(wall_clock_us() - retention_s * kMicroseconds);
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
            run("SELECT (SELECT count(*) FROM outbox_inbox WHERE message_time > "
                "-9223372036854775807 AND message_time < min($1 + 0, coalesce((SELECT "
                "min(received_at) FROM outbox_mailbox), $1 + 0)) - $2 * 1000000), "
                "(SELECT count(*) FROM outbox_idempotency WHERE expires_at <= $1 + 0), "
                "(SELECT count(*) FROM outbox_saga WHERE finished_at < $1 - $2 * 1000000) + "
                "(SELECT count(*) FROM outbox_saga_steps WHERE updated_at < $1 - $2 * 1000000)",
                {std::to_string(wall_clock_us()), std::to_string(retention_s)}, nullptr);
        if (!rows.ok()) return rows.status();
        return PrunedInbox{number((*rows)[0][0]), number((*rows)[0][1]), number((*rows)[0][2])};
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
        if (done.ok()) done = run(change + where.sql(), where.parameters(), nullptr);
        if (!done.ok()) return done.status();
        return count;
    }

    explicit SqliteSql(sqlite3* database) : database_(database) {}
    SqliteConnection database_;
};

}  // namespace

void Where::in(const std::string& column, const std::vector<std::string>& values) {
    if (values.empty()) return;
    std::string list;
    for (const std::string& value : values) list += (list.empty() ? "" : ", ") + add(value);
    also(column + " IN (" + list + ")");
}

void Where::equals(const std::string& column, const std::string& value) {
    if (!value.empty()) also(column + " = " + add(value));
}

std::string Where::add(const std::string& value) {
    parameters_.push_back(value);
    return "$" + std::to_string(parameters_.size());
}

std::int64_t number(const std::optional<std::string>& cell) {
    return cell && !cell->empty() ? std::stoll(*cell) : 0;
}

Result<std::unique_ptr<Sql>> open_sql(const std::string& url, int connect_timeout_s,
                                      const std::optional<Trust>& trust) {
    const auto parsed = parse_url(url);
    if (!parsed.ok()) return parsed.error();
    return parsed->scheme == "sqlite" ? SqliteSql::open(parsed->path, connect_timeout_s)
                                      : PostgresSql::open(url, connect_timeout_s, trust);
}

}  // namespace outbox::consumer
