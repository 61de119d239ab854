#include "databases/postgres/receive/operator_sql.h"

#include <algorithm>
#include <cctype>
#include <chrono>
#include <cstdint>
#include <string_view>
#include <utility>

#include "consumer/fence.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/lock_holders.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/receive/fence.h"
#include "databases/postgres/receive/session.h"
#include "databases/postgres/schema_objects.h"

namespace outbox::consumer {
namespace {

constexpr const char* kReading = "reading the consumer's tables";
constexpr std::int64_t kPruneRows = 10'000;
constexpr std::int64_t kAuditedIds = 1'000;  // of one action
// For what another transaction holds: meanwhile this one may hold what others need.
constexpr int kMostWaitS = 3;
// As the relay's: a server that is slow says so itself before it is given up.
constexpr int kStatementS = 60;
constexpr std::chrono::seconds kMaxWait{65};

class PostgresSql final : public Sql {
  public:
    // What a consumer does by itself takes as long as it takes, and is broken off.
    enum class Waits : std::uint8_t { kWithoutLimit, kLimited };
    static Result<std::unique_ptr<Sql>> open(const std::string& url, int connect_timeout_s,
                                             const std::optional<Trust>& trust, Waits waits) {
        const bool is_limited = waits == Waits::kLimited;
        auto sql = std::unique_ptr<PostgresSql>(new PostgresSql(url, connect_timeout_s));
        if (is_limited) sql->session_.limit_waits(std::chrono::seconds(connect_timeout_s));
        Status status = sql->session_.connect();
        if (status.ok() && is_limited) {
            status =
                sql->run_as_is("SET statement_timeout = '" + std::to_string(kStatementS) + "s'")
                    .status();
        }
        if (status.ok()) status = sql->find_place();
        if (status.ok() && trust) status = sql->require_owners(*trust);
        if (status.ok() && trust) {
            status =
                sql->run_as_is("SET lock_timeout = '" + std::to_string(kMostWaitS) + "s'").status();
        }
        if (!status.ok()) return status;
        if (is_limited) sql->limit_waits(kMaxWait);
        return std::unique_ptr<Sql>(std::move(sql));
    }

    void limit_waits(std::chrono::milliseconds most) override {
        session_.limit_waits(std::min<std::chrono::milliseconds>(most, kMaxWait));
    }

    Result<Rows> run(const std::string& sql, const std::vector<std::string>& parameters,
                     std::int64_t* changed) override {
        return run_as_is(own(sql), parameters, changed);
    }
    Result<Rows> run_as_is(const std::string& statement,
                           const std::vector<std::string>& parameters = {},
                           std::int64_t* changed = nullptr) {
        postgres::Params params;
        for (const std::string& parameter : parameters) params.lend_untyped(parameter);
        const LibpqSession::Use use(session_);
        const postgres::Rows result = session_.ask(statement.c_str(), params);
        if (session_.silent()) return session_.silence();
        if (!result.succeeded()) {
            return failed(postgres::operate_error(session_.connection(), result.get(), kReading),
                          statement);
        }
        if (changed != nullptr) *changed = result.affected();
        Rows rows;
        for (int row = 0; row < result.size(); ++row) {
            rows.push_back(cells_of(result, row));
        }
        return rows;
    }

    // One statement: what is done, and the line that says so.
    Result<std::int64_t> change_letters(const std::string& change, Where where,
                                        const Audit& audit) override {
        const std::string condition = where.sql();
        const std::string line = where.add(audit.os_user) + ", " + where.add(audit.source) + ", " +
                                 where.add(audit.action) + ", " + where.add(audit.detail);
        const std::string remembered =
            audit.discards ? ", known AS (UPDATE outbox_inbox SET discarded = true FROM changed c "
                             "WHERE outbox_inbox.consumer = c.consumer AND "
                             "outbox_inbox.message_id = c.message_id)"
                           : "";
        const auto rows =
            run("WITH changed AS (" + change + condition + " RETURNING consumer, message_id)" +
                    remembered +
                    " INSERT INTO outbox_audit (os_user, "
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
        // The user's query takes as long as it takes.
        status = run("SELECT set_config('search_path', $1, true), "
                     "set_config('statement_timeout', '0', true)",
                     {path_}, nullptr)
                     .status();
        if (!status.ok()) return status;
        // Not the simple protocol, in which a second statement may end this transaction and write.
        if (PQsendQueryParams(connection, query.c_str(), 0, nullptr, nullptr, nullptr, nullptr,
                              0) != 1 ||
            PQsetSingleRowMode(connection) != 1) {
            return postgres::operate_error(connection, nullptr, kReading);
        }
        const auto next = [&] {
            const LibpqSession::Use use(session_);
            return postgres::Rows(PQgetResult(connection));
        };
        while (true) {
            const postgres::Rows result = next();
            if (result.get() == nullptr) break;
            const ExecStatusType what = PQresultStatus(result.get());
            // Nothing else can be done on this connection before the copy is at its end.
            if (what == PGRES_COPY_OUT || what == PGRES_COPY_IN) {
                return Status(no_query("this copies"));
            }
            if (what == PGRES_SINGLE_TUPLE) {
                if (status.ok()) status = take(cells_of(result, 0));
            } else if (what != PGRES_TUPLES_OK && status.ok()) {
                status = reading_error(result);
            }
        }
        const Status ended = run("ROLLBACK", {}, nullptr).status();
        return status.ok() ? ended : status;
    }
    Result<FenceLook> look_for(const std::string& consumer, const std::string& token) override {
        const auto rows =
            run("SELECT e.event ->> 'id', e.event ->> 'why' FROM outbox_wait($1, $2) w, "
                "json_array_elements(w.events) WITH ORDINALITY e(event, n) ORDER BY e.n",
                {consumer, token}, nullptr);
        if (!rows.ok()) return rows.status();
        FenceVerdict verdict;
        for (const Row& row : *rows) verdict.add(row[0].value_or(""), row[1].value_or(""));
        return std::move(verdict).look();
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
    Result<bool> has_producer() override {
        std::string tables;
        for (const postgres::SchemaObject& object : postgres::schema_objects()) {
            if (object.kind != postgres::SchemaObject::Kind::kTable) continue;
            if (object.side != "producer") continue;
            tables.append(tables.empty() ? "to_regclass('" : ", to_regclass('");
            tables.append(object.name).append("')");
        }
        const auto rows = run("SELECT num_nonnulls(" + tables + ")", {}, nullptr);
        if (!rows.ok()) return rows.status();
        return number((*rows)[0][0]) > 0;
    }
    Result<std::vector<std::string>> unlogged() override {
        const auto rows =
            run(postgres::unlogged_sql(postgres::objects_of_side("consumer"), ""), {}, nullptr);
        if (!rows.ok()) return rows.status();
        std::vector<std::string> tables;
        for (const Row& row : *rows) tables.push_back(row[0].value_or(""));
        return tables;
    }
    [[nodiscard]] std::string payload_hex() const override { return "encode(payload, 'hex')"; }
    [[nodiscard]] std::string no_ids() const override { return "'{}'"; }
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
                // As far back as inbox_prune looks for a message.
                "message_time < least((SELECT max(now() - b.back) FROM (SELECT max(message_time) "
                "FROM outbox_inbox WHERE message_time < now() + interval '1 day') n(newest), "
                "(SELECT interval '1 minute' * 2 ^ i FROM generate_series(0, 26) i) b(back) "
                "WHERE newest > now() - b.back), (SELECT min(received_at) FROM outbox_mailbox)) "
                "- $1::bigint * interval '1 second'), "
                "(SELECT count(*) FROM outbox_idempotency WHERE expires_at <= statement_timestamp()"
                "), (SELECT count(*) FROM outbox_saga WHERE finished_at < statement_timestamp() - "
                "$1::bigint * interval '1 second') + (SELECT count(*) FROM outbox_saga_steps WHERE "
                "updated_at < statement_timestamp() - $1::bigint * interval '1 second')",
                {std::to_string(retention_s)}, nullptr);
        if (!rows.ok()) return rows.status();
        return PrunedInbox{number((*rows)[0][0]), number((*rows)[0][1]), number((*rows)[0][2])};
    }

  private:
    static Row cells_of(const postgres::Rows& result, int row) {
        Row cells;
        for (int column = 0; column < result.columns(); ++column) {
            const std::string_view text = result.text(row, column);
            cells.push_back(text.data() == nullptr ? std::nullopt
                                                   : std::optional<std::string>(text));
        }
        return cells;
    }
    [[nodiscard]] ErrorInfo reading_error(const postgres::Rows& result) {
        constexpr std::string_view kWrites = "25006";
        constexpr std::string_view kNoStatement = "42601";
        if (PQresultStatus(result.get()) == PGRES_EMPTY_QUERY) return no_query("this is none");
        if (result.succeeded()) return no_query("this gives no rows");
        if (result.state() == kWrites || result.state() == kNoStatement) {
            return no_query(std::string(result.message()));
        }
        return postgres::operate_error(session_.connection(), result.get(), kReading);
    }
    PostgresSql(const std::string& url, int connect_timeout_s)
        : session_(url, connect_timeout_s, {}, {}) {}

    static bool is_name(char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
    }
    static bool is_ours(std::string_view word) {
        const auto objects = postgres::schema_objects();
        return std::any_of(
            objects.begin(), objects.end(),
            [&](const postgres::SchemaObject& object) { return object.name == word; });
    }
    static std::string doubled(const std::string& text) {
        std::string out;
        for (const char c : text) out.append(c == '\'' ? 2 : 1, c);
        return out;
    }

    [[nodiscard]] ErrorInfo failed(ErrorInfo error, const std::string& statement) const {
        if (error.backend_code == postgres::kNoLockState) {
            error.message = postgres::no_lock_message(
                "for over " + std::to_string(kMostWaitS) + " s", holders(statement));
        }
        return error;
    }

    // Asked on another connection, as the transaction of this one has failed.
    [[nodiscard]] std::string holders(const std::string& statement) const {
        const auto other =
            open(session_.url(), session_.connect_timeout_s(), std::nullopt, Waits::kLimited);
        if (!other.ok()) return {};
        // A function's tables are not named in the statement that calls it.
        std::string who;
        for (const std::string& named : {statement, std::string()}) {
            const auto rows = (*other)->run(std::string(postgres::lock_holders_sql()),
                                            {std::to_string(kMostWaitS), place_, named}, nullptr);
            if (rows.ok()) who = (*rows)[0][0].value_or("");
            if (!who.empty()) break;
        }
        return who;
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
        const auto names = postgres::objects_of_side(trust.with_events ? "" : "consumer");
        const auto rows = run_as_is(postgres::foreign_objects_sql(
            place_, names, postgres::TrustedOwners{trust.owners, true}));
        if (!rows.ok()) return rows.status();
        return rows->empty() ? Status() : postgres::foreign_owner((*rows)[0][0].value_or(""));
    }

    LibpqSession session_;
    std::string place_;   // the schema of the tables
    std::string schema_;  // quoted, with the dot behind it
    std::string path_;    // the role's own
};

}  // namespace

Result<std::unique_ptr<Sql>> open_postgres_sql(const std::string& url, int connect_timeout_s,
                                               const std::optional<Trust>& trust) {
    using Waits = PostgresSql::Waits;
    return PostgresSql::open(url, connect_timeout_s, trust,
                             trust ? Waits::kLimited : Waits::kWithoutLimit);
}

}  // namespace outbox::consumer
