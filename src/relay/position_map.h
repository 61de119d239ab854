#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "core/mutex.h"

namespace outbox::sources {

/// Makes up positions for rows of tables without a number, for as long as a reader holds them. A
/// row that comes back after it was let go gets a new position. Thread-safe.
class PositionMap {
  public:
    /// The position of the row, which the calling reader then holds.
    spi::Position hold(const std::string& raw_id);

    /// Ends one reader's hold of each.
    void release(std::span<const spi::Position> positions);

    /// What a route finished is written: should it be unfinished again, it is another delivery.
    void settle(std::span<const spi::Position> positions);

    /// The ids of those that are held, in the order of `positions`; others are left out.
    [[nodiscard]] std::vector<std::string> raw_ids(std::span<const spi::Position> positions) const;

  private:
    struct Row {
        std::string raw_id;
        std::size_t holders = 0;
        bool settled = false;
    };
    mutable core::Mutex mutex_;
    spi::Position last_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::unordered_map<spi::Position, Row> rows_ OUTBOX_GUARDED_BY(mutex_);
    // The newest of each row.
    std::unordered_map<std::string, spi::Position> positions_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::sources
