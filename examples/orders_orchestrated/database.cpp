#include "database.h"

#include <cstdlib>
#include <string_view>

#include <outbox/error.h>

namespace orchestrated {
namespace {

constexpr int kBusyTimeoutMs = 20'000;

[[noreturn]] void fail(bool again, const std::string& message) {
    throw outbox::Error(again ? outbox::ErrorCode::kConflict : outbox::ErrorCode::kQueryFailed,
                        outbox::Advice::kRetryEvent, message);
}

struct ClearResult {
    void operator()(PGresult* result) const { PQclear(result); }
};
struct FinalizeStatement {
    void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};

}  // namespace

int execute(PGconn* connection, const std::string& sql, const Values& values) {
    std::vector<const char*> pointers;
    for (const std::string& value : values) pointers.push_back(value.c_str());
    const std::unique_ptr<PGresult, ClearResult> result(
        PQexecParams(connection, sql.c_str(), static_cast<int>(pointers.size()), nullptr,
                     pointers.data(), nullptr, nullptr, 0));
    const ExecStatusType status = PQresultStatus(result.get());
    if (status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK) {
        const char* state = PQresultErrorField(result.get(), PG_DIAG_SQLSTATE);
        fail(state != nullptr && std::string_view(state).starts_with("40"),
             PQerrorMessage(connection));
    }
    return std::atoi(PQcmdTuples(result.get()));
}

int execute(sqlite3* connection, const std::string& sql, const Values& values) {
    sqlite3_stmt* compiled = nullptr;
    int code = sqlite3_prepare_v2(connection, sql.c_str(), -1, &compiled, nullptr);
    const std::unique_ptr<sqlite3_stmt, FinalizeStatement> statement(compiled);
    for (std::size_t i = 0; code == SQLITE_OK && i < values.size(); ++i) {
        code = sqlite3_bind_text(compiled, static_cast<int>(i) + 1, values[i].c_str(), -1,
                                 SQLITE_STATIC);
    }
    if (code == SQLITE_OK) code = sqlite3_step(compiled);
    if (code != SQLITE_DONE && code != SQLITE_ROW) {
        fail((code & 0xff) == SQLITE_BUSY, sqlite3_errmsg(connection));
    }
    return sqlite3_changes(connection);
}

std::unique_ptr<PGconn, CloseConnection> connect_postgres(const std::string& url) {
    std::unique_ptr<PGconn, CloseConnection> connection(PQconnectdb(url.c_str()));
    if (PQstatus(connection.get()) != CONNECTION_OK) fail(false, PQerrorMessage(connection.get()));
    PQsetClientEncoding(connection.get(), "UTF8");
    return connection;
}

std::unique_ptr<sqlite3, CloseConnection> connect_sqlite(const std::string& url) {
    sqlite3* opened = nullptr;
    const int code =
        sqlite3_open(url.substr(std::string_view("sqlite://").size()).c_str(), &opened);
    std::unique_ptr<sqlite3, CloseConnection> connection(opened);
    if (code != SQLITE_OK) fail(false, sqlite3_errmsg(opened));
    sqlite3_busy_timeout(opened, kBusyTimeoutMs);
    return connection;
}

}  // namespace orchestrated
