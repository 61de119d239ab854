#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "consumer/inbox_store.h"

namespace outbox::consumer {

/// How a consumer of a log moves on: from `expected` (none: its first) to `next`.
struct OffsetStep {
    std::string_view topic;
    int partition = 0;
    std::optional<std::int64_t> expected;
    std::int64_t next = 0;
};

/// What `LogStore::begin` gives where the step's offset was not the expected one.
ErrorInfo offset_lost(std::string_view consumer, const OffsetStep& step);

/// The inbox of a consumer whose messages come from a log outside the database.
class LogStore : public virtual InboxStore {
  public:
    /// Begins a transaction and enters the messages; `by_id` false: all are new. With a step, moves
    /// the offset; kConflict/stop when another member has moved it. After an error no transaction
    /// is open.
    virtual Result<std::vector<Taken>> begin(std::span<const spi::EventView> messages, bool by_id,
                                             const OffsetStep* step) = 0;

    /// Copies the message to the dead letters, in a transaction of its own: kNew. `by_id`: enters it
    /// as well; where the inbox knew the id somebody has applied it, and nothing is copied: kRepeat.
    virtual Result<Taken> bury(const spi::EventView& message, const Burial& burial, bool by_id,
                               const OffsetStep* step) = 0;

    /// The offset to go on from; none where nothing was applied yet.
    virtual Result<std::optional<std::int64_t>> next_offset(std::string_view topic,
                                                            int partition) = 0;
};

}  // namespace outbox::consumer
