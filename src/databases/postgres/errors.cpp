#include "databases/postgres/errors.h"

#include <algorithm>
#include <array>
#include <libpq-fe.h>
#include <optional>

#include "core/url.h"

namespace outbox::postgres {
namespace {

using Code = ErrorCode;

/// What a state is about.
enum class Kind : std::uint8_t {
    kRow,       // a value, a constraint, what code of the owner's raised
    kLock,      // somebody holds a row or table
    kTime,      // the statement was cut short
    kConflict,  // between transactions
    kSetup,     // a right, a name, a table: a person has to mend it
    kServer,    // the server or the connection, or what a function of the owner's met elsewhere
    kOutage,    // the server alone, whatever the rows
};

/// What a role does about it. `remedy`: {user}, {database}, {host} and {why_read_only} are filled
/// in for the relay.
struct Answer {
    Advice advice;
    std::string_view remedy;
    std::optional<Code> code;  // where it is something else to this role
};
using Cell = std::optional<Answer>;

constexpr Cell stop(std::string_view remedy = {}, std::optional<Code> code = {}) {
    return Answer{Advice::kStop, remedy, code};
}
// The database's: the destination is tried again.
constexpr Cell wait(std::string_view remedy = {}) {
    return Answer{Advice::kRetryDestination, remedy, {}};
}
constexpr Cell again(std::string_view remedy = {}) {
    return Answer{Advice::kRetryEvent, remedy, {}};
}
constexpr Cell dead(std::string_view remedy = {}, std::optional<Code> code = {}) {
    return Answer{Advice::kDeadLetter, remedy, code};
}
// As a later rule that fits says it, or as what is not listed.
constexpr Cell kNone;

struct Rule {
    std::string_view state;  // a whole SQLSTATE or how it begins
    Kind kind;
    Code code;  // of a mailbox only for kSetup: it speaks as sinks do
    Cell relay;
    Cell mailbox;
    Cell receive;
    Cell emit;
    Cell operate = kNone;  // none: as who receives
    Cell store = kNone;

    [[nodiscard]] const Cell& of(Role role) const {
        switch (role) {
            case Role::kRelay:
                return relay;
            case Role::kMailbox:
                return mailbox;
            case Role::kReceive:
                return receive;
            case Role::kOperate:
                return operate ? operate : receive;
            case Role::kStore:
                return store;
            case Role::kEmit:
                break;
        }
        return emit;
    }
};

// What several roles say.
constexpr std::string_view kCannotStore = "PostgreSQL cannot store this value";
constexpr std::string_view kOverLimit = "a value is over a limit of PostgreSQL";
constexpr std::string_view kNotTaken = "outbox_mailbox does not take this message";
constexpr std::string_view kCheckLogin =
    "check user and password (URL, PGPASSWORD or ~/.pgpass) and pg_hba.conf";
constexpr std::string_view kOtherType = "if a column got another type start the relay again";
constexpr std::string_view kNotOurEvents =
    "The table outbox_events is not the one `outbox migrate` makes.";
constexpr std::string_view kShortOfMemory = "the database server is short of memory";
constexpr std::string_view kFreeSpace = "free space on the database server";
constexpr std::string_view kAsAWhole = "Run the whole transaction again.";
constexpr std::string_view kTriedAgain = "it is tried again";
constexpr std::string_view kMadeAgain = "it is made again";
constexpr std::string_view kSeeLog = "see the database server's log";
constexpr std::string_view kStandby =
    "{host} is a standby, point the URL at the primary, or list all hosts with "
    "target_session_attrs=read-write";
constexpr std::string_view kReadOnly =
    "default_transaction_read_only is on for user {user}, database {database} or the server; "
    "ALTER ROLE, DATABASE or SYSTEM ... SET default_transaction_read_only = off";
constexpr std::string_view kIdleEnded =
    "it is made again. idle_session_timeout ended it: ALTER ROLE ... SET idle_session_timeout = 0";

// The first rule that fits and says something to the role counts. A relay and a writer stop at what
// a person has to mend; to a consumer and to a mailbox that is an outage, which ends once it is
// mended.
constexpr std::array kRules{
    // state, kind, code; relay, mailbox, receive, emit, operate, store

    // The event or message.
    Rule{"OB001", Kind::kRow, Code::kPayloadTooLarge, kNone, kNone, kNone, dead()},
    Rule{"OB002", Kind::kRow, Code::kInvalidEvent, kNone, kNone, kNone, dead()},
    Rule{"OB003", Kind::kRow, Code::kTopicInvalid, kNone, kNone, kNone, dead()},
    Rule{"OBQ01", Kind::kRow, Code::kQuarantined, kNone, kNone,
         dead("find out whether it was applied before it is retried"), kNone},
    Rule{"22P02", Kind::kRow, Code::kInvalidEvent, stop(kOtherType, Code::kTableShape), kNone,
         kNone, dead("The payload must be JSON where the table says so, and the id a UUID.")},
    Rule{"22P05", Kind::kRow, Code::kInvalidEvent, kNone, kNone, kNone,
         dead("jsonb cannot hold the character U+0000: remove it, or migrate with --payload "
              "json.")},
    // Of a store: larger than a value may be.
    Rule{"22001", Kind::kRow, Code::kPayloadTooLarge, kNone, kNone, kNone, kNone, kNone, dead()},
    Rule{"54000", Kind::kRow, Code::kPayloadTooLarge, kNone, kNone, kNone, kNone, kNone, dead()},
    Rule{"22", Kind::kRow, Code::kInvalidEvent, kNone, dead(kCannotStore), dead(kCannotStore),
         dead()},
    Rule{"54", Kind::kRow, Code::kInvalidEvent, kNone, dead(kOverLimit), dead(kOverLimit),
         dead("A value is over a limit of PostgreSQL.")},
    // A constraint of the writer's on the events says what an event may be.
    Rule{"23502", Kind::kRow, Code::kQueryFailed, kNone, dead(kNotTaken), kNone, kNone},
    Rule{"23514", Kind::kRow, Code::kQueryFailed, kNone, dead(kNotTaken), kNone, kNone},
    Rule{"23503", Kind::kRow, Code::kQueryFailed,
         wait("remove what refers to the row first, or let it go along (ON DELETE CASCADE)"), kNone,
         kNone, kNone},
    Rule{"23", Kind::kRow, Code::kQueryFailed, kNone,
         again("a constraint added to outbox_mailbox refuses this message"),
         again("a constraint refuses it"), dead({}, Code::kInvalidEvent)},
    Rule{"P0", Kind::kRow, Code::kQueryFailed, kNone,
         again("a trigger on outbox_mailbox refuses this message"),
         again("a trigger or function refuses it"), kNone},

    // Other transactions.
    Rule{"40", Kind::kConflict, Code::kConflict, wait(kTriedAgain), kNone,
         again("run the transaction again"), again(kAsAWhole)},
    Rule{"55P03", Kind::kLock, Code::kConflict,
         wait("another transaction holds a lock that this needs (pg_locks says whose), and kept it "
              "for too long"),
         wait("another transaction holds a lock on outbox_mailbox"), wait(), again(kAsAWhole)},
    Rule{"55", Kind::kConflict, Code::kQueryFailed, wait(kTriedAgain), kNone, kNone, kNone},
    Rule{"57014", Kind::kTime, Code::kQueryFailed,
         wait("the statement took longer than statement_timeout; outbox relay --check names a "
              "missing index"),
         wait("another transaction may hold a lock on outbox_mailbox"), kNone,
         again("It was cancelled (statement_timeout?) and did nothing: run the whole transaction "
               "again.")},

    // What a person has to mend.
    Rule{"28P01", Kind::kSetup, Code::kAuthFailed,
         stop("check the password of user {user} (PGPASSWORD, ~/.pgpass or the URL)"), kNone, kNone,
         kNone},
    Rule{"28", Kind::kSetup, Code::kAuthFailed,
         stop("check user {user} and the server's pg_hba.conf for database {database}"),
         wait(kCheckLogin), wait(kCheckLogin), stop("Check user, password and pg_hba.conf."), kNone,
         wait("check user and password")},
    Rule{"3D000", Kind::kSetup, Code::kNoSuchDatabase,
         stop("check the database's name in the URL, or create it: createdb {database}"),
         wait("check the database's name in the URL or create it"),
         wait("check the database's name in the URL or create it"),
         stop("Create it, or correct the URL."), kNone,
         wait("make it (createdb), or correct its name in the store's URL")},
    Rule{"3F000", Kind::kSetup, Code::kNoRights, kNone, wait("no schema of search_path exists"),
         kNone, kNone},
    Rule{"42P01", Kind::kSetup, Code::kNoSuchTable,
         stop("check --table and the search path, or create the tables: outbox migrate --db URL"),
         wait("create it: outbox migrate --db URL --only consumer"),
         wait("make the tables with `outbox migrate --db URL --only consumer`, or put their schema "
              "on the search_path"),
         stop("Make the tables with `outbox migrate --db URL`, or put their schema on the "
              "search_path.")},
    // A writer calls functions only; elsewhere an operator may not fit a column of another type.
    Rule{"42883", Kind::kSetup, Code::kNoSuchTable, kNone, kNone, kNone,
         stop("Make the functions with `outbox migrate --db URL`, or put their schema on the "
              "search_path.")},
    Rule{
        "42501", Kind::kSetup, Code::kNoRights,
        stop("the GRANTs that user {user} needs: for a relay outbox relay --check prints them, for "
             "who operates outbox roles --print --operator {user}"),
        wait("GRANT SELECT, INSERT ON outbox_mailbox TO the relay's user"),
        wait("a consumer needs GRANT SELECT, INSERT, UPDATE, DELETE ON outbox_mailbox, "
             "outbox_inbox, outbox_inbox_floor, outbox_inbox_dead_letters, outbox_inbox_offsets, "
             "outbox_inbox_stats TO its user; docs/receiving.md says which for what"),
        stop("outbox roles --print has the rights of a writer; migrate needs GRANT CREATE, USAGE "
             "ON SCHEMA."),
        wait("outbox roles --print --operator ROLE has the GRANTs of who operates"),
        wait("GRANT SELECT, INSERT, UPDATE ON outbox_objects to the relay's role, and SELECT to "
             "consumers'")},
    Rule{"42703", Kind::kSetup, Code::kTableShape,
         stop("check [source.table] against the table's columns; outbox relay --check names them"),
         kNone, kNone, stop(kNotOurEvents)},
    Rule{"42804", Kind::kSetup, Code::kTableShape, stop(kOtherType), kNone, kNone,
         stop(kNotOurEvents)},
    Rule{"42846", Kind::kSetup, Code::kTableShape, stop(kOtherType), kNone, kNone,
         stop(kNotOurEvents)},
    Rule{"42", Kind::kSetup, Code::kTableShape, kNone,
         wait("outbox_mailbox is not the table that `outbox migrate` makes"),
         wait("the tables are not those that `outbox migrate` makes"), kNone},

    // The server and the way to it.
    Rule{"53100", Kind::kOutage, Code::kDiskFull, wait(kFreeSpace), wait(kFreeSpace),
         wait(kFreeSpace), wait("Free space on the server's disk."), kNone, wait()},
    Rule{"53200", Kind::kOutage, Code::kQueryFailed, wait(kShortOfMemory), kNone, kNone,
         wait("The server is short of memory.")},
    Rule{"53300", Kind::kOutage, Code::kConnectFailed,
         wait("raise the limit that is named or close what is idle; a relay needs four "
              "connections, and one more for each route"),
         kNone, wait("raise the limit that is named or close what is idle"),
         wait("Raise the limit that is named or close what is idle.")},
    Rule{"53", Kind::kServer, Code::kQueryFailed, wait("the database server is short of resources"),
         kNone, kNone, wait("The server is short of resources.")},
    // Read by the relay and by a consumer, a standby may be promoted; a writer's transaction may be
    // read-only by its own will.
    Rule{"25006", Kind::kOutage, Code::kQueryFailed,
         wait("nothing can be written here: {why_read_only}"),
         wait("this is a standby (name the primary, or all hosts with "
              "target_session_attrs=read-write), or default_transaction_read_only is on"),
         wait("this is a standby (name the primary, or all hosts with "
              "target_session_attrs=read-write), or the transaction is read-only "
              "(default_transaction_read_only)"),
         stop("The transaction is read-only: write on the primary, in a read-write transaction.")},
    Rule{"25P03", Kind::kOutage, Code::kConnectionLost, wait(kMadeAgain), kNone, wait(kMadeAgain),
         wait("Connect again.")},
    Rule{"25P04", Kind::kOutage, Code::kConnectionLost, wait(kMadeAgain), kNone, wait(kMadeAgain),
         wait("Connect again.")},
    Rule{"57P05", Kind::kServer, Code::kConnectionLost, wait(kIdleEnded), kNone, wait(kIdleEnded),
         wait("Connect again; idle_session_timeout ended the connection.")},
    Rule{"57P", Kind::kServer, Code::kConnectionLost, wait("the server is stopping or starting"),
         kNone, wait("the server is stopping or starting; the connection is made again"),
         wait("Run the transaction again.")},
    Rule{"08", Kind::kServer, Code::kConnectionLost, wait("check the server and the network"),
         kNone, wait(kMadeAgain), wait("Connect again.")},
    Rule{"58", Kind::kServer, Code::kQueryFailed, wait(kSeeLog), kNone, kNone, kNone},
    Rule{"XX", Kind::kServer, Code::kQueryFailed, wait(kSeeLog), kNone, kNone, kNone},
};

const Rule* rule_of(std::string_view sqlstate, std::optional<Role> role) {
    const auto* rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& r) {
        return sqlstate.starts_with(r.state) && (!role || r.of(*role));
    });
    return rule == kRules.end() ? nullptr : rule;
}

// What is not listed: our fault, or an outage.
Answer unlisted(Role role) {
    switch (role) {
        case Role::kMailbox:
            return {Advice::kRetryDestination, kTriedAgain, Code::kSinkUnavailable};
        case Role::kStore:
            return {Advice::kRetryDestination, {}, Code::kSinkUnavailable};
        case Role::kReceive:
        case Role::kOperate:
            return {Advice::kRetryDestination, {}, Code::kQueryFailed};
        case Role::kRelay:
        case Role::kEmit:
            break;
    }
    return {Advice::kStop, {}, Code::kQueryFailed};
}

// In the words of sinks.
Code sink_code(const Rule& rule) {
    switch (rule.kind) {
        case Kind::kRow:
            return Code::kRecordRefused;
        case Kind::kLock:
        case Kind::kTime:
            return Code::kSinkTimeout;
        case Kind::kSetup:
            return rule.code;
        case Kind::kConflict:
        case Kind::kServer:
        case Kind::kOutage:
            break;
    }
    return rule.code == Code::kDiskFull ? rule.code : Code::kSinkUnavailable;
}

std::string fill_in(std::string_view text, const ErrorContext& context) {
    std::string out(text);
    const auto replace = [&out](std::string_view name, const std::string& value) {
        for (auto at = out.find(name); at != std::string::npos; at = out.find(name)) {
            out.replace(at, name.size(), value);
        }
    };
    const std::string both = std::string(kStandby) + "; or " + std::string(kReadOnly);
    replace("{why_read_only}", !context.standby   ? both
                               : *context.standby ? std::string(kStandby)
                                                  : std::string(kReadOnly));
    replace("{user}", context.user);
    replace("{database}", context.database);
    replace("{host}", context.host);
    return out;
}

// `message` with the remedy behind it.
ErrorInfo error_for(Role role, std::string_view sqlstate, std::string message,
                    std::string_view separator, const ErrorContext* context = nullptr) {
    const Rule* rule = rule_of(sqlstate, role);
    Answer answer = unlisted(role);
    if (rule != nullptr) {
        answer = *rule->of(role);
        if (!answer.code) answer.code = role == Role::kMailbox ? sink_code(*rule) : rule->code;
    }
    if (!answer.remedy.empty()) {
        message += separator;
        message +=
            context == nullptr ? std::string(answer.remedy) : fill_in(answer.remedy, *context);
    }
    return {*answer.code, answer.advice, std::string(sqlstate), std::move(message)};
}

std::string_view field(const PGresult* result, int code) {
    const char* text = PQresultErrorField(result, code);
    return text == nullptr ? std::string_view() : std::string_view(text);
}

ErrorInfo consumer_error(Role role, std::string_view sqlstate, std::string_view message,
                         const std::string& doing) {
    std::string text = doing + ": " + redacted_line(message);
    if (!sqlstate.empty()) return error_for(role, sqlstate, std::move(text), "; ");
    return {Code::kConnectionLost, Advice::kRetryDestination, {}, std::move(text)};
}

ErrorInfo consumer_error(Role role, const PGconn* connection, const PGresult* result,
                         const std::string& doing) {
    const std::string_view state = field(result, PG_DIAG_SQLSTATE);
    const std::string_view text = field(result, PG_DIAG_MESSAGE_PRIMARY);
    if (state.data() == nullptr || text.data() == nullptr) {
        return consumer_error(role, {}, PQerrorMessage(connection), doing);
    }
    return consumer_error(role, state, text, doing);
}

}  // namespace

ErrorInfo relay_error(std::string_view sqlstate, std::string_view message,
                      const ErrorContext& context) {
    if (!sqlstate.empty()) {
        return error_for(Role::kRelay, sqlstate, redacted_line(message), "; ", &context);
    }
    return {Code::kConnectionLost,
            Advice::kRetryDestination,
            {},
            "the connection to PostgreSQL at " + context.host +
                " broke: " + redacted_line(message) + "; it is made again"};
}

ErrorInfo mailbox_error(std::string_view sqlstate, std::string_view message) {
    if (!sqlstate.empty()) {
        return error_for(Role::kMailbox, sqlstate, redacted_line(message), "; ");
    }
    const std::string_view remedy = refusal_remedy(message);
    const bool refused = !remedy.empty();
    return {refused ? Code::kConnectFailed : Code::kSinkUnavailable,
            Advice::kRetryDestination,
            {},
            redacted_line(message) + "; " +
                (refused ? std::string(remedy)
                         : "the mailbox's database is out of reach; the connection is made again")};
}

ErrorInfo store_error(std::string_view sqlstate, std::string_view message,
                      const std::string& store) {
    ErrorInfo error =
        error_for(Role::kStore, sqlstate, store + ": " + redacted_line(message), "; ");
    if (const std::string_view remedy = refusal_remedy(message); !remedy.empty()) {
        error.code = Code::kConnectFailed;
        error.message += "; " + std::string(remedy);
    }
    return error;
}

ErrorInfo receive_error(std::string_view sqlstate, std::string_view message,
                        const std::string& doing) {
    return consumer_error(Role::kReceive, sqlstate, message, doing);
}

ErrorInfo receive_error(const PGconn* connection, const PGresult* result,
                        const std::string& doing) {
    return consumer_error(Role::kReceive, connection, result, doing);
}

ErrorInfo operate_error(const PGconn* connection, const PGresult* result,
                        const std::string& doing) {
    return consumer_error(Role::kOperate, connection, result, doing);
}

ErrorInfo emit_error(const PGconn* connection, const PGresult* result, const std::string& doing) {
    const std::string_view state = field(result, PG_DIAG_SQLSTATE);
    const bool lost = PQstatus(connection) == CONNECTION_BAD;
    if (lost || state.empty()) {
        return {lost ? Code::kConnectionLost : Code::kQueryFailed,
                lost ? Advice::kRetryDestination : Advice::kStop, std::string(state),
                doing + ": " + redacted_line(PQerrorMessage(connection))};
    }
    std::string message = doing + ": " + redacted_line(field(result, PG_DIAG_MESSAGE_PRIMARY));
    const std::string_view hint = field(result, PG_DIAG_MESSAGE_HINT);
    if (!hint.empty()) message += ". " + redacted_line(hint);
    return error_for(Role::kEmit, state, std::move(message), ". ");
}

ErrorInfo migrator_refused(std::string_view sqlstate, std::string message) {
    const Rule* rule = rule_of(sqlstate, Role::kEmit);
    if (rule != nullptr && (rule->kind == Kind::kSetup || rule->code == Code::kConnectFailed)) {
        return error_for(Role::kEmit, sqlstate, std::move(message), ". ");
    }
    return {Code::kConnectFailed, Advice::kRetryDestination, std::string(sqlstate),
            message + ". Check that the server runs and that host and port are right."};
}

Concerns what_concerns(const ErrorInfo& error) {
    const std::string_view state = error.backend_code;
    if (state.empty()) return Concerns::kAll;
    const Rule* rule = rule_of(state, std::nullopt);
    if (rule == nullptr) return Concerns::kRows;
    switch (rule->kind) {
        case Kind::kRow:
        case Kind::kLock:
            return Concerns::kRows;
        case Kind::kTime:
        case Kind::kConflict:
        case Kind::kSetup:
        case Kind::kServer:
            return Concerns::kPerhaps;
        case Kind::kOutage:
            break;
    }
    return Concerns::kAll;
}

bool may_concern_rows(const PGconn* connection, const ErrorInfo& error) {
    return PQstatus(connection) == CONNECTION_OK && what_concerns(error) != Concerns::kAll;
}

std::string words_of(const ErrorInfo& error) {
    const Rule* rule = rule_of(error.backend_code, Role::kRelay);
    if (rule == nullptr) return error.message;
    const std::string_view text = rule->relay->remedy;
    const auto remedy = "; " + std::string(text.substr(0, text.find('{')));
    return error.message.substr(0, error.message.rfind(remedy));
}

ErrorInfo url_error(std::string_view libpq_message) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "not a PostgreSQL URL (" +
                std::string(libpq_message.substr(0, libpq_message.find_first_of("\"\n"))) +
                "...): write postgresql://USER@HOST:PORT/DATABASE and percent-encode special "
                "characters"};
}

std::string_view sqlstate_in(std::string_view message, std::string_view* text) {
    constexpr std::size_t kStateSize = 5;
    for (auto at = message.find(":  "); at != std::string_view::npos;
         at = message.find(":  ", at + 1)) {
        const std::string_view rest = message.substr(at + 3);
        if (rest.size() < kStateSize + 2 || rest[kStateSize] != ':') continue;
        const std::string_view state = rest.substr(0, kStateSize);
        if (state.find_first_not_of("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") !=
            std::string_view::npos) {
            continue;
        }
        if (text != nullptr) {
            *text = rest.substr(kStateSize + 2);
            *text = text->substr(0, text->find('\n'));
        }
        return state;
    }
    return {};
}

std::string_view refused_state_in(std::string_view message) {
    const std::string_view state = sqlstate_in(message);
    return state.starts_with("22") ? std::string_view() : state;
}

std::string_view refusal_remedy(std::string_view message) {
    const auto says = [&](std::string_view part) {
        return message.find(part) != std::string_view::npos;
    };
    if (says("does not match host name")) {
        return "use a host name that stands in the server's certificate; hostaddr=ADDRESS says "
               "where it is";
    }
    if (says("certificate verify failed")) {
        return "the server's certificate is of another CA than sslrootcert, or has expired: see "
               "openssl s_client -starttls postgres";
    }
    if (says("no password supplied")) {
        return "the server wants a password: give one in the URL, by password_file=, PGPASSWORD or "
               "~/.pgpass";
    }
    if (says("invalid value for parameter") || says("unrecognized configuration parameter")) {
        return "correct the options of the URL, or the settings of the role and the database";
    }
    if (says("root certificate file")) return "name the file of the server's CA: sslrootcert=FILE";
    return {};
}

}  // namespace outbox::postgres
