#include "databases/sqlite/handle.h"

#include <string_view>

namespace outbox::producer {
namespace {

// The table's constraints carry our codes as their names.
constexpr std::string_view kCheckFailed = "CHECK constraint failed: ";

ErrorInfo constraint_error(std::string message, std::string code, std::string_view constraint) {
    const ErrorCode ours = constraint.starts_with("OB_PAYLOAD_TOO_LARGE")
                               ? ErrorCode::kPayloadTooLarge
                           : constraint.starts_with("OB_TOPIC_INVALID") ? ErrorCode::kTopicInvalid
                                                                        : ErrorCode::kInvalidEvent;
    return {ours, Advice::kDeadLetter, std::move(code), std::move(message)};
}

}  // namespace

ErrorInfo sqlite_error(sqlite3* database, const std::string& doing) {
    const int result = sqlite3_errcode(database);
    const std::string code = "SQLITE_" + std::to_string(sqlite3_extended_errcode(database));
    const std::string_view text = sqlite3_errmsg(database);
    std::string message = doing + ": " + std::string(text);
    switch (result & 0xff) {
        case SQLITE_CONSTRAINT:
            return constraint_error(
                std::move(message), code,
                text.starts_with(kCheckFailed) ? text.substr(kCheckFailed.size()) : text);
        case SQLITE_TOOBIG:
            return {ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, code, message};
        case SQLITE_FULL:
            return {ErrorCode::kDiskFull, Advice::kRetryDestination, code,
                    message +
                        ". Free space on the disk; SQLite may have rolled the whole "
                        "transaction back."};
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
            return {ErrorCode::kConflict, Advice::kRetryEvent, code,
                    message +
                        ". Begin with BEGIN IMMEDIATE and set a busy_timeout; run the whole "
                        "transaction again."};
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH:
            return {ErrorCode::kNoRights, Advice::kStop, code,
                    message + ". The user needs write access to the file and its folder."};
        case SQLITE_CANTOPEN:
            return {ErrorCode::kConnectFailed, Advice::kStop, code,
                    message + ". Check that the folder exists and may be written to."};
        case SQLITE_NOTADB:
            return {ErrorCode::kNoSuchDatabase, Advice::kStop, code,
                    message + ". The file is no SQLite database."};
        case SQLITE_IOERR:
            return {ErrorCode::kConnectionLost, Advice::kRetryDestination, code, message};
        default:
            break;
    }
    if (text.starts_with("no such table: outbox_")) {
        return {ErrorCode::kNoSuchTable, Advice::kStop, code,
                message + ". Make the tables with `outbox migrate --db sqlite:///path`."};
    }
    return {ErrorCode::kQueryFailed, Advice::kStop, code, message};
}

}  // namespace outbox::producer
