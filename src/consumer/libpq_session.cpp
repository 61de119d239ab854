#include "consumer/libpq_session.h"

#include <chrono>
#include <libpq-events.h>
#include <poll.h>
#include <utility>

#include "consumer/mailbox_store.h"

namespace outbox::consumer {
namespace {

// A handler may run long, so no statement_timeout; but a session whose client is gone must not keep
// the mailbox: the kernel notices a dead peer in about 10 s, and the server asks each second.
constexpr const char* kSession =
    "SET client_min_messages = warning; SET standard_conforming_strings = on; "
    "SET client_connection_check_interval = '1s'; SET tcp_keepalives_idle = 5; "
    "SET tcp_keepalives_interval = 2; SET tcp_keepalives_count = 3";

// "FATAL:  28P01: ..." -> "28P01": a failed connection tells its state only in the verbose text.
std::string_view state_in(std::string_view message) {
    constexpr std::size_t kStateSize = 5;
    const auto at = message.find(":  ");
    if (at == std::string_view::npos) return {};
    const std::string_view rest = message.substr(at + 3);
    if (rest.size() <= kStateSize || rest[kStateSize] != ':') return {};
    const std::string_view state = rest.substr(0, kStateSize);
    constexpr std::string_view kLetters = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    return state.find_first_not_of(kLetters) == std::string_view::npos ? state : std::string_view();
}

bool wait_for_socket(const PGconn* connection, PostgresPollingStatusType state,
                     std::chrono::steady_clock::time_point deadline) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - std::chrono::steady_clock::now());
    pollfd entry{PQsocket(connection),
                 static_cast<short>(state == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};
    return left.count() > 0 && ::poll(&entry, 1, static_cast<int>(left.count())) > 0;
}

}  // namespace

// libpq's message quotes the URL, its password included: only what stands before is passed on.
void check_postgres_url(const std::string& url) {
    char* message = nullptr;
    PQconninfoOption* parsed = PQconninfoParse(url.c_str(), &message);
    if (parsed != nullptr) {
        PQconninfoFree(parsed);
        return;
    }
    const std::string reason(message == nullptr ? "out of memory" : message);
    PQfreemem(message);
    throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                "not a PostgreSQL URL (" + reason.substr(0, reason.find_first_of("\"\n")) +
                    "...): write postgresql://USER@HOST:PORT/DATABASE and percent-encode special "
                    "characters");
}

const char* const kReportFigures =
    "INSERT INTO outbox_inbox_stats "
    "  (consumer, member, applied, repeats, failed, dead, lag) "
    "VALUES ($1, $2, $3::bigint, $4::bigint, $5::bigint, $6::bigint, $7::bigint) "
    "ON CONFLICT (consumer, member) DO UPDATE SET applied = excluded.applied, "
    "  repeats = excluded.repeats, failed = excluded.failed, dead = excluded.dead, "
    "  lag = excluded.lag, updated_at = excluded.updated_at";

Status report_figures(LibpqSession& session, std::string_view consumer, std::string_view member,
                      const Figures& figures) {
    Params params;
    params.text(consumer).text(member);
    params.number(static_cast<std::int64_t>(figures.applied));
    params.number(static_cast<std::int64_t>(figures.repeats));
    params.number(static_cast<std::int64_t>(figures.failed));
    params.number(static_cast<std::int64_t>(figures.dead));
    params.number_or_null(figures.lag);
    // Not by `execute`: a role without the right to write figures must not lose its session.
    const PgResult result = params.execute_prepared(session.connection(), "outbox_report");
    if (succeeded(result.get())) return {};
    return pg_error(session.connection(), result.get(), "writing outbox_inbox_stats");
}

LibpqSession::LibpqSession(std::string url, int connect_timeout_s,
                           std::span<const Statement> statements, const char* rights)
    : url_(std::move(url)),
      connect_timeout_s_(connect_timeout_s),
      prepared_(statements),
      rights_(rights) {}

Status LibpqSession::connect() {
    if (connection_ && PQstatus(connection_.get()) == CONNECTION_OK) return {};
    disconnect();
    Status status = open();
    if (status.ok()) status = set_up();
    if (!status.ok()) disconnect();
    return status;
}

Status LibpqSession::open() {
    const std::string timeout = std::to_string(connect_timeout_s_);
    const char* names[] = {"connect_timeout", "fallback_application_name", "dbname",
                           "client_encoding", nullptr};
    const char* values[] = {timeout.c_str(), "outbox consumer", url_.c_str(), "UTF8", nullptr};
    connection_.reset(PQconnectStartParams(names, values, 1));
    if (!connection_) return {ErrorCode::kInternal, Advice::kStop, "out of memory"};
    PGconn* connection = connection_.get();
    // Only so does a refused connection tell its SQLSTATE.
    PQsetErrorVerbosity(connection, PQERRORS_VERBOSE);
    const auto deadline =
        std::chrono::steady_clock::now() + std::chrono::seconds(connect_timeout_s_);
    auto state =
        PQstatus(connection) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
        if (!wait_for_socket(connection, state, deadline)) {
            return {ErrorCode::kConnectFailed, Advice::kRetryDestination,
                    "connecting to the consumer's database: no answer within " + timeout + " s"};
        }
        state = PQconnectPoll(connection);
    }
    if (state == PGRES_POLLING_OK) {
        PQsetErrorVerbosity(connection, PQERRORS_DEFAULT);
        return {};
    }
    const std::string_view message = PQerrorMessage(connection);
    ErrorInfo error = pg_error(state_in(message), message, "connecting to the consumer's database");
    if (error.code == ErrorCode::kConnectionLost) error.code = ErrorCode::kConnectFailed;
    return error;
}

Status LibpqSession::set_up() {
    if (Status status = run(kSession, "preparing the session"); !status.ok()) return status;
    for (const Statement& statement : prepared_) {
        const PgResult prepared(PQprepare(connection_.get(), statement.name, statement.sql,
                                          statement.parameters, nullptr));
        if (!succeeded(prepared.get())) {
            return pg_error(connection_.get(), prepared.get(), "preparing the consumer");
        }
    }
    const PgResult rights(PQexec(connection_.get(), rights_));
    if (!succeeded(rights.get())) {
        return pg_error(connection_.get(), rights.get(), "looking for rights");
    }
    if (PQntuples(rights.get()) == 0) {
        return pg_error("42501", "the user may not read and write the consumer's tables",
                        "preparing the consumer");
    }
    watch_results();
    return {};
}

// A handler's own statements are not seen here, but their errors decide what a failure means.
void LibpqSession::watch_results() {
    PQregisterEventProc(
        connection_.get(),
        [](PGEventId event, void* info, void* session) {
            return LibpqSession::on_result(event, info, session);
        },
        "outbox consumer", this);
}

int LibpqSession::on_result(int event, void* info, void* session) {
    if (event != PGEVT_RESULTCREATE) return 1;
    const PGresult* result = static_cast<PGEventResultCreate*>(info)->result;
    if (PQresultStatus(result) != PGRES_FATAL_ERROR) return 1;
    auto& self = *static_cast<LibpqSession*>(session);
    const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char* text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    self.error_state_ = state == nullptr ? "" : state;
    self.error_text_ = text == nullptr ? "" : text;
    return 1;
}

Status LibpqSession::run(const char* sql, const char* doing) {
    const PgResult result(PQexec(connection_.get(), sql));
    if (succeeded(result.get())) return {};
    return lost(pg_error(connection_.get(), result.get(), doing));
}

Result<PgResult> LibpqSession::execute(const char* statement, const Params& params,
                                       const char* doing) {
    PgResult result = params.execute_prepared(connection_.get(), statement);
    if (succeeded(result.get())) return result;
    return lost(pg_error(connection_.get(), result.get(), doing));
}

// An error that is the database's may outlive the session (tables made again, statements dropped by
// a handler's DISCARD): the next `connect` starts afresh.
ErrorInfo LibpqSession::lost(ErrorInfo error) {
    if (error.advice == Advice::kRetryDestination) disconnect();
    return error;
}

Status LibpqSession::begin() {
    error_state_.clear();
    return run("BEGIN", "beginning a transaction");
}

Status LibpqSession::commit() {
    const auto handler_failed = [&](const std::string& what) {
        return ErrorInfo{ErrorCode::kHandlerFailed, Advice::kRetryEvent, error_state_, what};
    };
    switch (PQtransactionStatus(connection_.get())) {
        case PQTRANS_INTRANS:
            break;
        case PQTRANS_INERROR: {
            ErrorInfo cause =
                handler_failed("a statement of the handler failed and it went on: " + error_text_);
            const Status ended = roll_back(cause);
            return ended.ok() ? Status(std::move(cause)) : ended;
        }
        case PQTRANS_IDLE:
            return handler_failed(
                "the handler ended the transaction; it must neither commit nor roll back");
        case PQTRANS_ACTIVE:
            disconnect();
            return handler_failed("the handler left a statement of its own running");
        case PQTRANS_UNKNOWN:
            return end_transaction();
    }
    const PgResult result(PQexec(connection_.get(), "COMMIT"));
    if (succeeded(result.get())) return {};
    return lost(pg_error(connection_.get(), result.get(), "committing"));
}

Status LibpqSession::roll_back(ErrorInfo& cause) {
    if (PQtransactionStatus(connection_.get()) == PQTRANS_ACTIVE) {
        disconnect();
        return {};
    }
    if (Status ended = end_transaction(); !ended.ok()) return ended;
    constexpr std::string_view kConflictClass = "40";
    if (error_state_.starts_with(kConflictClass)) {
        cause = pg_error(error_state_, error_text_, "applying a message");
    }
    return {};
}

Status LibpqSession::end_transaction() {
    if (!connection_) return {};
    switch (PQtransactionStatus(connection_.get())) {
        case PQTRANS_IDLE:
            return {};
        case PQTRANS_INTRANS:
        case PQTRANS_INERROR:
            return run("ROLLBACK", "rolling back");
        case PQTRANS_ACTIVE:
        case PQTRANS_UNKNOWN:
            break;
    }
    const std::string reason = PQerrorMessage(connection_.get());
    disconnect();
    return pg_error({}, reason, "applying a message");
}

}  // namespace outbox::consumer
