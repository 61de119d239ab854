#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include <outbox/spi/event_batch.h>

namespace outbox::core {

using spi::Position;
using spi::PositionRange;

/// The set of positions that a route has finished, as ascending ranges that neither touch nor
/// overlap. Pure; not thread-safe. Polling and stream mode keep the same ledger.
class Ledger {
  public:
    Ledger() = default;
    /// From a checkpoint: any order, overlaps allowed.
    explicit Ledger(std::span<const PositionRange> ranges);

    void add(PositionRange range);
    /// Adds many positions in any order; cheap when they lie close together.
    void add(std::span<const Position> positions);

    /// Forgets many positions in any order; those that are not there are passed over.
    void remove(std::span<const Position> positions);

    [[nodiscard]] bool contains(Position position) const;
    [[nodiscard]] const std::vector<PositionRange>& ranges() const { return ranges_; }
    [[nodiscard]] bool empty() const { return ranges_.empty(); }

  private:
    void collect(std::span<const Position> positions);
    void merge(std::span<const PositionRange> ascending);

    std::vector<PositionRange> ranges_;
    std::vector<Position> sorted_;         // scratch of `collect`
    std::vector<PositionRange> incoming_;  // what `collect` found
    std::vector<PositionRange> tail_;      // scratch
};

}  // namespace outbox::core
