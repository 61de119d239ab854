#include "databases/postgres/errors.h"

#include <algorithm>
#include <array>

#include "core/url.h"

namespace outbox::postgres {
namespace {

struct Rule {
    std::string_view state;  // a whole SQLSTATE or the two letters of its class
    ErrorCode code;
    Advice advice;
    std::string_view remedy;  // {user}, {database}, {host} are filled in
};

constexpr auto kDestination = Advice::kRetryDestination;
constexpr auto kStop = Advice::kStop;

// The first rule that fits counts.
constexpr std::array kRules{
    Rule{"28P01", ErrorCode::kAuthFailed, kStop,
         "check the password of user {user} (PGPASSWORD, ~/.pgpass or the URL)"},
    Rule{"28", ErrorCode::kAuthFailed, kStop,
         "check user {user} and the server's pg_hba.conf for database {database}"},
    Rule{"3D000", ErrorCode::kNoSuchDatabase, kStop,
         "check the database's name in the URL, or create it: createdb {database}"},
    Rule{"42P01", ErrorCode::kNoSuchTable, kStop,
         "check --table and the search path, or create the tables: outbox migrate --db URL"},
    Rule{"42703", ErrorCode::kTableShape, kStop,
         "check [source.table] against the table's columns; outbox relay --check names them"},
    Rule{"22P02", ErrorCode::kTableShape, kStop,
         "if a column got another type start the relay again"},
    Rule{"42846", ErrorCode::kTableShape, kStop,
         "if a column got another type start the relay again"},
    Rule{"42501", ErrorCode::kNoRights, kStop,
         "outbox relay --check prints the GRANT that user {user} needs"},
    Rule{"23503", ErrorCode::kQueryFailed, kDestination,
         "remove what refers to the row first, or let it go along (ON DELETE CASCADE)"},
    Rule{"53100", ErrorCode::kDiskFull, kDestination, "free space on the database server"},
    Rule{"53300", ErrorCode::kConnectFailed, kDestination,
         "raise the limit that is named or close what is idle; a relay needs four connections, "
         "and one more for each route"},
    Rule{"25006", ErrorCode::kQueryFailed, kDestination,
         "{host} is a standby; point the URL at the primary, or list all hosts with "
         "target_session_attrs=read-write"},
    Rule{"57014", ErrorCode::kQueryFailed, kDestination,
         "the statement took longer than statement_timeout; outbox relay --check names a missing "
         "index"},
    Rule{"25P03", ErrorCode::kConnectionLost, kDestination, "it is made again"},
    Rule{"25P04", ErrorCode::kConnectionLost, kDestination, "it is made again"},
    Rule{"57P", ErrorCode::kConnectionLost, kDestination, "the server is stopping or starting"},
    Rule{"08", ErrorCode::kConnectionLost, kDestination, "check the server and the network"},
    Rule{"53", ErrorCode::kQueryFailed, kDestination, "the database server is short of resources"},
    Rule{"40", ErrorCode::kQueryFailed, kDestination, "it is tried again"},
    Rule{"55", ErrorCode::kQueryFailed, kDestination, "it is tried again"},
    Rule{"58", ErrorCode::kQueryFailed, kDestination, "see the database server's log"},
    Rule{"XX", ErrorCode::kQueryFailed, kDestination, "see the database server's log"},
};

std::string fill_in(std::string_view text, const ErrorContext& context) {
    std::string out(text);
    const auto replace = [&out](std::string_view name, const std::string& value) {
        for (auto at = out.find(name); at != std::string::npos; at = out.find(name)) {
            out.replace(at, name.size(), value);
        }
    };
    replace("{user}", context.user);
    replace("{database}", context.database);
    replace("{host}", context.host);
    return out;
}

}  // namespace

ErrorInfo map_error(std::string_view sqlstate, std::string_view message,
                    const ErrorContext& context) {
    if (sqlstate.empty()) {
        return {ErrorCode::kConnectionLost,
                kDestination,
                {},
                "the connection to PostgreSQL at " + context.host +
                    " broke: " + redacted_line(message) + "; it is made again"};
    }
    const auto rule = std::find_if(kRules.begin(), kRules.end(),
                                   [&](const Rule& r) { return sqlstate.starts_with(r.state); });
    ErrorInfo error{ErrorCode::kQueryFailed, kStop, std::string(sqlstate), redacted_line(message)};
    if (rule == kRules.end()) return error;
    error.code = rule->code;
    error.advice = rule->advice;
    error.message += "; " + fill_in(rule->remedy, context);
    return error;
}

Concerns what_concerns(const ErrorInfo& error) {
    // A right, a database, a name, a wait, a deadlock, a statement that takes too long.
    constexpr std::array<std::string_view, 6> kPerhaps{"28", "3D", "42", "40", "55", "57014"};
    const std::string_view state = error.backend_code;
    const auto begins = [&](std::string_view with) { return state.starts_with(with); };
    if (state == "55P03" || begins("23")) return Concerns::kRows;
    if (std::any_of(kPerhaps.begin(), kPerhaps.end(), begins)) return Concerns::kPerhaps;
    return !state.empty() && error.advice == kStop ? Concerns::kRows : Concerns::kAll;
}

std::string words_of(const ErrorInfo& error) {
    const auto rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& r) {
        return error.backend_code.starts_with(r.state);
    });
    if (rule == kRules.end()) return error.message;
    const auto remedy = "; " + std::string(rule->remedy.substr(0, rule->remedy.find('{')));
    return error.message.substr(0, error.message.rfind(remedy));
}

}  // namespace outbox::postgres
