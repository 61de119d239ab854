#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/event_batch.h>

namespace outbox::consumer {

/// Which messages `fetch` reads.
struct Choice {
    std::vector<std::string> without_keys;        ///< They wait for a failing message.
    std::vector<std::int64_t> without_positions;  ///< Failing messages without key.
    std::vector<std::int64_t> only;               ///< If not empty: these, whatever stands above.
};

struct FetchLimits {
    std::size_t max_messages = 0;
    std::size_t max_bytes = 0;  ///< Reading stops after the message that reaches this.
};

/// A message given up on.
struct Burial {
    std::uint32_t attempts = 0;
    std::string_view error_code;
    std::string_view error;  ///< Valid UTF-8 without NUL.
};

enum class Taken : std::uint8_t {
    kNew,     ///< Entered in the inbox: apply it.
    kRepeat,  ///< The inbox knew it.
    kGone     ///< The row is not there any more.
};

/// What a consumer reports of itself in outbox_inbox_stats.
struct Figures {
    std::uint64_t applied = 0;
    std::uint64_t repeats = 0;
    std::uint64_t failed = 0;
    std::uint64_t dead = 0;
    std::optional<std::int64_t> lag;  ///< None: what waits can be seen in the mailbox.
};

/// "host/pid"
[[nodiscard]] std::string member_name();

/// One database session on a mailbox and its inbox, the seam between the loop and the databases.
/// Messages travel as events: id, topic, key, headers, payload, position. Used by one thread.
///
/// Advice of errors: retry_destination (the database fails; `connect` makes a new session where one
/// is needed), retry_event with code kConflict (run the transaction again), other retry_event or
/// dead_letter (the message is at fault), stop (from `connect` only: a person has to act).
class MailboxStore {
  public:
    MailboxStore() = default;
    MailboxStore(const MailboxStore&) = delete;
    MailboxStore& operator=(const MailboxStore&) = delete;
    virtual ~MailboxStore() = default;

    /// Makes a session unless there is one, and checks the tables.
    virtual Status connect() = 0;
    /// Ends the session; frees the mailbox.
    virtual void disconnect() = 0;

    /// True: this session holds the mailbox, now or already.
    virtual Result<bool> hold_mailbox() = 0;

    /// False: nothing can have arrived since the last `fetch`.
    virtual Result<bool> may_have_news() = 0;

    /// Appends the messages that are present, in position order.
    virtual Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) = 0;
    /// Appends dead letters to be tried once more; their position is 0.
    virtual Status fetch_retries(std::size_t limit, spi::EventBatch& out) = 0;

    /// Begins a transaction, removes the message from the mailbox (position 0: from the dead
    /// letters) and enters it in the inbox. An error when this session does not hold the mailbox.
    /// After an error no transaction is open.
    virtual Result<Taken> begin(const spi::EventView& message) = 0;
    /// The same for several messages of the mailbox; what became of each. Refuses those that may
    /// have to be quarantined: they come one by one.
    virtual Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) = 0;
    /// Commits. An error when the handler ended the transaction, or ignored an error that had
    /// ended it. After an error nothing is open.
    virtual Status commit() = 0;
    /// Rolls back after the handler threw `cause`, which is replaced by a conflict between
    /// transactions where the database said that there was one. An error when the session is lost.
    virtual Status roll_back(ErrorInfo& cause) = 0;

    /// Moves the message to the dead letters (position 0: keeps it there, not to be retried) and
    /// its id to the inbox, in a transaction of its own.
    virtual Status bury(const spi::EventView& message, const Burial& burial) = 0;

    /// Writes the figures of this member.
    virtual Status report(const Figures& figures) = 0;
};

}  // namespace outbox::consumer
