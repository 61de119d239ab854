#include "databases/sqlite/errors.h"

#include <cstdlib>
#include <sqlite3.h>

namespace outbox::sqlite {
namespace {

struct Meaning {
    int code;  // SQLite's primary result code
    ErrorCode ours;
    Advice advice;
    std::string_view remedy;
};

// What passes by itself is tried again; what a person must mend stops the relay.
constexpr Meaning kMeanings[] = {
    {SQLITE_BUSY, ErrorCode::kQueryFailed, Advice::kRetryDestination,
     "Another connection holds the write lock: keep transactions short."},
    {SQLITE_LOCKED, ErrorCode::kQueryFailed, Advice::kRetryDestination, ""},
    {SQLITE_FULL, ErrorCode::kDiskFull, Advice::kRetryDestination,
     "Free space on the disk; nothing is lost, recording goes on when there is room."},
    {SQLITE_IOERR, ErrorCode::kConnectionLost, Advice::kRetryDestination, "Check the disk."},
    {SQLITE_NOMEM, ErrorCode::kQueryFailed, Advice::kRetryDestination, ""},
    {SQLITE_INTERRUPT, ErrorCode::kQueryFailed, Advice::kRetryDestination, ""},
    {SQLITE_PROTOCOL, ErrorCode::kQueryFailed, Advice::kRetryDestination, ""},
    {SQLITE_CANTOPEN, ErrorCode::kConnectFailed, Advice::kStop,
     "Check that the file is there (`outbox migrate --db` makes it) and may be opened."},
    {SQLITE_READONLY, ErrorCode::kNoRights, Advice::kStop,
     "The user needs write access to the file and to its folder."},
    {SQLITE_PERM, ErrorCode::kNoRights, Advice::kStop,
     "The user needs write access to the file and to its folder."},
    {SQLITE_AUTH, ErrorCode::kNoRights, Advice::kStop, ""},
    {SQLITE_NOTADB, ErrorCode::kNoSuchDatabase, Advice::kStop, "The file is no SQLite database."},
    {SQLITE_CORRUPT, ErrorCode::kQueryFailed, Advice::kStop,
     "The database is damaged: restore it from a backup (PRAGMA integrity_check tells more)."},
};

}  // namespace

ErrorInfo sqlite_error(int code, std::string_view message, const std::string& path) {
    std::string text = path + ": " + std::string(message);
    const std::string name = "SQLITE_" + std::to_string(code);
    for (const Meaning& meaning : kMeanings) {
        if (meaning.code != (code & 0xff)) continue;
        if (!meaning.remedy.empty()) text.append(". ").append(meaning.remedy);
        return {meaning.ours, meaning.advice, name, text};
    }
    if (message.starts_with("no such table")) {
        return {ErrorCode::kNoSuchTable, Advice::kStop, name,
                text + ". Make the tables with `outbox migrate --db sqlite://" + path + "`."};
    }
    return {ErrorCode::kQueryFailed, Advice::kStop, name, text};
}

bool refuses_row(const ErrorInfo& error) {
    constexpr std::string_view kPrefix = "SQLITE_";
    const std::string& state = error.backend_code;
    if (!state.starts_with(kPrefix)) return false;
    const int code = std::atoi(state.c_str() + kPrefix.size()) & 0xff;
    return code == SQLITE_CONSTRAINT || code == SQLITE_MISMATCH || code == SQLITE_TOOBIG;
}

}  // namespace outbox::sqlite
