#include "databases/postgres/receive/errors.h"

#include <array>

#include "core/url.h"

namespace outbox::consumer {
namespace {

struct Rule {
    std::string_view state;  // a whole SQLSTATE or how it begins
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

// The first rule that fits counts; what is not listed is the database's fault.
constexpr std::array kRules{
    Rule{"40", ErrorCode::kConflict, Advice::kRetryEvent, "run the transaction again"},
    Rule{"OBQ01", ErrorCode::kQuarantined, Advice::kDeadLetter,
         "find out whether it was applied before it is retried"},
    Rule{"22", ErrorCode::kInvalidEvent, Advice::kDeadLetter, "PostgreSQL cannot store this value"},
    Rule{"54", ErrorCode::kInvalidEvent, Advice::kDeadLetter,
         "a value is over a limit of PostgreSQL"},
    Rule{"23", ErrorCode::kQueryFailed, Advice::kRetryEvent, "a constraint refuses it"},
    Rule{"P0", ErrorCode::kQueryFailed, Advice::kRetryEvent, "a trigger or function refuses it"},
    Rule{"28", ErrorCode::kAuthFailed, Advice::kRetryDestination,
         "check user and password (URL, PGPASSWORD or ~/.pgpass) and pg_hba.conf"},
    Rule{"3D000", ErrorCode::kNoSuchDatabase, Advice::kRetryDestination,
         "check the database's name in the URL or create it"},
    Rule{"42P01", ErrorCode::kNoSuchTable, Advice::kRetryDestination,
         "make the tables with `outbox migrate --db URL --only consumer`, or put their schema on "
         "the search_path"},
    Rule{"42501", ErrorCode::kNoRights, Advice::kRetryDestination,
         "a consumer needs GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_mailbox, outbox_inbox, "
         "outbox_inbox_floor, outbox_inbox_dead_letters, outbox_inbox_offsets, outbox_inbox_stats "
         "TO its user; docs/receiving.md says which for what"},
    Rule{"42", ErrorCode::kTableShape, Advice::kRetryDestination,
         "the tables are not those that `outbox migrate` makes"},
    Rule{"53100", ErrorCode::kDiskFull, Advice::kRetryDestination,
         "free space on the database server"},
    Rule{"08", ErrorCode::kConnectionLost, Advice::kRetryDestination, "it is made again"},
    Rule{"57P", ErrorCode::kConnectionLost, Advice::kRetryDestination,
         "the server is stopping or starting; the connection is made again"},
    Rule{"25006", ErrorCode::kQueryFailed, Advice::kRetryDestination,
         "this is a standby, or the transaction is read-only: name the primary, or all hosts with "
         "target_session_attrs=read-write"},
};

}  // namespace

bool succeeded(const PGresult* result) {
    const ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

ErrorInfo pg_error(std::string_view sqlstate, std::string_view message, const std::string& doing) {
    const std::string text = doing + ": " + redacted_line(message);
    if (sqlstate.empty()) {
        return {ErrorCode::kConnectionLost, Advice::kRetryDestination, {}, text};
    }
    for (const Rule& rule : kRules) {
        if (sqlstate.starts_with(rule.state)) {
            return {rule.code, rule.advice, std::string(sqlstate),
                    text + "; " + std::string(rule.remedy)};
        }
    }
    return {ErrorCode::kQueryFailed, Advice::kRetryDestination, std::string(sqlstate), text};
}

ErrorInfo pg_error(PGconn* connection, const PGresult* result, const std::string& doing) {
    const char* state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
    const char* text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state == nullptr || text == nullptr) return pg_error({}, PQerrorMessage(connection), doing);
    return pg_error(state, text, doing);
}

}  // namespace outbox::consumer
