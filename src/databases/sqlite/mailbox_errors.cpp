#include "databases/sqlite/mailbox_errors.h"

#include <sqlite3.h>
#include <string>
#include <utility>

#include "mailbox/errors.h"

namespace outbox::mailbox {
namespace {

constexpr auto kDestination = Advice::kRetryDestination;

}  // namespace

ErrorInfo sqlite_error(int code, std::string_view message) {
    std::string name = "SQLITE_" + std::to_string(code);
    const auto error = [&](ErrorCode ours, Advice advice, std::string_view remedy) {
        return destination_error(ours, advice, std::move(name), message, remedy);
    };
    switch (code & 0xff) {
        case SQLITE_TOOBIG:
        case SQLITE_MISMATCH:
            return error(ErrorCode::kRecordRefused, Advice::kDeadLetter,
                         "SQLite cannot store this value");
        case SQLITE_CONSTRAINT:
            if (code == SQLITE_CONSTRAINT_CHECK || code == SQLITE_CONSTRAINT_NOTNULL) {
                return error(ErrorCode::kRecordRefused, Advice::kDeadLetter,
                             "outbox_mailbox does not take this message");
            }
            return error(ErrorCode::kRecordRefused, Advice::kRetryEvent,
                         "a constraint or trigger on outbox_mailbox refuses this message");
        case SQLITE_FULL:
            return error(ErrorCode::kDiskFull, kDestination, "free space on the disk");
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
            return error(ErrorCode::kSinkTimeout, kDestination,
                         "another process keeps a write transaction open");
        case SQLITE_READONLY:
        case SQLITE_PERM:
        case SQLITE_AUTH:
            return error(ErrorCode::kNoRights, kDestination,
                         "let the relay's user write the file and its folder");
        case SQLITE_CANTOPEN:
            return error(ErrorCode::kNoSuchDatabase, kDestination,
                         "check the path, and that the relay's user may write the folder");
        case SQLITE_NOTADB:
        case SQLITE_CORRUPT:
            return error(ErrorCode::kNoSuchDatabase, kDestination,
                         "the file is not a sound SQLite database");
        case SQLITE_ERROR:
            return error(ErrorCode::kTableShape, kDestination,
                         "outbox_mailbox is not the table that `outbox migrate` makes");
        default:
            return error(ErrorCode::kSinkUnavailable, kDestination, "it is tried again");
    }
}

}  // namespace outbox::mailbox
