#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "core/lanes.h"

namespace outbox::relay {

using spi::Position;

/// What a route has decided about events, on its way to the database.
struct Outcomes {
    std::vector<Position> finished;  ///< Acknowledged, not wanted by the route, or dead.
    std::vector<spi::Delivery> failed;
    std::vector<spi::DeadLetter> dead;      ///< Their positions stand in `finished`, too.
    std::vector<core::LaneKey> dead_lanes;  ///< The lane of each of `dead`.
    std::vector<std::int64_t> redelivered;
    std::vector<spi::Delivery> failed_again;

    [[nodiscard]] std::size_t count() const {
        return finished.size() + failed.size() + redelivered.size() + failed_again.size();
    }
    [[nodiscard]] bool empty() const { return count() == 0; }
    /// A key waits for the database: record without waiting for more.
    [[nodiscard]] bool urgent() const {
        return !dead.empty() || !failed.empty() || !redelivered.empty() || !failed_again.empty();
    }
    void append(Outcomes&& more);
    void clear();
};

/// What the recorder tells a route.
struct Feedback {
    std::vector<Position> recorded;          ///< `finished` positions that are now on disk.
    std::vector<core::LaneKey> dead_lanes;   ///< Their dead letters are on disk.
    std::vector<spi::DeadLetter> redeliver;  ///< Dead letters that an operator wants sent again.
    std::optional<std::vector<std::string>> dead_keys;  ///< Keys that dead letters block now.
    std::optional<bool> ledger_full;

    [[nodiscard]] bool empty() const {
        return recorded.empty() && dead_lanes.empty() && redeliver.empty() && !dead_keys &&
               !ledger_full;
    }
};

/// Carries outcomes from the routes' threads to the recorder and its answers back; one lock per
/// batch. Bounded by the routes' limit of unrecorded events.
class OutcomeQueue {
  public:
    explicit OutcomeQueue(std::size_t routes) : pending_(routes), feedback_(routes) {}

    /// Takes everything out of `outcomes` and leaves it empty.
    void push(std::size_t route, Outcomes& outcomes);

    /// Waits until `count` outcomes are pending, one is urgent, `flush` was called, or `max_wait`
    /// is over; then moves all to `out`, one entry per route.
    void take(std::size_t count, std::chrono::milliseconds max_wait, std::vector<Outcomes>& out);
    [[nodiscard]] bool empty() const;
    /// Lets `take` return at once from now on.
    void flush();

    void answer(std::size_t route, Feedback&& feedback);
    /// Moves the answers to `out`; false when there is none.
    bool take_feedback(std::size_t route, Feedback& out);

  private:
    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::vector<Outcomes> pending_;
    std::vector<Feedback> feedback_;
    std::size_t count_ = 0;
    bool urgent_ = false;
    bool flush_ = false;
};

}  // namespace outbox::relay
