#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <memory>
#include <queue>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "core/lane_table.h"

namespace outbox::core {

using spi::Position;

/// The hash of an event's key names its lane. Two keys with one hash share a lane, which costs
/// them independence, never order.
using LaneKey = std::uint64_t;

using SlotId = std::uint32_t;
inline constexpr SlotId kNoSlot = std::numeric_limits<SlotId>::max();

/// One event under way: where its bytes are, and how often it has failed.
struct Work {
    Position position = 0;
    std::uint32_t batch = 0;     ///< The caller's batch that holds the event.
    std::uint32_t index = 0;     ///< The event's index in it.
    std::uint32_t attempts = 0;  ///< Failed attempts so far.
};

/// The ordered queues of one route. An event either holds a slot (its bytes are in memory) or,
/// when its key waits for a failing event, is kept by position only and fetched again later: so a
/// failing key costs eight bytes an event and delays no other.
///
/// Pure: no clock, no I/O. Not thread-safe.
class Lanes {
  public:
    struct Options {
        std::size_t max_slots = 10'000;
        /// Positions that may wait; at the limit `waiting_full` asks the reader to stop.
        std::size_t max_waiting = 250'000;
        /// The sink has no fail-stop order: at most one event per key under way.
        bool one_per_key = false;
    };

    explicit Lanes(Options options);

    [[nodiscard]] std::size_t free_slots() const { return options_.max_slots - used_slots_; }
    [[nodiscard]] bool waiting_full() const { return waiting_count_ >= options_.max_waiting; }
    [[nodiscard]] std::size_t waiting() const { return waiting_count_; }
    [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
    [[nodiscard]] std::size_t queued() const { return used_slots_ - in_flight_; }

    /// A new event, in position order. True: it holds a slot and so its batch. False: its key
    /// waits and only the position is kept. Precondition: `free_slots() > 0`.
    bool admit(LaneKey key, const Work& work);

    /// A new event that may not be sent before `due_us`, as a fresh owner finds it.
    void admit_waiting(LaneKey key, Position position, std::uint32_t attempts, std::int64_t due_us);

    /// Takes the next event to send: it is in flight until one of the outcomes below is told.
    SlotId next_ready();
    /// Like `next_ready`, for the probe of a half-open circuit: the event at `prefer` if it can go
    /// now, else one that is not at `avoid` where there is another whose turn it is.
    SlotId next_probe(Position prefer, Position avoid);
    /// The sink was full: the event just taken goes back to the front.
    void put_back(SlotId slot);
    [[nodiscard]] const Work& work(SlotId slot) const { return slots_[slot].work; }
    [[nodiscard]] LaneKey key(SlotId slot) const { return lane_of(slot).key; }

    /// Finished: published, or not wanted by the route.
    void acknowledge(SlotId slot);
    /// Failed through no fault of its own: goes again, before everything behind it on its key.
    void requeue(SlotId slot);
    /// Failed: the key waits until `due_us`, then this event goes again, alone.
    void block(SlotId slot, std::uint32_t attempts, std::int64_t due_us);
    /// Given up on: the key waits until `resume` says that the dead letter is recorded.
    void hold(SlotId slot);
    /// Ends a hold. No effect when the key is not held.
    void resume(LaneKey key);
    /// Holds a key that has no event under way (a dead letter that blocks its key).
    void hold_key(LaneKey key);

    /// Earliest time at which a waiting key wants to go on; INT64_MAX: none.
    [[nodiscard]] std::int64_t next_due_us() const;

    struct Due {
        LaneKey key = 0;
        Position position = 0;
        std::uint32_t attempts = 0;
    };
    /// Appends positions of keys that are due, which the caller fetches and hands to `refill` or
    /// `gone`. Takes at most `limit` and no more than there are free slots.
    void take_due(std::int64_t now_us, std::size_t limit, std::vector<Due>& out);
    /// A fetched event; it holds a slot again.
    void refill(LaneKey key, const Work& work);
    /// The row of a fetched position is gone: nothing to send.
    void gone(LaneKey key, Position position);

    /// Batches whose events lost their slots because their key waits, one entry per event.
    void take_released(std::vector<std::uint32_t>& batches) { batches.swap(released_); }

  private:
    struct Slot {
        Work work;
        LaneId lane = 0;
        SlotId previous = kNoSlot;
        SlotId next = kNoSlot;
        std::uint32_t ticket = 0;  // matches an entry of ready_, or 0
        bool in_flight = false;
    };
    struct Waiting {
        std::deque<Position> positions;
        Position failing = 0;  // the event that failed, and its attempts
        std::uint32_t attempts = 0;
        std::int64_t due_us = 0;
        bool held = false;      // waits for `resume`, not for a time
        bool fetching = false;  // positions were handed out and are not back
        std::size_t outstanding = 0;
    };
    struct Lane {
        LaneKey key = 0;
        SlotId head = kNoSlot;
        SlotId tail = kNoSlot;
        std::uint32_t in_flight = 0;
        bool breaking = false;  // an event failed: nothing goes until all outcomes are known
        bool parking = false;   // and then the slots become positions
        std::unique_ptr<Waiting> waiting;
    };
    struct Ready {
        SlotId slot;
        std::uint32_t ticket;
    };
    struct DueEntry {
        std::int64_t due_us;
        LaneKey key;
        bool operator>(const DueEntry& other) const { return due_us > other.due_us; }
    };

    [[nodiscard]] const Lane& lane_of(SlotId slot) const { return lanes_[slots_[slot].lane]; }
    LaneId find_or_add(LaneKey key);
    Waiting& waiting_of(Lane& lane);
    SlotId append_slot(LaneId id, const Work& work);
    void release_slot(SlotId slot);
    void unlink(SlotId slot);
    void make_ready(SlotId slot);
    void send(SlotId slot);
    void break_lane(Lane& lane);
    void outcome(SlotId slot);
    void settle(LaneId id);
    void park(Lane& lane);
    void schedule(Lane& lane, std::int64_t due_us);
    [[nodiscard]] bool valid(const Ready& ready) const;

    Options options_;
    std::vector<Slot> slots_;
    std::vector<SlotId> free_slot_ids_;
    std::vector<Lane> lanes_;
    std::vector<LaneId> free_lane_ids_;
    LaneTable table_;
    std::deque<Ready> ready_;
    std::priority_queue<DueEntry, std::vector<DueEntry>, std::greater<>> due_;
    std::vector<std::uint32_t> released_;
    std::size_t used_slots_ = 0;
    std::size_t in_flight_ = 0;
    std::size_t waiting_count_ = 0;
    std::uint32_t next_ticket_ = 0;
};

}  // namespace outbox::core
