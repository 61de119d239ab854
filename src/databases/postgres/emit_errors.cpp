#include "databases/postgres/emit_errors.h"

#include <array>
#include <string_view>

#include "core/transport.h"
#include "core/url.h"

namespace outbox::producer {
namespace {

// One table from SQLSTATE to our error; a shorter state stands for its class.
struct StateMeaning {
    std::string_view state;
    ErrorCode code;
    Advice advice;
    std::string_view remedy;
};

constexpr std::array<StateMeaning, 20> kMeanings{{
    {"OB001", ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, ""},
    {"OB002", ErrorCode::kInvalidEvent, Advice::kDeadLetter, ""},
    {"OB003", ErrorCode::kTopicInvalid, Advice::kDeadLetter, ""},
    {"42P01", ErrorCode::kNoSuchTable, Advice::kStop,
     "Make the tables with `outbox migrate --db URL`, or put their schema on the search_path."},
    {"42883", ErrorCode::kNoSuchTable, Advice::kStop,
     "Make the functions with `outbox migrate --db URL`, or put their schema on the search_path."},
    {"42703", ErrorCode::kTableShape, Advice::kStop,
     "The table outbox_events is not the one `outbox migrate` makes."},
    {"42804", ErrorCode::kTableShape, Advice::kStop,
     "The table outbox_events is not the one `outbox migrate` makes."},
    {"42501", ErrorCode::kNoRights, Advice::kStop,
     "outbox roles --print has the rights of a writer; migrate needs GRANT CREATE, USAGE ON "
     "SCHEMA."},
    {"25006", ErrorCode::kQueryFailed, Advice::kStop,
     "The transaction is read-only: write on the primary, in a read-write transaction."},
    {"22P02", ErrorCode::kInvalidEvent, Advice::kDeadLetter,
     "The payload must be JSON where the table says so, and the id a UUID."},
    {"22P05", ErrorCode::kInvalidEvent, Advice::kDeadLetter,
     "jsonb cannot hold the character U+0000: remove it, or migrate with --payload json."},
    {"22", ErrorCode::kInvalidEvent, Advice::kDeadLetter, ""},
    {"23", ErrorCode::kInvalidEvent, Advice::kDeadLetter, ""},
    {"40", ErrorCode::kConflict, Advice::kRetryEvent, "Run the whole transaction again."},
    {"55P03", ErrorCode::kConflict, Advice::kRetryEvent, "Run the whole transaction again."},
    {"53100", ErrorCode::kDiskFull, Advice::kRetryDestination, "Free space on the server's disk."},
    {"53", ErrorCode::kQueryFailed, Advice::kRetryDestination, "The server is short of resources."},
    {"08", ErrorCode::kConnectionLost, Advice::kRetryDestination, "Connect again."},
    {"57014", ErrorCode::kQueryFailed, Advice::kRetryEvent,
     "It was cancelled (statement_timeout?) and did nothing: run the whole transaction again."},
    {"57", ErrorCode::kConnectionLost, Advice::kRetryDestination, "Run the transaction again."},
}};

std::string_view field(const PGresult* result, int code) {
    const char* text = PQresultErrorField(result, code);
    return text != nullptr ? std::string_view(text) : std::string_view();
}

bool contains(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

}  // namespace

bool succeeded(const PGresult* result) {
    const auto status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

ErrorInfo statement_error(PGconn* connection, const PGresult* result, const std::string& doing) {
    const std::string state(field(result, PG_DIAG_SQLSTATE));
    if (PQstatus(connection) == CONNECTION_BAD || state.empty()) {
        const bool lost = PQstatus(connection) == CONNECTION_BAD;
        return {lost ? ErrorCode::kConnectionLost : ErrorCode::kQueryFailed,
                lost ? Advice::kRetryDestination : Advice::kStop, state,
                doing + ": " + redacted_line(PQerrorMessage(connection))};
    }
    std::string message = doing + ": " + redacted_line(field(result, PG_DIAG_MESSAGE_PRIMARY));
    const auto hint = field(result, PG_DIAG_MESSAGE_HINT);
    if (!hint.empty()) message += ". " + redacted_line(hint);
    for (const StateMeaning& meaning : kMeanings) {
        if (!state.starts_with(meaning.state)) continue;
        if (!meaning.remedy.empty()) message += ". " + std::string(meaning.remedy);
        return {meaning.code, meaning.advice, state, message};
    }
    return {ErrorCode::kQueryFailed, Advice::kStop, state, message};
}

ErrorInfo connect_error(PGconn* connection, const std::string& url) {
    const std::string reason = redacted_line(PQerrorMessage(connection));
    const std::string where = "cannot connect to " + redact(url) + ": " + reason;
    if (contains(reason, "authentication failed") || contains(reason, "no password supplied") ||
        contains(reason, "pg_hba.conf")) {
        return {ErrorCode::kAuthFailed, Advice::kStop, "",
                where + "; check user, password and pg_hba.conf"};
    }
    if (contains(reason, "database \"") && contains(reason, "does not exist")) {
        return {ErrorCode::kNoSuchDatabase, Advice::kStop, "",
                where + "; create it, or correct the URL"};
    }
    std::string_view remedy = certificate_remedy(reason);
    if (remedy.empty()) remedy = "check that the server runs and that host and port are right";
    return {ErrorCode::kConnectFailed, Advice::kRetryDestination, "",
            where + "; " + std::string(remedy)};
}

}  // namespace outbox::producer
