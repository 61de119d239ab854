#include "sinks/mailbox/errors.h"

#include <algorithm>
#include <array>
#include <sqlite3.h>
#include <string>

#include "core/transport.h"
#include "core/url.h"

namespace outbox::mailbox {
namespace {

constexpr auto kDestination = Advice::kRetryDestination;

struct PostgresRule {
    std::string_view state;  // a whole SQLSTATE or how it begins
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

// The first rule that fits counts. What only an operator can mend is the destination's fault too:
// the route waits and goes on by itself once it is mended.
constexpr std::array kPostgresRules{
    PostgresRule{"22", ErrorCode::kRecordRefused, Advice::kDeadLetter,
                 "PostgreSQL cannot store this value"},
    PostgresRule{"54", ErrorCode::kRecordRefused, Advice::kDeadLetter,
                 "a value is over a limit of PostgreSQL"},
    PostgresRule{"23502", ErrorCode::kRecordRefused, Advice::kDeadLetter,
                 "outbox_mailbox does not take this message"},
    PostgresRule{"23514", ErrorCode::kRecordRefused, Advice::kDeadLetter,
                 "outbox_mailbox does not take this message"},
    PostgresRule{"23", ErrorCode::kRecordRefused, Advice::kRetryEvent,
                 "a constraint added to outbox_mailbox refuses this message"},
    PostgresRule{"P0", ErrorCode::kRecordRefused, Advice::kRetryEvent,
                 "a trigger on outbox_mailbox refuses this message"},
    PostgresRule{"28", ErrorCode::kAuthFailed, kDestination,
                 "check user and password (URL, PGPASSWORD or ~/.pgpass) and pg_hba.conf"},
    PostgresRule{"3D000", ErrorCode::kNoSuchDatabase, kDestination,
                 "check the database's name in the URL or create it"},
    PostgresRule{"42501", ErrorCode::kNoRights, kDestination,
                 "GRANT SELECT, INSERT ON outbox_mailbox TO the relay's user"},
    PostgresRule{"3F000", ErrorCode::kNoRights, kDestination, "no schema of search_path exists"},
    PostgresRule{"42P01", ErrorCode::kNoSuchTable, kDestination,
                 "create it: outbox migrate --db URL --only consumer"},
    PostgresRule{"42", ErrorCode::kTableShape, kDestination,
                 "outbox_mailbox is not the table that `outbox migrate` makes"},
    PostgresRule{"53100", ErrorCode::kDiskFull, kDestination, "free space on the database server"},
    PostgresRule{"57014", ErrorCode::kSinkTimeout, kDestination,
                 "another transaction may hold a lock on outbox_mailbox"},
    PostgresRule{"55P03", ErrorCode::kSinkTimeout, kDestination,
                 "another transaction holds a lock on outbox_mailbox"},
    PostgresRule{"25006", ErrorCode::kSinkUnavailable, kDestination,
                 "this is a standby; name the primary, or all hosts with "
                 "target_session_attrs=read-write"},
};

ErrorInfo make(ErrorCode code, Advice advice, std::string backend_code, std::string_view message,
               std::string_view remedy) {
    return {code, advice, std::move(backend_code),
            redacted_line(message) + "; " + std::string(remedy)};
}

}  // namespace

ErrorInfo postgres_error(std::string_view sqlstate, std::string_view message) {
    if (sqlstate.empty()) {
        const std::string_view certificate = certificate_remedy(message);
        if (!certificate.empty()) {
            return make(ErrorCode::kConnectFailed, kDestination, {}, message, certificate);
        }
        return make(ErrorCode::kSinkUnavailable, kDestination, {}, message,
                    "the mailbox's database is out of reach; the connection is made again");
    }
    for (const PostgresRule& rule : kPostgresRules) {
        if (sqlstate.starts_with(rule.state)) {
            return make(rule.code, rule.advice, std::string(sqlstate), message, rule.remedy);
        }
    }
    return make(ErrorCode::kSinkUnavailable, kDestination, std::string(sqlstate), message,
                "it is tried again");
}

ErrorInfo sqlite_error(int code, std::string_view message) {
    std::string name = "SQLITE_" + std::to_string(code);
    const auto error = [&](ErrorCode ours, Advice advice, std::string_view remedy) {
        return make(ours, advice, std::move(name), message, remedy);
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

ErrorInfo no_table(const std::string& where, const ErrorInfo& cause, std::string_view sql) {
    std::string statements;
    while (!sql.empty()) {
        const auto end = sql.find('\n');
        std::string_view line = sql.substr(0, end);
        sql = end == std::string_view::npos ? "" : sql.substr(end + 1);
        if (line.starts_with("--") || line.empty()) continue;
        line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
        statements.append(statements.empty() ? "" : " ").append(line);
    }
    return {ErrorCode::kNoSuchTable, kDestination, cause.backend_code,
            "outbox_mailbox does not exist in " + where +
                " and cannot be created: " + cause.message + "; have it created: " + statements};
}

}  // namespace outbox::mailbox
