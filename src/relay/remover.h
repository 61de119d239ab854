#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "core/mutex.h"

namespace outbox::relay {

using spi::Position;

/// Takes rows that every route has finished out of the table, in bulk and at its own pace, behind
/// the ledger that records them: a crash between the two repeats nothing. `turn` belongs to one
/// thread; the rest may be called from any.
class Remover {
  public:
    /// At this many rows that wait for their removal the routes read on only when some are gone;
    /// what the last owner left comes on top.
    static constexpr std::size_t kMaxPending = 100'000;

    Remover(spi::Recorder& recorder, std::uint64_t epoch) : recorder_(recorder), epoch_(epoch) {}

    /// What the last owner had no time to remove. Before the first `turn`.
    void inherit(spi::PositionSet positions);
    /// Every route has finished them, and that is recorded.
    void push(std::span<const Position> positions);

    /// Waits up to `max_wait` for enough to be worth a transaction, then removes what there is.
    /// After an error nothing is lost: the next turn goes on with the same rows.
    Status turn(std::chrono::milliseconds max_wait);
    /// Lets `turn` wait for no more from now on.
    void flush();

    /// What the table says of rows that it does not let go, where that changed since the last call.
    /// Of the thread that turns.
    [[nodiscard]] std::optional<std::string> new_refusal();

    /// Appends what was taken out of the table and the ledgers since the last call.
    void take_removed(std::vector<Position>& out);

    [[nodiscard]] std::size_t pending() const { return pending_.load(std::memory_order_relaxed); }
    /// Rows that the table keeps.
    [[nodiscard]] std::size_t kept() const { return kept_.load(std::memory_order_relaxed); }
    /// Says while no more may be read.
    [[nodiscard]] const std::atomic<bool>& full() const { return full_; }
    /// Nothing is left that another turn would remove now. Of the thread that turns.
    [[nodiscard]] bool idle() const {
        return pending() == 0 || (!refusal_.empty() && pending() == left_);
    }

  private:
    void set_pending(std::size_t pending) OUTBOX_REQUIRES(mutex_);

    spi::Recorder& recorder_;
    const std::uint64_t epoch_;
    std::atomic<std::size_t> pending_{0};
    std::atomic<std::size_t> kept_{0};
    std::atomic<bool> full_{false};
    std::size_t inherited_ = 0;

    core::Mutex mutex_;
    core::Condition changed_;
    spi::PositionSet waiting_ OUTBOX_GUARDED_BY(mutex_);
    std::vector<Position> removed_ OUTBOX_GUARDED_BY(mutex_);
    bool flush_ OUTBOX_GUARDED_BY(mutex_) = false;

    // Of the thread that turns.
    std::vector<Position> batch_;
    std::string refusal_;
    bool refusal_changed_ = false;
    std::size_t left_ = 0;  // were named to the recorder and are not there yet
};

}  // namespace outbox::relay
