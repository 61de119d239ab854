#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "core/operations.h"

namespace outbox {

/// What the database knows of one consumer.
struct ConsumerInfo {
    std::string name = {};
    std::int64_t applied_total = 0;  ///< Since its members that still report were started.
    std::int64_t repeats_total = 0;
    std::int64_t failed_total = 0;
    std::int64_t dead = 0;  ///< Dead letters there are now.
    /// Records of a broker that are not applied, as reported; nothing: the broker does not know.
    std::optional<std::int64_t> lag = 0;
    std::int64_t floor_us = 0;       ///< 0: nothing was pruned yet.
    std::int64_t updated_at_us = 0;  ///< 0: not reported yet.
};

/// What waits in one mailbox.
struct MailboxInfo {
    std::string name;
    std::int64_t waiting = 0;
    double oldest_age_s = 0;
};

/// What pruning removed.
struct PrunedInbox {
    std::int64_t messages = 0;
    std::int64_t keys = 0;
    std::int64_t sagas = 0;  ///< Finished ones, and steps that a participant remembered.
};

/// A message where it was received.
struct ReceivedMessage {
    std::string mailbox = {};  ///< That it waits in; empty: of a consumer's inbox.
    std::int64_t received_at_us = 0;
    std::int64_t earlier_of_key = 0;  ///< That wait in the mailbox, too.

    std::string consumer = {};          ///< Whose inbox knows it.
    std::int64_t applied_at_us = 0;     ///< Or moved to its dead letters.
    bool discarded = false;             ///< Its dead letter was: it was never applied.
    std::optional<DeadInfo> dead = {};  ///< Its dead letter, without the payload.
};

/// What a consumer's database says of a message.
struct ReceivedMessages {
    std::vector<ReceivedMessage> found;
    std::vector<ConsumerInfo> consumers;  ///< That have a floor: name and floor.
};

/// What an operator asks of a consumer's tables. Works beside running consumers and without them.
class ConsumerOperations {
  public:
    ConsumerOperations() = default;
    ConsumerOperations(const ConsumerOperations&) = delete;
    ConsumerOperations& operator=(const ConsumerOperations&) = delete;
    virtual ~ConsumerOperations() = default;

    /// False: `migrate` has not made the consumer's tables here.
    virtual Result<bool> has_tables() = 0;
    /// Whether any table of the producer's side is here, too.
    virtual Result<bool> has_producer() = 0;
    /// Those of the consumer's tables that a crash of the server empties, as in SQL.
    virtual Result<std::vector<std::string>> unlogged() = 0;
    virtual Result<std::vector<ConsumerInfo>> consumers() = 0;
    virtual Result<std::vector<MailboxInfo>> mailboxes() = 0;
    /// Raises the floors and removes ids from before them, expired keys and old sagas, some
    /// thousands of each at a time; call until it removes nothing.
    virtual Result<PrunedInbox> prune(std::int64_t retention_s) = 0;
    /// How many `prune` would remove in all. Changes nothing.
    virtual Result<PrunedInbox> prunable(std::int64_t retention_s) = 0;
    virtual std::unique_ptr<DeadLetters> dead_letters(const std::string& consumer) = 0;
    /// Where a message of this id is, and which consumers have forgotten old ids.
    virtual Result<ReceivedMessages> find(const std::string& id) = 0;

    /// Ids of the dead letters of all consumers here; none where there is no such table.
    virtual Status dead_ids(const std::function<void(std::string_view)>& take) = 0;
    /// Runs a query that changes nothing and hands over its rows one by one, as text.
    using Cells = std::span<const std::optional<std::string>>;
    virtual Status read(const std::string& query, const std::function<Status(Cells)>& take) = 0;
};

}  // namespace outbox
