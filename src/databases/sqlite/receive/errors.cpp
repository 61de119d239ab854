#include "databases/sqlite/receive/errors.h"

namespace outbox::consumer {

ErrorInfo sqlite_error(sqlite3* database, const std::string& doing) {
    const int code = sqlite3_extended_errcode(database);
    const std::string text = doing + ": " + sqlite3_errmsg(database);
    const auto error = [&](ErrorCode ours, Advice advice, const char* remedy) {
        return ErrorInfo{ours, advice, "SQLITE_" + std::to_string(code),
                         *remedy == '\0' ? text : text + "; " + remedy};
    };
    constexpr auto kDestination = Advice::kRetryDestination;
    switch (code & 0xff) {
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
            return error(ErrorCode::kQueryFailed, kDestination,
                         "another connection keeps a write transaction open");
        case SQLITE_CONSTRAINT:
            return error(ErrorCode::kQueryFailed, Advice::kRetryEvent,
                         "a constraint or trigger refuses it");
        case SQLITE_TOOBIG:
        case SQLITE_MISMATCH:
            return error(ErrorCode::kInvalidEvent, Advice::kDeadLetter,
                         "SQLite cannot store this value");
        case SQLITE_FULL:
            return error(ErrorCode::kDiskFull, kDestination, "free space on the disk");
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH:
            return error(ErrorCode::kNoRights, kDestination,
                         "let this process write the file and its folder");
        case SQLITE_CANTOPEN:
            return error(ErrorCode::kNoSuchDatabase, kDestination,
                         "check the path; `outbox migrate --db URL` makes file and tables");
        case SQLITE_NOTADB:
        case SQLITE_CORRUPT:
            return error(ErrorCode::kNoSuchDatabase, kDestination,
                         "the file is not a sound SQLite database");
        case SQLITE_ERROR:
            return error(ErrorCode::kNoSuchTable, kDestination,
                         "make the tables with `outbox migrate --db URL --only consumer`");
        default:
            return error(ErrorCode::kQueryFailed, kDestination, "");
    }
}

}  // namespace outbox::consumer
