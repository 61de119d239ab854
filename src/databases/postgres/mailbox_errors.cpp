#include "databases/postgres/mailbox_errors.h"

#include <array>
#include <string>

#include "core/transport.h"
#include "mailbox/errors.h"

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

}  // namespace

ErrorInfo postgres_error(std::string_view sqlstate, std::string_view message) {
    if (sqlstate.empty()) {
        const std::string_view certificate = certificate_remedy(message);
        if (!certificate.empty()) {
            return destination_error(ErrorCode::kConnectFailed, kDestination, {}, message,
                                     certificate);
        }
        return destination_error(
            ErrorCode::kSinkUnavailable, kDestination, {}, message,
            "the mailbox's database is out of reach; the connection is made again");
    }
    for (const PostgresRule& rule : kPostgresRules) {
        if (sqlstate.starts_with(rule.state)) {
            return destination_error(rule.code, rule.advice, std::string(sqlstate), message,
                                     rule.remedy);
        }
    }
    return destination_error(ErrorCode::kSinkUnavailable, kDestination, std::string(sqlstate),
                             message, "it is tried again");
}

}  // namespace outbox::mailbox
