#include "sqlite.h"

#include <outbox/error.h>

namespace orders {

namespace {

constexpr int kBusyTimeoutMs = 5000;

}  // namespace

Sqlite::Sqlite(const std::string& path) {
    const int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX;
    const int result = sqlite3_open_v2(path.c_str(), &handle_, flags, nullptr);
    try {
        if (result != SQLITE_OK) throw_sqlite_error(handle_, "cannot open " + path);
        sqlite3_busy_timeout(handle_, kBusyTimeoutMs);
        exec("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
    } catch (...) {
        sqlite3_close(handle_);
        throw;
    }
}

void Sqlite::exec(const std::string& sql) {
    if (sqlite3_exec(handle_, sql.c_str(), nullptr, nullptr, nullptr) != SQLITE_OK)
        throw_sqlite_error(handle_, "SQLite refused a statement");
}

void throw_sqlite_error(sqlite3* connection, const std::string& what) {
    using outbox::Advice;
    using outbox::ErrorCode;
    const int code = sqlite3_errcode(connection);
    const std::string message = what + ": " + sqlite3_errmsg(connection);
    switch (code & 0xff) {
        case SQLITE_FULL:
            throw outbox::Error(ErrorCode::kDiskFull, Advice::kRetryDestination,
                                message + "; free some space");
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
        case SQLITE_IOERR:
        case SQLITE_CANTOPEN:
        case SQLITE_READONLY:
            throw outbox::Error(ErrorCode::kConnectFailed, Advice::kRetryDestination, message);
        case SQLITE_CONSTRAINT:
        case SQLITE_MISMATCH:
            throw outbox::Error(ErrorCode::kQueryFailed, Advice::kDeadLetter, message);
        default:
            throw outbox::Error(ErrorCode::kQueryFailed, Advice::kStop, message);
    }
}

SqliteStatement::SqliteStatement(sqlite3* connection, const std::string& sql)
    : connection_(connection) {
    if (sqlite3_prepare_v2(connection, sql.c_str(), -1, &statement_, nullptr) != SQLITE_OK)
        throw_sqlite_error(connection, "SQLite refused a statement");
}

SqliteStatement& SqliteStatement::bind(int parameter, const std::string& value) {
    if (sqlite3_bind_text64(statement_, parameter, value.data(), value.size(), SQLITE_TRANSIENT,
                            SQLITE_UTF8) != SQLITE_OK)
        throw_sqlite_error(connection_, "cannot bind a value");
    return *this;
}

SqliteStatement& SqliteStatement::bind(int parameter, std::int64_t value) {
    if (sqlite3_bind_int64(statement_, parameter, value) != SQLITE_OK)
        throw_sqlite_error(connection_, "cannot bind a value");
    return *this;
}

bool SqliteStatement::step() {
    const int result = sqlite3_step(statement_);
    if (result != SQLITE_ROW && result != SQLITE_DONE)
        throw_sqlite_error(connection_, "SQLite refused a statement");
    return result == SQLITE_ROW;
}

std::string SqliteStatement::text(int column) const {
    const auto* bytes = static_cast<const char*>(sqlite3_column_blob(statement_, column));
    const auto size = static_cast<std::size_t>(sqlite3_column_bytes(statement_, column));
    return bytes == nullptr ? std::string() : std::string(bytes, size);
}

std::int64_t SqliteStatement::integer(int column) const {
    return sqlite3_column_int64(statement_, column);
}

}  // namespace orders
