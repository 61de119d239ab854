#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

#include "consumer/operator_sql.h"

namespace outbox::consumer {

/// The highest migration of the consumer's side that this build knows.
constexpr int kInboxVersion = 7;

/// kMigrationRefused/stop where the database has a later one.
Status check_inbox_version(std::int64_t version);

/// A message given up on.
struct Burial {
    std::uint32_t attempts = 0;
    std::string_view error_code;
    std::string_view error;  ///< Valid UTF-8 without NUL.
};

/// What the inbox says of a message.
enum class Taken : std::uint8_t {
    kNew,     ///< Entered in the inbox: apply it.
    kRepeat,  ///< The inbox knew it.
    kGone     ///< The row is not there any more.
};

/// What a consumer reports of itself in outbox_inbox_stats.
struct MemberStats {
    std::uint64_t applied = 0;
    std::uint64_t repeats = 0;
    std::uint64_t failed = 0;
    std::uint64_t dead = 0;
    std::int64_t lag = 0;  ///< Messages that wait for this member.
    std::string queue;     ///< The queue that it shares with others; empty: none.
    /// Messages that wait there for any of them; nothing: not known.
    std::optional<std::int64_t> queue_lag = 0;

    bool operator==(const MemberStats&) const = default;
};

/// A member that has not reported for so long is gone.
constexpr std::int64_t kMemberGoneS = 300;

/// "host/pid", the second one of a process "host/pid/2".
[[nodiscard]] std::string member_name();

/// A request to try a dead letter once more that is due later than that, and than any that this
/// session has put back, is from before the clock was set back: it is due.
constexpr std::int64_t kLongestWaitUs = 3'600'000'000;

/// One database session with a consumer's inbox and dead letters: what is the same wherever its
/// messages come from. Used by one thread.
///
/// Advice of errors: retry_destination (the database fails; `connect` makes a new session where one
/// is needed), retry_event with code kConflict (run the transaction again), other retry_event or
/// dead_letter (the message is at fault), stop (a person has to act).
class InboxStore {
  public:
    InboxStore() = default;
    InboxStore(const InboxStore&) = delete;
    InboxStore& operator=(const InboxStore&) = delete;
    virtual ~InboxStore() = default;

    /// Makes a session unless there is one, and checks the tables.
    virtual Status connect() = 0;
    /// How to make another connection to the same database, for what is done beside the messages:
    /// from any thread, also when the store is gone.
    [[nodiscard]] virtual OpenSql opener() const = 0;
    /// Ends the session, and all that it holds.
    virtual void disconnect() = 0;
    /// As `check_inbox_version`: somebody may migrate a running consumer's database.
    virtual Status check_version() = 0;

    /// Commits. An error when the handler ended the transaction, or ignored an error that had
    /// ended it. After an error nothing is open.
    virtual Status commit() = 0;
    /// Rolls back after the handler threw `cause`, which is replaced where the database said that
    /// there was a conflict between transactions, or that its disk is full: the message is not at
    /// fault. An error when the session is lost.
    virtual Status roll_back(ErrorInfo& cause) = 0;
    /// Of an error of `commit` or `roll_back` that comes again and again with one message: it may
    /// be what that does (it ends its session, a deferred trigger does not take it), and not what
    /// the database lacks.
    [[nodiscard]] virtual bool may_be_messages_doing(const ErrorInfo& error) const = 0;

    /// Appends dead letters to be tried once more that are due; their position is 0.
    virtual Status fetch_retries(std::size_t limit, spi::EventBatch& out) = 0;
    /// Takes the request from one of them and counts the try, committed: kNew, or kGone, also where
    /// another member has it in hand. Does not wait for that one.
    virtual Result<Taken> take_request(std::string_view message_id) = 0;
    /// The try does not count: undoes `take_request`, due in `delay_us`. Nothing where the letter
    /// is gone, or was asked for anew. A conflict where another session holds it.
    virtual Status put_request_back(std::string_view message_id, std::int64_t delay_us) = 0;
    /// Begins a transaction and removes a letter whose request was taken: kNew, or kGone. A
    /// conflict, and no transaction, where another session holds it: does not wait for that one.
    virtual Result<Taken> begin_retry(std::string_view message_id) = 0;
    /// Keeps the cause with a dead letter that failed once more; `take_request` counted the try.
    virtual Status bury_again(std::string_view message_id, const Burial& burial) = 0;

    /// Writes the figures of this member, and takes over those of members that are gone.
    virtual Status report(const MemberStats& stats) = 0;
    /// This member is gone: its figures count on, its lag does not.
    virtual Status retire() = 0;
};

}  // namespace outbox::consumer
