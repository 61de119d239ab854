#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "consumer/inbox_store.h"

namespace outbox::consumer {

/// Which messages `fetch` reads.
struct Choice {
    std::vector<std::string> without_keys;        ///< They wait for a failing message.
    std::vector<std::int64_t> without_positions;  ///< Failing messages without key.
    /// Nothing that `fetch` would choose stands below: a store may spare itself the look there.
    std::int64_t from = 0;
    std::vector<std::int64_t> only;  ///< If not empty: these, whatever stands above.
};

/// Whether this member has the mailbox.
enum class Hold : std::uint8_t {
    kNo,    ///< Another member has it.
    kNew,   ///< From now on.
    kStill  ///< Since an earlier call, without a break.
};

/// How much one `fetch` may return.
struct FetchLimits {
    std::size_t max_messages = 0;
    std::size_t max_bytes = 0;  ///< Reading stops after the message that reaches this.
};

/// A mailbox beside its consumer's inbox, the seam between the loop and the databases. Messages
/// travel as events: id, topic, key, headers, payload, position. Used by one thread.
class MailboxStore {
  public:
    MailboxStore() = default;
    MailboxStore(const MailboxStore&) = delete;
    MailboxStore& operator=(const MailboxStore&) = delete;
    virtual ~MailboxStore() = default;

    /// The session in which it works.
    [[nodiscard]] virtual InboxStore& inbox() = 0;
    /// Ends the session and lets go of the mailbox.
    virtual void disconnect() = 0;

    /// Whether this session holds the mailbox.
    virtual Result<Hold> hold_mailbox() = 0;

    /// False: nothing can have arrived since the last `fetch`.
    virtual Result<bool> may_have_news() = 0;

    /// How many messages are present; it stops counting at `most`.
    virtual Result<std::int64_t> waiting(std::int64_t most) = 0;

    /// Appends the messages that are present, in position order.
    virtual Status fetch(const Choice& choice, const FetchLimits& limits, spi::EventBatch& out) = 0;
    /// `Choice::from` of the next look, where all that the last `fetch` gave is dealt with: a
    /// message that is yet to be seen, of however late a commit, stands above. 0: nothing is known.
    [[nodiscard]] virtual std::int64_t next_from() const { return 0; }

    /// Begins a transaction, removes the message from the mailbox and enters it in the inbox. An
    /// error when this session does not hold the mailbox. After an error no transaction is open.
    virtual Result<Taken> begin(const spi::EventView& message) = 0;
    /// The same for several messages; what became of each. Refuses those that may have to be
    /// quarantined: they come one by one.
    virtual Result<std::vector<Taken>> begin_all(std::span<const spi::EventView> messages) = 0;

    struct Turn {
        Status committed;
        std::optional<Result<Taken>> begun;  ///< Set where the next transaction was begun, too.
    };
    /// As the inbox's `commit`; and as `begin` of the next message, where the database does both in
    /// one go.
    virtual Turn commit_and_begin(const spi::EventView& /*next*/) { return {inbox().commit(), {}}; }

    /// Moves the message to the dead letters and its id to the inbox, in a transaction of its own:
    /// kNew. kRepeat: the inbox knew the id, so somebody has applied it; it is only removed.
    virtual Result<Taken> bury(const spi::EventView& message, const Burial& burial) = 0;
};

}  // namespace outbox::consumer
