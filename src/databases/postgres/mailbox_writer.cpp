#include "databases/postgres/mailbox_writer.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <libpq-fe.h>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/sql_text.h"
#include "databases/postgres/arrays.h"
#include "databases/postgres/client.h"
#include "databases/postgres/elsewhere.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/owners.h"
#include "databases/postgres/sql_files.h"
#include "databases/postgres/statement.h"
#include "mailbox/errors.h"

namespace outbox::mailbox {
namespace {

constexpr Oid kByteaOid = 17;
constexpr Oid kTextOid = 25;
constexpr Oid kByteaArrayOid = 1001;
constexpr Oid kTextArrayOid = 1009;

// Statements end on the server before we stop waiting for them.
constexpr const char* kSession =
    "SET client_min_messages = error; SET statement_timeout = '8s'; SET lock_timeout = '5s'; "
    "SET standard_conforming_strings = on; ";

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
           quote_literal(table) + "::text AS t) x";
}

// Positions are given in the order of the arrays.
constexpr const char* kInsertName = "outbox_mailbox_insert";
// It has a transaction id before it takes a position (`postgres::Settled`).
constexpr const char* kInsert =
    ".outbox_mailbox (mailbox, id, topic, key, headers, payload) "
    "SELECT $1, r.id, r.topic, r.key, r.headers::json, r.payload "
    "FROM unnest($2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[]) WITH ORDINALITY "
    "     AS r(id, topic, key, headers, payload, n) "
    "WHERE pg_current_xact_id() IS NOT NULL "
    "ORDER BY r.n ON CONFLICT (mailbox, id) DO NOTHING";

using postgres::mailbox_error;
using postgres::refused_state_in;
using postgres::Rows;

void encode(std::string& out, Oid element, std::span<const Row> rows,
            std::string_view Row::* field) {
    postgres::encode_array(out, element, rows.size(),
                           [&](std::size_t i) { return rows[i].*field; });
}

class PostgresClient final : public Client {
  public:
    explicit PostgresClient(const MailboxConfig& config) : config_(config) {}

    Status prepare() override {
        if (ready_ && connection_.sound() && !connection_.replaced()) return {};
        return start(true);
    }

    Status look() override { return start(false); }

    // A standby that takes over has the same name. Makes nothing: who only looks asks it, too.
    Result<std::string> destination() override {
        const bool ready = ready_ && connection_.sound() && !connection_.replaced();
        if (!ready) {
            ready_ = false;
            bool there = false;
            Status status = connect();
            if (status.ok()) status = find_table(false, there);
            if (!status.ok()) {
                connection_.close();
                return status;
            }
        }
        auto name = ask_name();
        if (!ready) connection_.close();
        return name;
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
        Rows inserted;
        Status status =
            answered(connection_.collect(postgres::send_prepared(connection_.handle(), kInsertName,
                                                                 params, postgres::Format::kText)),
                     &inserted);
        // The relay forgets a repeat, too, so what inserted it must be as durable as what is new.
        if (status.ok() && inserted.affected() == 0) status = run(postgres::kWaitAsAWrite);
        // Another server, a new plan, a table created again: the next batch starts afresh.
        const bool keep = status.ok() || blames_a_message(status.error().advice) ||
                          may_concern_a_row(status.error());
        if (!keep) drop();
        return status;
    }

    void drop() override {
        connection_.close();
        ready_ = false;
    }

    [[nodiscard]] bool may_concern_a_row(const ErrorInfo& error) const override {
        return postgres::may_concern_rows(connection_.handle(), error);
    }

  private:
    Result<std::string> ask_name() {
        Rows answer;
        const std::string sql =
            "SELECT 'postgresql ' || system_identifier || '/' || current_database() || '.' || "
            "(parse_ident(" +
            quote_literal(schema_) + "))[1] FROM pg_control_system()";
        const Status asked = run(sql.c_str(), &answer);
        if (!asked.ok()) return asked;
        return answer.string(0, 0) + ", mailbox " + config_.mailbox;
    }

    // A second one, which nobody reads, would be made where the path leads.
    Status require_no_other() {
        Rows other;
        const std::string sql = postgres::elsewhere_sql("outbox_mailbox");
        if (Status status = run(sql.c_str(), &other); !status.ok()) return status;
        if (other.empty()) return {};
        return postgres::elsewhere("the mailboxes (outbox_mailbox)", other.string(0, 0), where());
    }

    Status start(bool make_table) {
        ready_ = false;
        bool there = true;
        Status status = connect();
        if (status.ok()) status = find_table(make_table, there);
        if (status.ok() && there) status = prepare_insert();
        ready_ = status.ok() && there;
        if (!ready_) connection_.close();
        return status;
    }

    Status connect() {
        constexpr postgres::Setting kName[] = {{"fallback_application_name", "outbox mailbox"}};
        const std::chrono::seconds timeout(config_.connect_timeout_s);
        if (Status status = connection_.connect(config_.target, timeout, kName); !status.ok()) {
            return {status.error().code, Advice::kRetryDestination, status.error().message};
        }
        if (!connection_.in_time()) {
            return mailbox_error({}, "no answer from " + where() + " within " +
                                         std::to_string(timeout.count()) + " s");
        }
        if (!connection_.sound()) return connection_error();
        connection_.send_without_waiting();
        connection_.limit_waits({.most = std::chrono::milliseconds(kRequestTimeoutMs)});
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
            if (Status status = require_no_other(); !status.ok()) return status;
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
                                     quote_literal(place.string(0, 1)) + ", false)";
            if (Status status = run(path.c_str()); !status.ok()) return status;
        }
        return {};
    }

    Status prepare_insert() {
        // Refused when columns or the unique constraint are missing.
        constexpr Oid kTypes[] = {kTextOid,      kTextArrayOid, kTextArrayOid,
                                  kTextArrayOid, kTextArrayOid, kByteaArrayOid};
        const std::string insert = "INSERT INTO " + schema_ + kInsert;
        return answered(connection_.collect(
            PQsendPrepare(connection_.handle(), kInsertName, insert.c_str(), 6, kTypes) == 1));
    }

    // Its owner could have the relay's role run anything.
    Status require_owner(const std::string& schema) {
        constexpr std::array<std::string_view, 1> kNames{"outbox_mailbox"};
        const std::string sql =
            postgres::foreign_objects_sql(schema, kNames, {config_.owners, true});
        Rows foreign;
        if (Status status = run(sql.c_str(), &foreign); !status.ok()) return status;
        if (foreign.empty()) return {};
        return {ErrorCode::kNoRights, Advice::kRetryDestination,
                foreign.string(0, 0) + " in " + where() +
                    ", who could have it run anything with the rights of this role; if that role "
                    "may own the mailbox name it in the URL: ?owner=ROLE; else have it dropped",
                std::string(postgres::kForeignOwnerState)};
    }

    // Also for an owner, whose path may be any.
    [[nodiscard]] std::string table_sql() const {
        return "BEGIN;\n" + std::string(postgres::kCatalogPath) +
               postgres::fill_sql(embedded_sql_text("consumer/postgres/mailbox.sql"), schema_) +
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

    // Simple protocol; several statements allowed, the last one's rows are handed out.
    Status run(const char* sql, Rows* rows = nullptr) {
        return answered(connection_.answer_to(sql), rows);
    }

    Status answered(Rows answer, Rows* rows = nullptr) {
        if (connection_.silent()) {
            drop();
            return ErrorInfo{ErrorCode::kSinkTimeout,
                             Advice::kRetryDestination,
                             {},
                             "the mailbox's database did not answer within " +
                                 std::to_string(kRequestTimeoutMs / 1000) +
                                 " s; the connection is made again"};
        }
        if (!answer.succeeded()) return error_of(answer);
        if (rows != nullptr) *rows = std::move(answer);
        return {};
    }

    [[nodiscard]] ErrorInfo error_of(const Rows& rows) const {
        return rows.state().data() == nullptr ? connection_error()
                                              : mailbox_error(rows.state(), rows.message());
    }

    [[nodiscard]] ErrorInfo connection_error() const {
        const std::string message = connection_.message();
        return mailbox_error(refused_state_in(message), where() + ": " + message);
    }

    [[nodiscard]] std::string where() const {
        return connection_.database() + " at " + connection_.host();
    }

    MailboxConfig config_;
    postgres::Client connection_;
    bool ready_ = false;
    std::string schema_;  // of the mailbox, quoted
    std::string ids_, topics_, keys_, headers_, payloads_;
};

}  // namespace

Result<std::unique_ptr<Client>> open_postgres_mailbox(const MailboxConfig& config) {
    const std::string fault = postgres::url_fault(config.target);
    if (fault.empty()) return std::unique_ptr<Client>(std::make_unique<PostgresClient>(config));
    return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, "",
                     "not a mailbox URL (" + fault +
                         "...): write mailbox+postgresql://USER@HOST:PORT/DATABASE?mailbox=NAME "
                         "and percent-encode special characters"};
}

}  // namespace outbox::mailbox
