#include "databases/postgres/receive/session.h"

#include <chrono>
#include <cmath>
#include <libpq-events.h>
#include <libpq-fe.h>
#include <tuple>
#include <utility>

#include "core/sql_text.h"
#include "core/url.h"
#include "databases/postgres/row_security.h"

namespace outbox::consumer {
namespace {

// A handler may run long, so no statement_timeout; but a session whose client is gone must not keep
// the mailbox: the kernel notices a dead peer in about 10 s, and the server asks each second.
constexpr const char* kSession =
    "SET client_min_messages = warning; SET standard_conforming_strings = on; "
    "SET client_connection_check_interval = '1s'; SET tcp_keepalives_idle = 5; "
    "SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

}  // namespace

void check_postgres_url(const std::string& url) {
    // libpq ends the password at the first "@", and would show the rest as a host.
    if (url.starts_with("postgresql://") || url.starts_with("postgres://")) {
        std::ignore = parse_url(url).value_or_throw();
    }
    const std::string fault = postgres::url_fault(url);
    if (!fault.empty()) throw Error(postgres::url_error(fault));
}

LibpqSession::LibpqSession(std::string url, int connect_timeout_s, std::vector<Prepared> statements,
                           std::vector<Right> rights)
    : url_(std::move(url)),
      connect_timeout_s_(connect_timeout_s),
      prepared_(std::move(statements)),
      rights_(std::move(rights)),
      watch_(url_, std::chrono::seconds(connect_timeout_s), "outbox consumer's watch") {}

// A transaction that stays open is a handler's: its statements are waited for as well.
LibpqSession::Use::~Use() {
    const PGTransactionStatusType state = PQtransactionStatus(session_.connection());
    if (state == PQTRANS_IDLE || state == PQTRANS_UNKNOWN) {
        session_.watch_.idle();
    } else {
        session_.watch_.lent();
    }
}

Status LibpqSession::connect() {
    if (sound()) return {};
    disconnect();
    ++number_;
    const Use use(*this);
    Status status = open();
    if (status.ok()) status = watch_.follow(connection());
    if (status.ok()) status = set_up();
    if (!status.ok()) disconnect();
    return status;
}

Status LibpqSession::open() {
    // A host that vanished is noticed in about 10 s.
    constexpr postgres::Setting kDefaults[] = {{"fallback_application_name", "outbox consumer"},
                                               {"keepalives_idle", "5"},
                                               {"keepalives_interval", "2"},
                                               {"keepalives_count", "3"},
                                               {"tcp_user_timeout", "10000"}};
    const std::chrono::seconds timeout(connect_timeout_s_);
    if (Status status = client_.connect(url_, timeout, kDefaults); !status.ok()) return status;
    if (!client_.in_time()) {
        return {ErrorCode::kConnectFailed, Advice::kRetryDestination,
                "connecting to the consumer's database: no answer within " +
                    std::to_string(timeout.count()) + " s"};
    }
    if (client_.sound()) {
        if (is_limited()) client_.send_without_waiting();
        return {};
    }
    const std::string message = client_.message();
    ErrorInfo error = receive_error(postgres::refused_state_in(message), message,
                                    "connecting to the consumer's database");
    if (error.code == ErrorCode::kConnectionLost) error.code = ErrorCode::kConnectFailed;
    if (const auto remedy = postgres::refusal_remedy(message); !remedy.empty()) {
        error.message += "; " + std::string(remedy);
    }
    return error;
}

Status LibpqSession::set_up() {
    if (Status status = run(kSession, "preparing the session"); !status.ok()) return status;
    watch_.identify(client_);
    for (const Prepared& statement : prepared_) {
        const Rows prepared(PQprepare(connection(), statement.name, statement.sql, 0, nullptr));
        if (!prepared.succeeded()) {
            return receive_error(connection(), prepared.get(), "preparing the consumer");
        }
    }
    if (Status status = check_rights(); !status.ok()) return status;
    watch_results();
    return {};
}

// All that is missing at once, as the statements that mend it.
Status LibpqSession::check_rights() {
    if (rights_.empty()) return {};
    std::string wanted;
    for (const Right& right : rights_) {
        wanted += std::string(wanted.empty() ? "" : ", ") + "('" + right.table + "', '" +
                  right.privileges + "')";
    }
    const std::string sql =
        "SELECT string_agg(format('GRANT %s ON %s TO %I', privileges, name, current_user), '; ') "
        "FROM (VALUES " +
        wanted +
        ") w (name, privileges) WHERE EXISTS (SELECT FROM unnest(string_to_array(privileges, "
        "', ')) p WHERE NOT has_table_privilege(name, p)) HAVING count(*) > 0";
    const Rows missing = postgres::execute(connection(), sql.c_str());
    if (!missing.succeeded()) {
        return receive_error(connection(), missing.get(), "looking for rights");
    }
    if (!missing.empty()) {
        return {ErrorCode::kNoRights, Advice::kStop,
                "the user lacks rights that the consumer needs; " + missing.string(0, 0), "42501"};
    }
    const Rows hides = postgres::execute(connection(), postgres::hides_rows_sql(wanted).c_str());
    if (!hides.succeeded()) {
        return receive_error(connection(), hides.get(), "looking for row security");
    }
    if (hides.empty()) return {};
    return {ErrorCode::kNoRights, Advice::kStop,
            postgres::hides_rows_text(hides.string(0, 0), quote_identifier(PQuser(connection()))),
            "42501"};
}

// A handler's own statements are not seen here, but what comes of them is: errors decide what a
// failure means.
void LibpqSession::watch_results() {
    PQregisterEventProc(
        connection(),
        [](PGEventId event, void* info, void* session) {
            return LibpqSession::on_result(event, info, session);
        },
        "outbox consumer", this);
}

int LibpqSession::on_result(int event, void* info, void* session) {
    if (event != PGEVT_RESULTCREATE) return 1;
    PGresult* result = static_cast<PGEventResultCreate*>(info)->result;
    auto& self = *static_cast<LibpqSession*>(session);
    if (PQresultStatus(result) == PGRES_COMMAND_OK) self.heed_command(PQcmdStatus(result));
    if (PQresultStatus(result) != PGRES_FATAL_ERROR) return 1;
    const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char* text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    self.error_state_ = state == nullptr ? "" : state;
    self.error_text_ = text == nullptr ? "" : text;
    return 1;
}

void LibpqSession::heed_command(std::string_view tag) {
    if (tag == "ROLLBACK") may_have_rolled_back_ = true;
    if (tag == "BEGIN" || tag == "START TRANSACTION") left_transaction_ |= may_have_rolled_back_;
    if (tag == "COMMIT" || tag == "PREPARE TRANSACTION") left_transaction_ = true;
}

Rows LibpqSession::ask(const char* statement, const Params& params) {
    return client_.collect(
        postgres::send(connection(), statement, params, postgres::Format::kText));
}

ErrorInfo LibpqSession::silence() const {
    const std::chrono::duration<double> waited = client_.patience().most;
    return {ErrorCode::kConnectionLost,
            Advice::kRetryDestination,
            {},
            "PostgreSQL at " + client_.host() + " gave no answer within " +
                std::to_string(std::lround(waited.count())) + " s; is it overloaded or stopped?"};
}

Status LibpqSession::run(const char* sql, const char* doing) {
    const Rows result =
        is_limited() ? client_.answer_to(sql) : postgres::execute(connection(), sql);
    if (result.succeeded()) return {};
    if (silent()) return lost(silence());
    return lost(receive_error(connection(), result.get(), doing));
}

Result<Rows> LibpqSession::execute(const char* statement, const Params& params, const char* doing) {
    const Use use(*this);
    Rows result = postgres::execute_prepared(connection(), statement, params);
    if (result.succeeded()) return result;
    return lost(receive_error(connection(), result.get(), doing));
}

// An error that is the database's may outlive the session (tables made again, statements dropped by
// a handler's DISCARD): the next `connect` starts afresh.
ErrorInfo LibpqSession::lost(ErrorInfo error) {
    // No outage: it does not pass by itself.
    if (error.code == ErrorCode::kNoRights) error.advice = Advice::kStop;
    if (error.advice == Advice::kRetryDestination) disconnect();
    return error;
}

Result<std::vector<Rows>> LibpqSession::begin_with(std::span<const Step> steps, const char* doing) {
    const Use use(*this);
    error_state_.clear();
    std::vector<Step> all{{"BEGIN", nullptr, false}};
    all.insert(all.end(), steps.begin(), steps.end());
    return begun(run_together(connection(), all, doing), 1);
}

// What came after the first `skip` statements.
Result<std::vector<Rows>> LibpqSession::begun(StepResults results, std::size_t skip) {
    may_have_rolled_back_ = left_transaction_ = false;
    if (!results.error) {
        results.done.erase(results.done.begin(),
                           results.done.begin() + static_cast<std::ptrdiff_t>(skip));
        return std::move(results.done);
    }
    const Status ended = end_transaction();
    if (!ended.ok()) return ended;
    return lost(*std::move(results.error));
}

LibpqSession::Turn LibpqSession::commit_and_begin_with(std::span<const Step> steps,
                                                       const char* doing) {
    if (Status status = may_commit(); !status.ok()) return {std::move(status), {}};
    const Use use(*this);
    error_state_.clear();
    std::vector<Step> all{{"COMMIT", nullptr, false}, {"BEGIN", nullptr, false}};
    const std::size_t skip = all.size();
    all.insert(all.end(), steps.begin(), steps.end());
    StepResults results = run_together(connection(), all, doing);
    if (results.done.empty()) {
        return {refused_commit(results.error ? *std::move(results.error) : ErrorInfo{}), {}};
    }
    return {Status(), begun(std::move(results), skip)};
}

Status LibpqSession::commit() {
    if (Status status = may_commit(); !status.ok()) return status;
    const Use use(*this);
    const Rows result = postgres::execute(connection(), "COMMIT");
    if (result.succeeded()) return {};
    return refused_commit(receive_error(connection(), result.get(), "committing"));
}

// What a deferred trigger may not do is the message's fault.
ErrorInfo LibpqSession::refused_commit(ErrorInfo error) {
    if (error.code == ErrorCode::kNoRights) {
        error.advice = Advice::kRetryEvent;
        return error;
    }
    return lost(std::move(error));
}

Status LibpqSession::may_commit() {
    const auto handler_failed = [&](const std::string& what) {
        return ErrorInfo{ErrorCode::kHandlerFailed, Advice::kRetryEvent, error_state_, what};
    };
    constexpr const char* kEndedByHandler =
        "the handler ended the transaction; it must neither commit nor roll back";
    switch (PQtransactionStatus(connection())) {
        case PQTRANS_INTRANS: {
            if (!left_transaction_) return {};
            const Status ended = end_transaction();
            return ended.ok() ? Status(handler_failed(kEndedByHandler)) : ended;
        }
        case PQTRANS_INERROR: {
            ErrorInfo cause =
                handler_failed("a statement of the handler failed and it went on: " + error_text_);
            const Status ended = roll_back(cause);
            return ended.ok() ? Status(std::move(cause)) : ended;
        }
        case PQTRANS_IDLE:
            return handler_failed(kEndedByHandler);
        case PQTRANS_ACTIVE:
            disconnect();
            return handler_failed("the handler left a statement of its own running");
        case PQTRANS_UNKNOWN:
            break;
    }
    return end_transaction();
}

Status LibpqSession::roll_back(ErrorInfo& cause) {
    if (PQtransactionStatus(connection()) == PQTRANS_ACTIVE) {
        disconnect();
        return {};
    }
    if (Status ended = end_transaction(); !ended.ok()) return ended;
    constexpr std::string_view kConflictClass = "40";
    constexpr std::string_view kDiskFull = "53100";  // which is not the message's fault
    if (error_state_.starts_with(kConflictClass) || error_state_ == kDiskFull) {
        cause = receive_error(error_state_, error_text_, "applying a message");
    }
    return {};
}

Status LibpqSession::end_transaction() {
    if (!connected()) return {};
    const Use use(*this);
    switch (PQtransactionStatus(connection())) {
        case PQTRANS_IDLE:
            return {};
        case PQTRANS_INTRANS:
        case PQTRANS_INERROR:
            return run("ROLLBACK", "rolling back");
        case PQTRANS_ACTIVE:
        case PQTRANS_UNKNOWN:
            break;
    }
    const std::string reason = PQerrorMessage(connection());
    disconnect();
    return receive_error({}, reason, "applying a message");
}

}  // namespace outbox::consumer
