#include "databases/postgres/mailbox_writer.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <libpq-fe.h>
#include <memory>
#include <poll.h>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/embedded_sql.h"
#include "core/schema_objects.h"
#include "databases/postgres/arrays.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/statement.h"
#include "mailbox/errors.h"
#include "secrets/password_file.h"

namespace outbox::mailbox {
namespace {

using Clock = std::chrono::steady_clock;

constexpr Oid kByteaOid = 17;
constexpr Oid kTextOid = 25;
constexpr Oid kByteaArrayOid = 1001;
constexpr Oid kTextArrayOid = 1009;

// Statements end on the server before we stop waiting for them.
constexpr const char* kSession =
    "SET client_min_messages = error; SET statement_timeout = '8s'; SET lock_timeout = '5s'; "
    "SET standard_conforming_strings = on; ";

std::string literal(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text) quoted.append(c == '\'' ? 2 : 1, c);
    return quoted + "'";
}

// The schema of the mailbox, or where it belongs, and the role's path. From here on the path is
// the catalog's, so that no function or operator of somebody else is chosen for the server's own.
constexpr const char* kPlace =
    "SELECT coalesce((SELECT c.relnamespace::pg_catalog.regnamespace::pg_catalog.text "
    "FROM pg_catalog.pg_class c WHERE c.oid OPERATOR(pg_catalog.=) "
    "pg_catalog.to_regclass('outbox_mailbox')::pg_catalog.oid), "
    "pg_catalog.quote_ident(pg_catalog.current_schema()::pg_catalog.text)), "
    "pg_catalog.current_setting('search_path'), "
    "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)";

std::string look_sql(const std::string& table) {
    return "SELECT to_regclass(t) IS NOT NULL, has_table_privilege(to_regclass(t), 'INSERT') AND "
           "has_table_privilege(to_regclass(t), 'SELECT'), quote_ident(current_user), "
           "EXISTS (SELECT FROM pg_trigger WHERE tgrelid = to_regclass(t) AND NOT tgisinternal), "
           "(parse_ident(t))[1], has_schema_privilege((parse_ident(t))[1], 'CREATE') FROM "
           "(SELECT " +
           literal(table) + "::text AS t) x";
}

// Positions are given in the order of the arrays.
constexpr const char* kInsert =
    ".outbox_mailbox (mailbox, id, topic, key, headers, payload) "
    "SELECT $1, r.id, r.topic, r.key, r.headers::json, r.payload "
    "FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[]) WITH ORDINALITY "
    "     AS r(id, topic, key, headers, payload, n) "
    "ORDER BY r.n ON CONFLICT (mailbox, id) DO NOTHING";

using postgres::mailbox_error;
using postgres::refused_state_in;
using postgres::Rows;

void encode(std::string& out, Oid element, std::span<const Row> rows,
            std::string_view Row::* field) {
    postgres::encode_array(out, element, rows.size(),
                           [&](std::size_t i) { return rows[i].*field; });
}

int remaining_ms(Clock::time_point deadline) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    return left > 0 ? static_cast<int>(left) : 0;
}

class PostgresClient final : public Client {
  public:
    explicit PostgresClient(const MailboxConfig& config) : config_(config) {}

    Status prepare() override {
        if (ready_ && PQstatus(connection_.get()) == CONNECTION_OK) return {};
        return start(true);
    }

    Status look() override { return start(false); }

    // A standby that takes over has the same name.
    Result<std::string> destination() override {
        if (Status status = prepare(); !status.ok()) return status;
        Rows answer;
        const std::string sql =
            "SELECT 'postgresql ' || system_identifier || '/' || current_database() || '.' || "
            "(parse_ident(" +
            literal(schema_) + "))[1] FROM pg_control_system()";
        const Status asked = run(sql.c_str(), &answer);
        if (!asked.ok()) return asked;
        return answer.string(0, 0) + ", mailbox " + config_.mailbox;
    }

    Status insert(std::span<const Row> rows) override {
        encode(ids_, kTextOid, rows, &Row::id);
        encode(topics_, kTextOid, rows, &Row::topic);
        encode(keys_, kTextOid, rows, &Row::key);
        encode(headers_, kTextOid, rows, &Row::headers);
        encode(payloads_, kByteaOid, rows, &Row::payload);
        postgres::Params params;
        params.lend(kTextOid, config_.mailbox).lend(kTextArrayOid, ids_);
        params.lend(kTextArrayOid, topics_).lend(kTextArrayOid, keys_);
        params.lend(kTextArrayOid, headers_).lend(kByteaArrayOid, payloads_);
        const bool sent = postgres::send_prepared(connection_.get(), "outbox_mailbox_insert",
                                                  params, postgres::Format::kText);
        Status status = sent ? finish() : Status(connection_error());
        // Another server, a new plan, a table created again: the next batch starts afresh.
        const bool keep = status.ok() || blames_a_message(status.error().advice) ||
                          may_concern_a_row(status.error());
        if (!keep) drop();
        return status;
    }

    void drop() override {
        connection_.reset();
        ready_ = false;
    }

    [[nodiscard]] bool may_concern_a_row(const ErrorInfo& error) const override {
        return postgres::may_concern_rows(connection_.get(), error);
    }

  private:
    Status start(bool make_table) {
        ready_ = false;
        bool there = true;
        Status status = connect();
        if (status.ok()) status = find_table(make_table, there);
        if (status.ok() && there) status = prepare_insert();
        ready_ = status.ok() && there;
        if (!ready_) connection_.reset();
        return status;
    }

    Status connect() {
        const std::string timeout = std::to_string(config_.connect_timeout_s);
        const Result<std::string> target = with_password(config_.target);
        if (!target.ok()) {
            return {target.error().code, Advice::kRetryDestination, target.error().message};
        }
        const postgres::Setting settings[] = {{"connect_timeout", timeout.c_str()},
                                              {"fallback_application_name", "outbox mailbox"},
                                              {"dbname", target->c_str()},
                                              {"client_encoding", "UTF8"}};
        bool in_time = true;
        connection_ =
            postgres::connect(settings, std::chrono::seconds(config_.connect_timeout_s), in_time);
        if (!connection_) {
            return {ErrorCode::kInternal, Advice::kRetryDestination, "out of memory"};
        }
        if (!in_time) {
            return mailbox_error({}, "no answer from " + where() + " within " + timeout + " s");
        }
        if (PQstatus(connection_.get()) != CONNECTION_OK) return connection_error();
        PQsetnonblocking(connection_.get(), 1);
        return {};
    }

    // `there`: false where it is missing and could be made.
    Status find_table(bool make_table, bool& there) {
        // Acknowledged means durable.
        const std::string session = std::string(kSession) + postgres::kDurable;
        if (Status status = run(session.c_str()); !status.ok()) return status;
        Rows place;
        if (Status status = run(kPlace, &place); !status.ok()) return status;
        if (place.text(0, 0).data() == nullptr) {
            return mailbox_error("3F000", "no schema of the search path exists in " + where());
        }
        schema_ = place.string(0, 0);
        Rows look;
        const std::string sql = look_sql(schema_ + ".outbox_mailbox");
        if (Status status = run(sql.c_str(), &look); !status.ok()) return status;
        const auto is = [&](int column) { return look.boolean(0, column); };
        const std::string name = look.string(0, 4);
        if (!is(0)) {
            there = make_table;
            if (!make_table) {
                if (is(5)) return {};
                return no_table(where(), mailbox_error("42501", "no right to create it"),
                                table_sql());
            }
            if (Status status = create_table(); !status.ok()) return status;
        } else if (!is(1)) {
            return mailbox_error(
                "42501", "no right to write outbox_mailbox: GRANT SELECT, INSERT ON " + schema_ +
                             ".outbox_mailbox TO " + look.string(0, 2));
        }
        if (Status status = require_owner(name); !status.ok()) return status;
        // What the owner put on the table may need the path; the rest is qualified.
        if (is(3)) {
            const std::string path = "SELECT set_config('search_path', 'pg_catalog, ' || " +
                                     literal(place.string(0, 1)) + ", false)";
            if (Status status = run(path.c_str()); !status.ok()) return status;
        }
        return {};
    }

    Status prepare_insert() {
        // Refused when columns or the unique constraint are missing.
        constexpr Oid kTypes[] = {kTextOid,      kTextArrayOid, kTextArrayOid,
                                  kTextArrayOid, kTextArrayOid, kByteaArrayOid};
        const std::string insert = "INSERT INTO " + schema_ + kInsert;
        if (PQsendPrepare(connection_.get(), "outbox_mailbox_insert", insert.c_str(), 6, kTypes) !=
            1) {
            return connection_error();
        }
        return finish();
    }

    // Its owner could have the relay's role run anything.
    Status require_owner(const std::string& schema) {
        constexpr std::array<std::string_view, 1> kNames{"outbox_mailbox"};
        const std::string sql = foreign_objects_sql(schema, kNames, {config_.owners, true});
        Rows foreign;
        if (Status status = run(sql.c_str(), &foreign); !status.ok()) return status;
        if (foreign.empty()) return {};
        return {ErrorCode::kNoRights, Advice::kRetryDestination,
                foreign.string(0, 0) + " in " + where() +
                    ", who could have it run anything with the rights of this role; if that role "
                    "may own the mailbox name it in the URL: ?owner=ROLE; else have it dropped",
                std::string(kForeignOwnerState)};
    }

    // Also for an owner, whose path may be any.
    [[nodiscard]] std::string table_sql() const {
        return "BEGIN;\n" + std::string(kCatalogPath) +
               fill_postgres(embedded_sql_text("consumer/postgres/mailbox.sql"), schema_) +
               "COMMIT;\n";
    }

    Status create_table() {
        const std::string all = table_sql();
        Status status = run(all.c_str());
        if (!status.ok()) std::ignore = run("ROLLBACK");
        // Two relays that create it at once: the later one meets the former's catalog rows.
        if (!status.ok() && status.error().backend_code == "23505") status = run(all.c_str());
        if (status.ok() || status.error().code != ErrorCode::kNoRights) return status;
        return no_table(where(), status.error(), all);
    }

    // Simple protocol; several statements allowed, the last rows are handed out.
    Status run(const char* sql, Rows* rows = nullptr) {
        if (PQsendQuery(connection_.get(), sql) != 1) return connection_error();
        return finish(rows);
    }

    // Waits for all answers; the first error counts.
    Status finish(Rows* rows = nullptr) {
        const auto deadline = Clock::now() + std::chrono::milliseconds(kRequestTimeoutMs);
        Status status;
        for (;;) {
            Status waited = wait_for_answer(deadline);
            if (!waited.ok()) return waited;
            Rows answer(PQgetResult(connection_.get()));
            if (answer.get() == nullptr) return status;
            if (!answer.succeeded() && status.ok()) status = error_of(answer.get());
            const bool has_rows = PQresultStatus(answer.get()) == PGRES_TUPLES_OK;
            if (has_rows && rows != nullptr) *rows = std::move(answer);
        }
    }

    Status wait_for_answer(Clock::time_point deadline) {
        while (PQisBusy(connection_.get()) != 0) {
            // The connection is closed: PQgetResult says why and does not block.
            if (PQsocket(connection_.get()) < 0) return {};
            const int flushed = PQflush(connection_.get());
            const int events = flushed == 1 ? POLLIN | POLLOUT : POLLIN;
            if (flushed < 0) return connection_error();
            if (!wait(events, deadline)) {
                connection_.reset();
                ready_ = false;
                return ErrorInfo{ErrorCode::kSinkTimeout,
                                 Advice::kRetryDestination,
                                 {},
                                 "the mailbox's database did not answer within " +
                                     std::to_string(kRequestTimeoutMs / 1000) +
                                     " s; the connection is made again"};
            }
            if (PQconsumeInput(connection_.get()) != 1) return connection_error();
        }
        return {};
    }

    bool wait(int events, Clock::time_point deadline) {
        pollfd entry{PQsocket(connection_.get()), static_cast<short>(events), 0};
        return ::poll(&entry, 1, remaining_ms(deadline)) > 0;
    }

    [[nodiscard]] ErrorInfo error_of(const PGresult* result) const {
        const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
        if (state == nullptr) return connection_error();
        const char* text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
        return mailbox_error(state, text == nullptr ? "" : text);
    }

    [[nodiscard]] ErrorInfo connection_error() const {
        const std::string_view message = PQerrorMessage(connection_.get());
        return mailbox_error(refused_state_in(message), where() + ": " + std::string(message));
    }

    [[nodiscard]] std::string where() const {
        const auto text = [](const char* value) { return std::string(value ? value : ""); };
        return text(PQdb(connection_.get())) + " at " + text(PQhost(connection_.get())) + ":" +
               text(PQport(connection_.get()));
    }

    MailboxConfig config_;
    postgres::Handle connection_;
    bool ready_ = false;
    std::string schema_;  // of the mailbox, quoted
    std::string ids_, topics_, keys_, headers_, payloads_;
};

}  // namespace

Result<std::unique_ptr<Client>> open_postgres_mailbox(const MailboxConfig& config) {
    char* message = nullptr;
    PQconninfoOption* options =
        PQconninfoParse(without_password_file(config.target).c_str(), &message);
    if (options != nullptr) {
        PQconninfoFree(options);
        return std::unique_ptr<Client>(std::make_unique<PostgresClient>(config));
    }
    // The message quotes the URL, its password included: only what stands before is passed on.
    std::string reason(message == nullptr ? "out of memory" : message);
    PQfreemem(message);
    reason = reason.substr(0, reason.find_first_of("\"\n"));
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     "not a mailbox URL (" + reason +
                         "...): write mailbox+postgresql://USER@HOST:PORT/DATABASE?mailbox=NAME "
                         "and percent-encode special characters"};
}

}  // namespace outbox::mailbox
