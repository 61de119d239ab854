#include <algorithm>
#include <array>
#include <libpq-fe.h>
#include <poll.h>

#include "core/transport.h"
#include "core/url.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/errors.h"
#include "secrets/password_file.h"

namespace outbox::postgres {
namespace {

constexpr int kMinServerVersion = 140000;
// Longer than any statement may take, so that a server that is slow says so itself.
constexpr std::chrono::seconds kMaxWait{65};

// Plans must not depend on when statistics were taken last: a cached plan made while the table was
// empty would read it from end to end for ever.
// With a path that names a schema in which others may create, a function or operator of theirs
// could be chosen for the server's own: the path is the catalog's, and our statements name the
// schema. A relay that is stopped in the middle of a transaction holds its locks for no longer than
// a lease lasts: they keep the one that stands by waiting.
constexpr const char* kSession =
    "SET TimeZone = 'UTC'; SET DateStyle = 'ISO'; SET jit = off; SET enable_seqscan = off; "
    "SET max_parallel_workers_per_gather = 0; "
    "SET standard_conforming_strings = on; SET client_min_messages = error; "
    "SET default_transaction_isolation = 'read committed'; SET statement_timeout = '60s'; "
    "SET lock_timeout = '10s'; SET idle_in_transaction_session_timeout = '5s'; "
    "SELECT pg_catalog.array_to_string(ARRAY(SELECT pg_catalog.quote_ident(s::pg_catalog.text) "
    "FROM pg_catalog.unnest(pg_catalog.current_schemas(false)) s), E'\x01'), "
    "pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', false)";
constexpr const char* kDurable =
    "SELECT set_config('synchronous_commit', 'on', false) "
    "WHERE current_setting('synchronous_commit') IN ('off', 'local')";

std::string text_or_empty(const char* text) {
    return text == nullptr ? std::string() : std::string(text);
}

ErrorContext context_of(const PGconn* connection) {
    ErrorContext context{text_or_empty(PQuser(connection)), text_or_empty(PQdb(connection)), {}};
    const std::string port = text_or_empty(PQport(connection));
    context.host = text_or_empty(PQhost(connection)) + (port.empty() ? "" : ":" + port);
    return context;
}

// A malformed URL is reported by libpq with the URL in the message, password included: so only
// what stands before the first quotation is passed on.
ErrorInfo url_error(const std::string& message) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "not a PostgreSQL URL (" + message.substr(0, message.find_first_of("\"\n")) +
                "...): write postgresql://USER@HOST:PORT/DATABASE and percent-encode special "
                "characters"};
}

ErrorInfo connect_error(PGconn* connection, bool timed_out, int timeout_s) {
    const ErrorContext context = context_of(connection);
    const std::string message = text_or_empty(PQerrorMessage(connection));
    std::string_view text;
    if (const std::string_view state = sqlstate_in(message, &text); !state.empty()) {
        return relay_error(state, text, context);
    }
    // Values that libpq finds wrong before it connects.
    if (message.find("invalid ") != std::string::npos && PQsocket(connection) < 0) {
        return url_error(message);
    }
    const std::string reason =
        timed_out ? "no answer within " + std::to_string(timeout_s) + " s" : redacted_line(message);
    std::string_view remedy = certificate_remedy(message);
    if (remedy.empty()) remedy = "check host and port of the URL and that the server runs";
    return {ErrorCode::kConnectFailed,
            Advice::kRetryDestination,
            {},
            "cannot connect to PostgreSQL at " + context.host + ": " + reason + "; " +
                std::string(remedy)};
}

Status check_url(const std::string& url) {
    char* message = nullptr;
    PQconninfoOption* options = PQconninfoParse(url.c_str(), &message);
    if (options != nullptr) {
        PQconninfoFree(options);
        return {};
    }
    const std::string reason = text_or_empty(message);
    PQfreemem(message);
    return url_error(reason);
}

// Drives the connection attempt; false when the time is over.
bool poll_connection(PGconn* connection, std::chrono::steady_clock::time_point deadline) {
    PostgresPollingStatusType state = PGRES_POLLING_WRITING;
    while (state != PGRES_POLLING_OK && state != PGRES_POLLING_FAILED) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd entry{PQsocket(connection),
                     static_cast<short>(state == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};
        if (::poll(&entry, 1, static_cast<int>(left.count())) == 0) return false;
        state = PQconnectPoll(connection);
    }
    return true;
}

}  // namespace

Result<Connection> Connection::open(const std::string& url, int timeout_s, Kind kind) {
    const Result<std::string> target = with_password(url);
    if (!target.ok()) return target.status();
    if (Status status = check_url(*target); !status.ok()) return status;
    // What stands before dbname is a default that the URL may change; what stands behind is not.
    const bool replication = kind == Kind::kReplication;
    const std::array<const char*, 10> names{
        "fallback_application_name", "keepalives_idle",
        "keepalives_interval",       "keepalives_count",
        "tcp_user_timeout",          "dbname",
        "client_encoding",           replication ? "replication" : nullptr,
        "application_name",          nullptr};
    const std::array<const char*, 10> values{"outbox", "5",        "2",
                                             "3",      "15000",    target->c_str(),
                                             "UTF8",   "database", kStreamApplicationName,
                                             nullptr};
    Connection made(PQconnectStartParams(names.data(), values.data(), 1));
    PGconn* connection = made.connection_.get();
    if (connection == nullptr) {
        return ErrorInfo{ErrorCode::kInternal, Advice::kStop, {}, "out of memory"};
    }
    PQsetErrorVerbosity(connection, PQERRORS_VERBOSE);
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(timeout_s);
    const bool in_time =
        PQstatus(connection) == CONNECTION_BAD || poll_connection(connection, deadline);
    if (!in_time || PQstatus(connection) != CONNECTION_OK) {
        return connect_error(connection, !in_time, timeout_s);
    }
    PQsetErrorVerbosity(connection, PQERRORS_DEFAULT);
    PQsetNoticeProcessor(connection, [](void*, const char*) {}, nullptr);
    if (made.server_version() < kMinServerVersion) {
        return ErrorInfo{ErrorCode::kUnsupported,
                         Advice::kStop,
                         {},
                         "PostgreSQL " + std::to_string(made.server_version() / 10000) +
                             " is too old: 14 or newer is needed"};
    }
    made.limit_waits(std::chrono::seconds(timeout_s));
    Result<Rows> path = made.checked(made.answer_to(kSession));
    if (!path.ok()) return path.status();
    for (std::string_view rest = path->text(0, 0); !rest.empty();) {
        const auto end = std::min(rest.find('\x01'), rest.size());
        made.schemas_.emplace_back(rest.substr(0, end));
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    if (Status status = made.execute(kDurable); !status.ok()) return status;
    made.limit_waits(kMaxWait);
    return made;
}

ErrorInfo Connection::error_of(const pg_result* result) const {
    const ErrorContext context = context_of(connection_.get());
    if (silent_) {
        return {ErrorCode::kConnectionLost,
                Advice::kRetryDestination,
                {},
                "PostgreSQL at " + context.host + " gave no answer within " +
                    std::to_string(max_wait_.count() / 1000) + " s; is it overloaded or stopped?"};
    }
    const char* state = result == nullptr ? nullptr : PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char* text =
        result == nullptr ? nullptr : PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state == nullptr || text == nullptr) {
        return relay_error("", PQerrorMessage(connection_.get()), context);
    }
    return relay_error(state, text, context);
}

}  // namespace outbox::postgres
