#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "core/mutex.h"

namespace outbox::relay {

/// Makes up positions for rows of tables without a number. A position is one reader's name for a
/// row: they rise in the order in which it met them, whatever other readers have let go meanwhile.
/// Thread-safe.
class PositionMap {
  public:
    /// A new position for the row, above all before.
    spi::Position add(const std::string& raw_id);

    /// Nobody will ask for them any more.
    void remove(std::span<const spi::Position> positions);

    /// The ids of the rows, in the order of `positions`; those that were removed are left out.
    [[nodiscard]] std::vector<std::string> raw_ids(std::span<const spi::Position> positions) const;

  private:
    mutable core::Mutex mutex_;
    spi::Position last_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::unordered_map<spi::Position, std::string> rows_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::relay
