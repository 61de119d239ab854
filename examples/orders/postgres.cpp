#include "postgres.h"

#include <array>
#include <chrono>
#include <libpq-events.h>
#include <poll.h>
#include <string_view>
#include <unordered_map>

#include <outbox/error.h>

namespace orders {

namespace {

using outbox::Advice;
using outbox::ErrorCode;

constexpr std::chrono::seconds kStatementTimeout{10};

struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
};
using PgResult = std::unique_ptr<PGresult, Clear>;

[[noreturn]] void away(const std::string& message) {
    throw outbox::Error({ErrorCode::kConnectionLost, Advice::kRetryDestination, {}, message});
}

/// SQLSTATEs after which the same statement may work later: connection trouble, no resources,
/// shutdown, a server that is starting or is read-only for now.
bool is_away(std::string_view state) {
    return state.starts_with("08") || state.starts_with("53") || state.starts_with("57P") ||
           state == "57014" || state == "25006";
}

Advice advice_for(std::string_view state) {
    if (is_away(state)) return Advice::kRetryDestination;
    if (state.starts_with("40")) return Advice::kRetryEvent;
    const bool about_data = state.starts_with("22") || state.starts_with("23");
    return about_data ? Advice::kDeadLetter : Advice::kStop;
}

ErrorCode code_for(Advice advice) {
    if (advice == Advice::kRetryDestination) return ErrorCode::kConnectionLost;
    return advice == Advice::kRetryEvent ? ErrorCode::kConflict : ErrorCode::kQueryFailed;
}

[[noreturn]] void fail(const PGconn* connection, const PGresult* result) {
    const char* state = result != nullptr ? PQresultErrorField(result, PG_DIAG_SQLSTATE) : nullptr;
    const std::string message = PQerrorMessage(connection);
    const bool lost = state == nullptr || PQstatus(connection) == CONNECTION_BAD;
    const Advice advice = lost ? Advice::kRetryDestination : advice_for(state);
    throw outbox::Error({code_for(advice), advice, state != nullptr ? state : "", message});
}

/// Waits for the statement that was sent. A server that hangs must not hold a worker for ever.
void wait_for_result(PGconn* connection) {
    const auto deadline = std::chrono::steady_clock::now() + kStatementTimeout;
    while (PQisBusy(connection) != 0) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
            deadline - std::chrono::steady_clock::now());
        pollfd socket{PQsocket(connection), POLLIN, 0};
        if (left.count() <= 0 || poll(&socket, 1, static_cast<int>(left.count())) == 0)
            away("the database did not answer within 10 s");
        if (PQconsumeInput(connection) == 0) fail(connection, nullptr);
    }
}

/// Waits for the outcome of what was sent; there is nothing to take after it.
PgResult take_result(PGconn* connection) {
    wait_for_result(connection);
    PgResult result(PQgetResult(connection));
    const auto status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail(connection, result.get());
    while (const PgResult rest{PQgetResult(connection)}) {
    }
    return result;
}

/// The statements that a connection has prepared, by their text. libpq keeps this with the
/// connection and says when that goes.
using Prepared = std::unordered_map<std::string, std::string>;

int on_connection_event(PGEventId event, void* info, void*) {
    if (event == PGEVT_CONNRESET) {
        const auto* reset = static_cast<PGEventConnReset*>(info);
        static_cast<Prepared*>(PQinstanceData(reset->conn, on_connection_event))->clear();
    } else if (event == PGEVT_CONNDESTROY) {
        const auto* gone = static_cast<PGEventConnDestroy*>(info);
        const std::unique_ptr<Prepared> last(
            static_cast<Prepared*>(PQinstanceData(gone->conn, on_connection_event)));
    }
    return 1;
}

Prepared& prepared_on(PGconn* connection) {
    if (auto* found = static_cast<Prepared*>(PQinstanceData(connection, on_connection_event)))
        return *found;
    auto made = std::make_unique<Prepared>();
    if (PQregisterEventProc(connection, on_connection_event, "orders", nullptr) == 0 ||
        PQsetInstanceData(connection, on_connection_event, made.get()) == 0)
        throw outbox::Error(ErrorCode::kInternal, Advice::kStop, "libpq is out of memory");
    return *made.release();
}

/// The name of the statement on this connection. Planning one costs as much as running it.
const std::string& prepare(PGconn* connection, const std::string& sql) {
    Prepared& prepared = prepared_on(connection);
    if (const auto found = prepared.find(sql); found != prepared.end()) return found->second;
    const std::string name = "orders_" + std::to_string(prepared.size() + 1);
    if (PQsendPrepare(connection, name.c_str(), sql.c_str(), 0, nullptr) == 0)
        fail(connection, nullptr);
    take_result(connection);
    return prepared.emplace(sql, name).first->second;
}

}  // namespace

Postgres::Postgres(const std::string& url, const char* application) {
    // The URL's own settings come after ours and win.
    const std::array<const char*, 6> names{"connect_timeout",  "tcp_user_timeout",
                                           "application_name", "client_encoding",
                                           "dbname",           nullptr};
    const std::array<const char*, 6> values{"5",    "10000",     application,
                                            "UTF8", url.c_str(), nullptr};
    connection_.reset(PQconnectdbParams(names.data(), values.data(), 1));
    if (PQstatus(handle()) != CONNECTION_OK)
        away("cannot connect to the database: " + std::string(PQerrorMessage(handle())));
}

bool Postgres::usable() const {
    return PQconsumeInput(handle()) == 1 && PQstatus(handle()) == CONNECTION_OK;
}

void Postgres::script(const std::string& statements) {
    if (PQsendQuery(handle(), statements.c_str()) == 0) fail(handle(), nullptr);
    wait_for_result(handle());
    while (const PgResult result{PQgetResult(handle())}) {
        const auto status = PQresultStatus(result.get());
        if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) fail(handle(), result.get());
    }
}

PostgresRows query_postgres(PGconn* connection, const std::string& sql,
                            const std::vector<std::string>& parameters) {
    std::vector<const char*> values;
    for (const std::string& parameter : parameters) values.push_back(parameter.c_str());
    const int sent = values.empty()
                         ? PQsendQuery(connection, sql.c_str())
                         : PQsendQueryPrepared(connection, prepare(connection, sql).c_str(),
                                               static_cast<int>(values.size()), values.data(),
                                               nullptr, nullptr, 0);
    if (sent == 0) fail(connection, nullptr);
    const PgResult result = take_result(connection);
    PostgresRows rows(static_cast<std::size_t>(PQntuples(result.get())));
    for (std::size_t row = 0; row < rows.size(); ++row)
        for (int column = 0; column < PQnfields(result.get()); ++column)
            rows[row].emplace_back(PQgetvalue(result.get(), static_cast<int>(row), column));
    return rows;
}

}  // namespace orders
