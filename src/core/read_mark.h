#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/event_batch.h>

namespace outbox::core {

using spi::Position;
using spi::PositionRange;

/// A transaction that may still insert into the outbox table.
struct Writer {
    std::string id;  ///< Opaque; no other transaction's before `forget_writers`.
    /// Waits for COMMIT PREPARED; it may have had another id before. Its rows can be seen while it
    /// is still there.
    bool prepared = false;
    friend auto operator<=>(const Writer&, const Writer&) = default;
};

/// How far a reader has come in a table whose positions are taken at insert and become visible at
/// commit, and which positions below that may still hold a late event (holes).
///
/// A hole is closed only by proof: the writers that were there **after** the hole was first seen
/// have all ended, and a read that began later still showed no row. That holds where a position is
/// taken under a lock that marks its writer until its end (PostgreSQL: GENERATED ALWAYS, CACHE 1).
///
/// Pure; not thread-safe.
class ReadMark {
  public:
    /// At this many holes reading does not advance before some are closed or filled. One read
    /// may exceed it by its own rows.
    static constexpr std::size_t kMaxHoles = 250'000;
    /// With more, those are left out of a read that nobody can have filled since they were looked
    /// at last: all that wait for the same writers, none of them prepared, by one read that began
    /// after the last of those had ended.
    static constexpr std::size_t kLookAtAll = 1'000;
    static constexpr Position kEverything = std::numeric_limits<Position>::max();
    static constexpr std::size_t kMaxGenerations = 64;

    struct Hole {
        PositionRange range;
        std::uint64_t generation = 0;
    };

    ReadMark() = default;
    /// With all that lies below `mark` seen.
    explicit ReadMark(Position mark, std::size_t look_at_all = kLookAtAll)
        : mark_(mark), look_at_all_(look_at_all) {}

    /// Positions that need not be read: they are no holes either. Before anything else.
    void set_finished(spi::PositionSet finished) {
        finished_ = std::move(finished);
        finished_top_ = finished_.highest();
    }

    /// The highest position returned; a read asks for rows above it and in the holes.
    [[nodiscard]] Position mark() const { return mark_; }
    /// What a read above the mark has to look at: appends at most `most` ranges, ascending, and
    /// returns the position up to which they cover everything (`kEverything`: the last one has no
    /// end).
    Position append_unread(std::size_t most, std::vector<PositionRange>& out) const;
    /// The holes that the next read has to look at; all of them if `all`, or while they are few.
    void append_holes(bool all, std::vector<PositionRange>& out);
    /// Holes were left out: the writers must be asked for after the read, and if `writers_now` says
    /// no, what was read must be dropped.
    [[nodiscard]] bool left_out() const { return left_out_; }
    [[nodiscard]] const std::vector<Hole>& holes() const { return holes_; }
    [[nodiscard]] bool may_advance() const { return holes_.size() < kMaxHoles; }

    /// One read, in one snapshot that is newer than the last `writers_now` before its
    /// `append_holes` (before this, where that was not called), returned `seen` (ascending; all
    /// above the mark or in holes). It covered what lies up to `covered`,
    /// which is not below the last of `seen`. Appends the holes that are thereby closed.
    void read_done(std::span<const Position> seen, Position covered,
                   std::vector<PositionRange>& closed);

    /// A row came by another way than a read, such as a stream of the log. True: it is new, and
    /// either fills a hole or raises the mark, perhaps leaving a hole. False: it was seen already.
    /// What comes like this never closes a hole: that a stream has passed a position by says
    /// nothing about who may still commit it.
    bool saw(Position position);

    /// There are holes for whose closing the writers must be known.
    [[nodiscard]] bool wants_writers() const;

    /// Every writer there is, asked for after the last `read_done`. False: holes that the last
    /// `append_holes` left out may have been filled since they were looked at.
    bool writers_now(std::span<const Writer> writers);

    /// What writers are called may have begun anew (another connection, a restarted server): every
    /// hole waits for writers that are asked for from now on. A read that is under way closes none,
    /// and if it has left some out the next `writers_now` says no.
    void forget_writers();

    /// A row was found where none could be: reads look there again. Below the mark only.
    void reopen(Position position);

  private:
    // Looks at the writers without a change after which a generation is left out of reads.
    static constexpr std::uint32_t kQuietAfter = 5;

    struct Generation {
        bool captured = false;
        std::set<Writer> writers;     // of those captured, the ones that live
        std::uint32_t unchanged = 0;  // looks at the writers since one of these ended
        bool looked_at = false;       // all its holes, by one read that began since then
        // Of the read that is under way.
        bool left_out = false;
        bool had_ended = false;  // when it began
        bool looks = false;      // it began since one of these ended, and covers all holes so far
    };

    [[nodiscard]] bool ended(std::uint64_t generation) const;
    [[nodiscard]] bool had_ended(std::uint64_t generation) const;
    void begin_read();
    void note_looks(Position covered);
    [[nodiscard]] bool is_left_out(const Hole& hole) const;
    void open_holes(Position first, Position last, std::vector<Hole>& out);
    void keep_piece(const Hole& hole, Position first, Position last, Position covered,
                    std::vector<PositionRange>& closed);
    void drop_unused_generations();
    void merge_equal_generations();
    void merge_newest_generations();

    spi::PositionSet finished_;
    Position finished_top_ = 0;
    Position mark_ = 0;
    std::size_t look_at_all_ = kLookAtAll;
    bool left_out_ = false;
    bool forgot_left_out_ = false;       // by whom what this read left out may have been filled
    bool reading_ = false;               // `append_holes` began a read
    std::vector<PositionRange> ranges_;  // scratch
    std::vector<Hole> holes_;            // ascending, disjoint
    std::vector<Hole> next_;             // scratch of `read_done`
    std::map<std::uint64_t, Generation> generations_;
    std::uint64_t open_generation_ = 1;  // of holes seen since the last capture
    std::set<Writer> last_prepared_;
};

}  // namespace outbox::core
