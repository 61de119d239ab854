#include "databases/sqlite/errors.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <optional>
#include <sqlite3.h>

#include "core/url.h"

namespace outbox::sqlite {
namespace {

using Code = ErrorCode;

/// What a result code is about.
enum class Kind : std::uint8_t {
    kRow,     // a value, a constraint, a trigger of the owner's
    kLock,    // somebody holds the file
    kSetup,   // a right, a path, a table: a person has to mend it
    kServer,  // the disk, the memory, the file as it is
};

/// What a role does about it. `remedy`: {path} is what is given as `where`.
struct Answer {
    Advice advice;
    std::string_view remedy;
    std::optional<Code> code;  // where it is something else to this role
};
using Cell = std::optional<Answer>;

constexpr Cell stop(std::string_view remedy = {}) {
    return Answer{Advice::kStop, remedy, {}};
}
// The database's: the destination is tried again.
constexpr Cell wait(std::string_view remedy = {}, std::optional<Code> code = {}) {
    return Answer{Advice::kRetryDestination, remedy, code};
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
    int result;  // a primary result code or an extended one
    Kind kind;
    Code code;  // of a mailbox only for kSetup: it speaks as sinks do
    Cell relay;
    Cell mailbox;
    Cell receive;  // a caller's as well, but for kLock
    Cell emit;
    std::string_view message;  // how SQLite's begins

    [[nodiscard]] bool fits(int other, std::string_view text) const {
        constexpr int kPrimary = 0xff;
        const bool same = result == other || result == (other & kPrimary);
        return same && text.starts_with(message);
    }
    [[nodiscard]] const Cell& of(Role role) const {
        switch (role) {
            case Role::kRelay:
            case Role::kRunning:
                return relay;
            case Role::kMailbox:
                return mailbox;
            case Role::kReceive:
            case Role::kCaller:
                return receive;
            case Role::kEmit:
                break;
        }
        return emit;
    }
};

// What several roles say. The relay's and the writer's are sentences of their own.
constexpr std::string_view kCannotStore = "SQLite cannot store this value";
constexpr std::string_view kHeld = "another connection keeps a write transaction open";
constexpr std::string_view kHeldByProcess = "another process keeps a write transaction open";
constexpr std::string_view kAsAWhole =
    "Begin with BEGIN IMMEDIATE and set a busy_timeout; run the whole transaction again.";
constexpr std::string_view kWriteAccess =
    "The user needs write access to the file and to its folder.";
constexpr std::string_view kLetRelayWrite = "let the relay's user write the file and its folder";
constexpr std::string_view kLetUsWrite = "let this process write the file and its folder";
constexpr std::string_view kNoDatabase = "The file is no SQLite database.";
constexpr std::string_view kNotSound = "the file is not a sound SQLite database";
constexpr std::string_view kDamaged =
    "The database is damaged: restore it from a backup (PRAGMA integrity_check tells more).";
constexpr std::string_view kMakeInbox =
    "make the tables with `outbox migrate --db URL --only consumer`";

// The first rule that fits and says something to the role counts. A relay and a writer stop at what
// a person has to mend; to a consumer and to a mailbox that is an outage, which ends once it is
// mended.
constexpr std::array kRules{
    // result, kind, code; relay, mailbox, receive, emit; message

    // The event or message. The table's constraints carry our codes as their names.
    Rule{SQLITE_CONSTRAINT, Kind::kRow, Code::kPayloadTooLarge, kNone, kNone, kNone, dead(),
         "CHECK constraint failed: OB_PAYLOAD_TOO_LARGE"},
    Rule{SQLITE_CONSTRAINT, Kind::kRow, Code::kTopicInvalid, kNone, kNone, kNone, dead(),
         "CHECK constraint failed: OB_TOPIC_INVALID"},
    Rule{SQLITE_CONSTRAINT_CHECK,
         Kind::kRow,
         Code::kQueryFailed,
         kNone,
         dead("outbox_mailbox does not take this message"),
         kNone,
         kNone,
         {}},
    Rule{SQLITE_CONSTRAINT_NOTNULL,
         Kind::kRow,
         Code::kQueryFailed,
         kNone,
         dead("outbox_mailbox does not take this message"),
         kNone,
         kNone,
         {}},
    Rule{SQLITE_CONSTRAINT,
         Kind::kRow,
         Code::kQueryFailed,
         kNone,
         again("a constraint or trigger on outbox_mailbox refuses this message"),
         again("a constraint or trigger refuses it"),
         dead({}, Code::kInvalidEvent),
         {}},
    Rule{SQLITE_TOOBIG,
         Kind::kRow,
         Code::kPayloadTooLarge,
         kNone,
         dead(kCannotStore),
         dead(kCannotStore),
         dead(),
         {}},
    Rule{SQLITE_MISMATCH,
         Kind::kRow,
         Code::kInvalidEvent,
         kNone,
         dead(kCannotStore),
         dead(kCannotStore),
         dead("SQLite cannot store this value."),
         {}},

    // Other transactions.
    Rule{SQLITE_BUSY,
         Kind::kLock,
         Code::kConflict,
         wait("Another connection holds the write lock: keep transactions short."),
         wait(kHeldByProcess),
         wait(kHeld),
         again(kAsAWhole),
         {}},
    Rule{SQLITE_LOCKED,
         Kind::kLock,
         Code::kConflict,
         wait(),
         wait(kHeldByProcess),
         wait(kHeld),
         again(kAsAWhole),
         {}},

    // What a person has to mend.
    Rule{SQLITE_READONLY_DBMOVED,
         Kind::kSetup,
         Code::kServerChanged,
         stop("Another file has taken its path, or none."),
         wait("another file has taken its path, or none", Code::kSinkUnavailable),
         wait("another file has taken its path, or none", Code::kConnectionLost),
         kNone,
         {}},
    Rule{SQLITE_READONLY,
         Kind::kSetup,
         Code::kNoRights,
         stop(kWriteAccess),
         wait(kLetRelayWrite),
         wait(kLetUsWrite),
         stop(kWriteAccess),
         {}},
    Rule{SQLITE_PERM,
         Kind::kSetup,
         Code::kNoRights,
         stop(kWriteAccess),
         wait(kLetRelayWrite),
         wait(kLetUsWrite),
         stop(kWriteAccess),
         {}},
    Rule{SQLITE_AUTH,
         Kind::kSetup,
         Code::kNoRights,
         stop(),
         wait(kLetRelayWrite),
         wait(kLetUsWrite),
         stop(kWriteAccess),
         {}},
    // Where the relay and migrate begin, the folder or a right may be what is missing.
    Rule{SQLITE_CANTOPEN,
         Kind::kSetup,
         Code::kConnectFailed,
         stop("Check that the file is there (`outbox migrate --db` makes it) and may be opened."),
         wait("is its volume there? A new mailbox is made by: outbox migrate --only consumer --db "
              "sqlite://{path}",
              Code::kNoSuchDatabase),
         wait("check the path; `outbox migrate --db URL` makes file and tables",
              Code::kNoSuchDatabase),
         stop("Check that the folder exists and may be written to."),
         {}},
    Rule{SQLITE_NOTADB,
         Kind::kSetup,
         Code::kNoSuchDatabase,
         stop(kNoDatabase),
         wait(kNotSound),
         wait(kNotSound),
         stop(kNoDatabase),
         {}},
    Rule{SQLITE_ERROR, Kind::kSetup, Code::kNoSuchTable,
         stop("Make the tables with `outbox migrate --db sqlite://{path}`."),
         wait("create it: outbox migrate --db URL --only consumer"), wait(kMakeInbox),
         stop("Make the tables with `outbox migrate --db sqlite:///path`."),
         "no such table: outbox_"},
    Rule{SQLITE_ERROR, Kind::kSetup, Code::kNoSuchTable,
         stop("Make the tables with `outbox migrate --db sqlite://{path}`."), kNone,
         wait(kMakeInbox), kNone, "no such table"},
    Rule{SQLITE_ERROR,
         Kind::kSetup,
         Code::kTableShape,
         kNone,
         wait("outbox_mailbox is not the table that `outbox migrate` makes"),
         wait("the tables are not those that `outbox migrate` makes"),
         kNone,
         {}},

    // The disk, the memory, the file.
    Rule{SQLITE_FULL,
         Kind::kServer,
         Code::kDiskFull,
         wait("Free space on the disk; nothing is lost, recording goes on when there is room."),
         wait("free space on the disk"),
         wait("free space on the disk"),
         wait("Free space on the disk; SQLite may have rolled the whole transaction back."),
         {}},
    Rule{SQLITE_IOERR,
         Kind::kServer,
         Code::kConnectionLost,
         wait("Check the disk."),
         kNone,
         wait("check the disk"),
         wait("Check the disk."),
         {}},
    Rule{SQLITE_CORRUPT,
         Kind::kServer,
         Code::kQueryFailed,
         stop(kDamaged),
         wait("the database is damaged: restore it from a backup"),
         wait("the database is damaged: restore it from a backup"),
         stop(kDamaged),
         {}},
    Rule{SQLITE_NOMEM, Kind::kServer, Code::kQueryFailed, wait(), kNone, kNone, kNone, {}},
    Rule{SQLITE_INTERRUPT, Kind::kServer, Code::kQueryFailed, wait(), kNone, kNone, kNone, {}},
    Rule{SQLITE_PROTOCOL, Kind::kServer, Code::kQueryFailed, wait(), kNone, kNone, kNone, {}},
};

// What is not listed: our fault, or an outage.
Answer unlisted(Role role) {
    switch (role) {
        case Role::kMailbox:
            return {Advice::kRetryDestination, "it is tried again", Code::kSinkUnavailable};
        case Role::kReceive:
        case Role::kCaller:
            return {Advice::kRetryDestination, {}, Code::kQueryFailed};
        case Role::kRelay:
        case Role::kRunning:
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
            return Code::kSinkTimeout;
        case Kind::kSetup:
            return rule.code;
        case Kind::kServer:
            break;
    }
    return rule.code == Code::kDiskFull ? rule.code : Code::kSinkUnavailable;
}

Answer answer_of(Role role, int result, std::string_view message) {
    const auto* rule = std::find_if(kRules.begin(), kRules.end(), [&](const Rule& r) {
        return r.of(role) && r.fits(result, message);
    });
    if (rule == kRules.end()) return unlisted(role);
    Answer answer = *rule->of(role);
    if (role == Role::kCaller && rule->kind == Kind::kLock) {
        answer = {Advice::kRetryEvent,
                  "another connection keeps a write transaction open; roll back and run the "
                  "transaction again, with BEGIN IMMEDIATE",
                  {}};
    }
    if (role == Role::kRunning && rule->result == SQLITE_CANTOPEN) {
        answer = {Advice::kRetryDestination,
                  "Is its volume there? Its journal or log must open, too.",
                  {}};
    }
    if (!answer.code) answer.code = role == Role::kMailbox ? sink_code(*rule) : rule->code;
    return answer;
}

}  // namespace

ErrorInfo sqlite_error(Role role, int code, std::string_view message, const std::string& where) {
    const Answer answer = answer_of(role, code, message);
    std::string text = where.empty() ? std::string(message) : where + ": " + std::string(message);
    if (role == Role::kMailbox) text = redacted_line(text);
    if (!answer.remedy.empty()) {
        const bool sentences =
            role == Role::kRelay || role == Role::kRunning || role == Role::kEmit;
        std::string remedy(answer.remedy);
        constexpr std::string_view kPath = "{path}";
        if (const auto at = remedy.find(kPath); at != std::string::npos) {
            remedy.replace(at, kPath.size(), where);
        }
        text += (sentences ? ". " : "; ") + remedy;
    }
    return {*answer.code, answer.advice, "SQLITE_" + std::to_string(code), std::move(text)};
}

bool refuses_row(const ErrorInfo& error) {
    constexpr std::string_view kPrefix = "SQLITE_";
    if (!error.backend_code.starts_with(kPrefix)) return false;
    const int code = std::atoi(error.backend_code.c_str() + kPrefix.size());
    return std::any_of(kRules.begin(), kRules.end(), [&](const Rule& rule) {
        return rule.kind == Kind::kRow && rule.message.empty() && rule.fits(code, {});
    });
}

}  // namespace outbox::sqlite
