#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/limits.h>

#include "consumer/inbox_store.h"

namespace outbox::consumer {

/// How a consumer of a log moves on: from `expected` (none: its first) to `next`.
struct OffsetStep {
    std::string_view topic;
    int partition = 0;
    std::optional<std::int64_t> expected;
    std::int64_t next = 0;
    std::string_view cluster_id;  ///< Whose log it is,
    std::string_view last_id;     ///< and what the record before `next` is called.
};

/// Where a consumer of a log goes on, as its database has it.
struct LogPlace {
    std::int64_t next = 0;
    std::string cluster_id;              ///< Empty: not known.
    std::optional<std::string> last_id;  ///< None: not known.

    bool operator==(const LogPlace&) const = default;
};

/// An id by which a message may have been entered before: as of `other_ids`.
struct OtherId {
    std::size_t message = 0;  ///< The number of the message in its batch.
    std::string id;
};

/// What `BrokerStore::begin` gives where the step's offset was not the expected one.
ErrorInfo offset_lost(std::string_view consumer, const OffsetStep& step);
[[nodiscard]] bool is_offset_lost(const ErrorInfo& error);

/// Which parts of an inbox a session needs: its statements and rights follow from it.
struct BrokerStoreOptions {
    std::string consumer;  ///< The inbox's name for it.
    int connect_timeout_s = kConnectTimeoutS;
    bool offsets = false;       ///< It keeps the places of a log.
    bool prunes = false;        ///< It removes its old ids itself.
    bool counts_begun = false;  ///< It asks for `note_begun` and `note_ended`.
};

/// The inbox of a consumer whose messages come from a broker: a log, of which it may keep the
/// place, or a queue.
class BrokerStore {
  public:
    BrokerStore() = default;
    BrokerStore(const BrokerStore&) = delete;
    BrokerStore& operator=(const BrokerStore&) = delete;
    virtual ~BrokerStore() = default;

    /// The session in which it works.
    [[nodiscard]] virtual InboxStore& inbox() = 0;

    /// Begins a transaction and enters the messages; `by_id` false: all are new. One of which
    /// another id is known is a repeat as well. With a step, moves
    /// the offset; `is_offset_lost` where it was not the expected one: another member has moved it,
    /// or the database was set back. After an error no transaction is open.
    virtual Result<std::vector<Taken>> begin(std::span<const spi::EventView> messages, bool by_id,
                                             std::span<const OtherId> others,
                                             const OffsetStep* step) = 0;

    /// Copies the message to the dead letters, in a transaction of its own: kNew. `by_id`: enters
    /// it as well; where the inbox knew the id somebody has applied it, and nothing is copied:
    /// kRepeat.
    virtual Result<Taken> bury(const spi::EventView& message, const Burial& burial, bool by_id,
                               const OffsetStep* step) = 0;

    /// Writes down, committed, that the handler of a message begins. How often that was written
    /// without an end, this time included.
    virtual Result<std::int64_t> note_begun(std::string_view message_id) = 0;
    /// And that it ended in this process. `for_good`: the message is dealt with.
    virtual Status note_ended(std::string_view message_id, bool for_good) = 0;

    /// Where to go on; none where nothing was applied yet.
    virtual Result<std::optional<LogPlace>> place(std::string_view topic, int partition) = 0;
};

}  // namespace outbox::consumer
