#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

namespace outbox::spi {

/// A place in an outbox table. Positions are positive; see `Reader` for what they promise.
using Position = std::int64_t;

/// Both ends belong to the range.
struct PositionRange {
    Position first = 0;
    Position last = 0;
    friend bool operator==(const PositionRange&, const PositionRange&) = default;
};

/// A set of positions, kept in segments of 65,536: at most 8 KiB for each segment that it touches
/// and does not fill, however its positions are scattered. A route's ledger is such a set, in
/// memory and, segment by segment, on disk. Copyable; not thread-safe.
class PositionSet {
  public:
    static constexpr Position kSegmentSize = 65'536;
    static constexpr std::size_t kSegmentBytes = kSegmentSize / 8;
    /// A segment's positions in ascending order, the highest bit of the first byte first, as in the
    /// bit strings of PostgreSQL.
    using Bits = std::array<std::uint8_t, kSegmentBytes>;

    [[nodiscard]] static constexpr std::int64_t segment_of(Position position) {
        return position / kSegmentSize;
    }

    PositionSet() = default;
    PositionSet(const PositionSet& other) { *this = other; }
    PositionSet& operator=(const PositionSet& other);
    PositionSet(PositionSet&& other) noexcept { *this = std::move(other); }
    PositionSet& operator=(PositionSet&& other) noexcept;
    ~PositionSet() = default;

    /// True: it was not there.
    bool add(Position position);
    void add(std::span<const Position> positions);
    void add(PositionRange range);
    void add_segment(std::int64_t segment, std::span<const std::uint8_t, kSegmentBytes> bits);

    /// True: it was there.
    bool remove(Position position);
    void remove(std::span<const Position> positions);
    /// Every position of segments that lie wholly below `position`.
    void remove_segments_below(Position position);
    /// Moves the lowest positions, at most `most`, to `out`, ascending.
    void take_lowest(std::size_t most, std::vector<Position>& out);
    /// Removes what `other` lacks.
    void keep_common(const PositionSet& other);

    /// False below 0.
    [[nodiscard]] bool contains(Position position) const;
    [[nodiscard]] bool empty() const { return size_ == 0; }
    [[nodiscard]] std::size_t size() const { return size_; }
    /// 0 where it is empty.
    [[nodiscard]] Position highest() const;
    /// All, ascending.
    [[nodiscard]] std::vector<Position> positions() const;
    /// What of `within` is in the set: appends at most `most` ranges, ascending, none of which
    /// goes beyond its segment.
    void append_ranges(PositionRange within, std::size_t most,
                       std::vector<PositionRange>& out) const;
    /// What of `within` is not in the set: appends at most `most` ranges, ascending.
    void append_missing(PositionRange within, std::size_t most,
                        std::vector<PositionRange>& out) const;

    /// Calls `take(segment, bits)` for each segment that is not empty, ascending.
    template <typename Take>
    void for_each_segment(Take take) const {
        for (const auto& [number, segment] : segments_) {
            take(number, segment.bits ? *segment.bits : kAll);
        }
    }

    friend bool operator==(const PositionSet& a, const PositionSet& b) {
        return a.positions() == b.positions();
    }

  private:
    struct Segment {
        std::size_t count = 0;
        std::unique_ptr<Bits> bits;  // null: all of them
    };
    using Segments = std::map<std::int64_t, Segment>;
    static const Bits kAll;

    Segment& segment_at(std::int64_t number);
    void settle(Segments::iterator segment);

    Segments segments_;
    std::size_t size_ = 0;
    // Positions come close together: where the last one was found.
    std::int64_t last_number_ = -1;
    Segment* last_ = nullptr;
};

}  // namespace outbox::spi
