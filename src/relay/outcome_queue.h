#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/spi/source.h>

#include "core/lanes.h"
#include "core/mutex.h"

namespace outbox::relay {

using spi::Position;

/// What a route has decided about events, on its way to the database.
struct Outcomes {
    std::vector<Position> finished;  ///< Acknowledged, not wanted by the route, or dead.
    /// Where no event will ever come (`EventBatch::closed`). Nothing waits for it to be recorded.
    std::vector<spi::PositionRange> closed;
    std::vector<Position> passed;  ///< Those of `finished` that other routes answer for.
    std::vector<spi::Delivery> failed;
    std::vector<spi::DeadLetter> dead;      ///< Their positions stand in `finished`, too.
    std::vector<core::LaneKey> dead_lanes;  ///< The lane of each of `dead`.
    std::vector<std::int64_t> redelivered;
    std::vector<spi::Delivery> failed_again;
    std::string destination;  ///< What the destination calls itself, met for the first time.
    bool hurry = false;       ///< Somebody waits for what was finished before to be recorded.

    [[nodiscard]] std::size_t count() const {
        return finished.size() + failed.size() + redelivered.size() + failed_again.size() +
               (destination.empty() ? 0 : 1);
    }
    [[nodiscard]] bool empty() const { return count() == 0; }
    /// A key waits for the database: record without waiting for more.
    [[nodiscard]] bool urgent() const {
        return hurry || !dead.empty() || !failed.empty() || !redelivered.empty() ||
               !failed_again.empty() || !destination.empty();
    }
    void append(Outcomes&& more);
    void clear();
};

/// What the recorder and the housekeeper tell a route.
struct Feedback {
    std::vector<Position> recorded;         ///< `finished` positions that are now on disk.
    std::vector<core::LaneKey> dead_lanes;  ///< Their dead letters are on disk.
    std::vector<std::int64_t> settled;      ///< Dead letters whose retry is on disk.

    /// What looks at the dead letters found; they may have begun before the newest of the above was
    /// written, which a look's number tells (`OutcomeQueue::begin_look`).
    std::uint64_t look = 0;                  ///< The oldest that found any of `redeliver`.
    std::vector<spi::DeadLetter> redeliver;  ///< Those that an operator wants sent again.
    std::uint64_t keys_look = 0;             ///< The one that found `dead_keys`.
    std::optional<std::vector<spi::DeadKey>> dead_keys;  ///< Keys that dead letters block now.

    std::optional<std::vector<std::string>> paused;  ///< Tenants that are paused from now on.

    std::optional<std::string> destination;  ///< What the database says of it; empty: any.

    [[nodiscard]] bool empty() const {
        return recorded.empty() && dead_lanes.empty() && settled.empty() && redeliver.empty() &&
               !dead_keys && !paused && !destination;
    }
};

/// Carries outcomes from the routes' threads to the recorder, and answers back; one lock per batch.
/// Bounded by the routes' limit of unrecorded events.
class OutcomeQueue {
  public:
    explicit OutcomeQueue(std::size_t routes)
        : pending_(routes), feedback_(routes), offered_(routes), taken_(routes) {}

    /// Takes everything out of `outcomes` and leaves it empty.
    void push(std::size_t route, Outcomes& outcomes);

    /// Waits until `count` outcomes are pending, one is urgent, `flush` was called, or `max_wait`
    /// is over; then moves all to `out`, one entry per route.
    void take(std::size_t count, std::chrono::milliseconds max_wait, std::vector<Outcomes>& out);
    [[nodiscard]] bool empty() const;
    /// Lets `take` return at once from now on.
    void flush();

    /// Adds to what waits for the route; of dead keys, tenants and destination the newest counts.
    void answer(std::size_t route, Feedback&& feedback);
    /// Moves the answers to `out`; false when there is none.
    bool take_feedback(std::size_t route, Feedback& out);
    /// Whether the route has taken the dead letters that this look found for it.
    [[nodiscard]] bool has_taken(std::size_t route, std::uint64_t look) const;

    /// A dead letter that no route took is now offered to these. Those that have not answered yet,
    /// from this call or an earlier one.
    std::vector<std::size_t> hand_over(std::int64_t dead_id, std::span<const std::size_t> routes);
    /// What a route's answer to a retried dead letter means for the letter.
    struct Handed {
        bool settled = true;              ///< No answer is awaited any more.
        bool delivered = true;            ///< All have it; of no meaning before it is settled.
        std::vector<std::size_t> routes;  ///< That are to be told that it is settled.
    };
    Handed answered(std::int64_t dead_id, std::size_t route, bool delivered);

    /// A look at the dead letters begins; its number.
    std::uint64_t begin_look() { return looks_.fetch_add(1) + 1; }
    /// The newest look that has begun.
    [[nodiscard]] std::uint64_t newest_look() const { return looks_.load(); }

  private:
    mutable core::Mutex mutex_;
    core::Condition changed_;
    std::vector<Outcomes> pending_ OUTBOX_GUARDED_BY(mutex_);
    std::vector<Feedback> feedback_ OUTBOX_GUARDED_BY(mutex_);
    // By route: the newest look whose dead letters it was offered, and has taken.
    std::vector<std::uint64_t> offered_ OUTBOX_GUARDED_BY(mutex_);
    std::vector<std::uint64_t> taken_ OUTBOX_GUARDED_BY(mutex_);
    struct HandedOver {
        std::vector<std::size_t> routes;
        std::vector<std::size_t> waiting;  // of these
        bool failed = false;
    };
    // By dead_id.
    std::unordered_map<std::int64_t, HandedOver> handed_over_ OUTBOX_GUARDED_BY(mutex_);
    std::size_t count_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::size_t awaited_ OUTBOX_GUARDED_BY(mutex_) = SIZE_MAX;  // by `take`
    bool urgent_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool flush_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::atomic<std::uint64_t> looks_{0};
};

}  // namespace outbox::relay
