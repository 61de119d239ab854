#pragma once

#include <algorithm>
#include <limits>
#include <span>
#include <vector>

#include "core/read_mark.h"

namespace outbox::core {

/// Rows that should be there and were not found. A stream of the log tells of a row before others
/// can see it in the table, as its commit may still wait, for a standby perhaps: such a row must be
/// looked for again, and counts as gone only by the proof that closes a hole (`ReadMark`).
///
/// Pure; not thread-safe.
class Absence {
  public:
    /// With so many the caller should wait for some to be found or proved gone.
    static constexpr std::size_t kMax = ReadMark::kMaxHoles;

    void add(std::span<const Position> missing) {
        for (const Position position : missing) mark_.reopen(position);
    }
    [[nodiscard]] bool empty() const { return mark_.holes().empty(); }
    [[nodiscard]] std::size_t size() const { return mark_.holes().size(); }
    /// Ascending.
    [[nodiscard]] std::vector<Position> positions() const {
        std::vector<Position> out;
        out.reserve(mark_.holes().size());
        for (const auto& hole : mark_.holes()) out.push_back(hole.range.first);
        return out;
    }

    /// Every writer there is, asked for after the last `looked` and before the next look.
    void writers_now(std::span<const Writer> writers) { mark_.writers_now(writers); }
    /// As `ReadMark::forget_writers`.
    void forget_writers() { mark_.forget_writers(); }

    /// All of them were looked for, and `found` (ascending) are there. Returns those that never
    /// will be.
    std::vector<Position> looked(std::span<const Position> found) {
        std::vector<PositionRange> closed;
        mark_.read_done(found, ReadMark::kEverything, closed);
        std::vector<Position> gone;
        for (const PositionRange& range : closed) {
            for (Position p = range.first; p <= range.last; ++p) gone.push_back(p);
        }
        return gone;
    }

  private:
    ReadMark mark_{std::numeric_limits<Position>::max()};
};

}  // namespace outbox::core
