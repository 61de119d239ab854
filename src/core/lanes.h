#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <queue>
#include <span>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "core/event_ref.h"
#include "core/lane_table.h"

namespace outbox::core {

using spi::Position;

/// The hash of an event's key names its lane. Two keys with one hash share a lane, which costs
/// them independence, never order.
using LaneKey = std::uint64_t;

using SlotId = std::uint32_t;
inline constexpr SlotId kNoSlot = std::numeric_limits<SlotId>::max();

/// Whose events a lane holds, as the caller counts them.
using TenantId = std::uint32_t;

/// One event under way: where its bytes are, and how often it has failed.
struct Work {
    Position position = 0;
    std::uint32_t batch = 0;     ///< The caller's batch that holds the event.
    std::uint32_t index = 0;     ///< The event's index in it.
    std::uint32_t attempts = 0;  ///< Failed attempts so far.
    bool sent = false;           ///< Sent before, with an outcome that is not known.
    std::int64_t dead_id = 0;    ///< Of a dead letter that is sent again; 0: it is none.

    [[nodiscard]] EventRef ref() const {
        return dead_id != 0 ? EventRef::letter(dead_id) : EventRef(position);
    }
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

    /// Slots for new events. Those that waiting exposed events will need are kept for them, so
    /// that the limit of exposed events cannot shut out the very events that it counts.
    [[nodiscard]] std::size_t free_slots() const {
        return options_.max_slots - used_slots_ - reserved_;
    }
    [[nodiscard]] bool room_for_due() const { return used_slots_ < options_.max_slots; }
    [[nodiscard]] bool waiting_full() const { return waiting_count_ >= options_.max_waiting; }
    [[nodiscard]] std::size_t waiting() const { return waiting_count_; }
    [[nodiscard]] std::size_t in_flight() const { return in_flight_; }
    [[nodiscard]] std::size_t queued() const { return used_slots_ - in_flight_; }
    /// Events that the destination may have and that are not finished: in flight, or sent before
    /// and failed through no fault of their own. A new owner would send each of them again.
    [[nodiscard]] std::size_t exposed() const { return exposed_; }

    /// A new event, in position order. True: it holds a slot and so its batch. False: its key
    /// waits and only the position is kept. Precondition: `free_slots() > 0`.
    bool admit(LaneKey key, const Work& work, TenantId tenant = 0);

    /// A new event that may not be sent before `due_us`, as a fresh owner finds it.
    void admit_waiting(LaneKey key, Position position, std::uint32_t attempts, std::int64_t due_us,
                       TenantId tenant = 0);

    /// Takes the next event to send: it is in flight until one of the outcomes below is told.
    /// Without `fresh` only one that is exposed already.
    SlotId next_ready(bool fresh = true);
    /// The event for the probe of a half-open circuit, which `take` then takes: `prefer` if it
    /// can go now, else one that is not in `avoid`, rather one that was not sent before
    /// (if `fresh`), else any.
    [[nodiscard]] SlotId find_probe(EventRef prefer, std::span<const EventRef> avoid,
                                    bool fresh = true) const;
    void take(SlotId slot);
    /// The sink was full: the event just taken goes back to the front.
    void put_back(SlotId slot);
    /// Whether the event just taken may go to `channel` now: a key has events under way in one
    /// channel at a time. False: it went back, and its key goes on when nothing is under way.
    [[nodiscard]] bool enter(SlotId slot, std::uint64_t channel);
    [[nodiscard]] bool is_in_flight(SlotId slot) const {
        return slot < slots_.size() && slots_[slot].in_flight;
    }
    [[nodiscard]] const Work& work(SlotId slot) const { return slots_[slot].work; }
    [[nodiscard]] LaneKey key(SlotId slot) const { return lane_of(slot).key; }
    [[nodiscard]] TenantId tenant(SlotId slot) const { return lane_of(slot).tenant; }

    /// Finished: published, or not wanted by the route.
    void acknowledge(SlotId slot);
    /// Failed through no fault of its own: goes again, before everything behind it on its key.
    void requeue(SlotId slot);
    /// Failed: the key waits until `due_us`, then this event goes again, alone. `refused`: the
    /// destination does not have it, else it stays exposed.
    void block(SlotId slot, std::uint32_t attempts, std::int64_t due_us, bool refused);
    /// Given up on: the key waits until `resume` says that the dead letter is recorded.
    void hold(SlotId slot);
    /// Holds a key whatever it has under way (a dead letter that blocks its key). As this may last
    /// for days, what waits of the key is not counted as exposed.
    void hold_key(LaneKey key);
    /// Failed because a part of the destination is down: the key waits for `go_on`, then this event
    /// goes again, alone. As this may last for days, what waits of the key is not counted as
    /// exposed.
    void hold_back(SlotId slot);
    /// Whether the key waits for `go_on`.
    [[nodiscard]] bool is_held_back(SlotId slot) const {
        const Lane& lane = lane_of(slot);
        return lane.waiting && lane.waiting->held_back;
    }
    /// Ends a `hold_back`. False: nothing of the key goes on by it, as it was withdrawn meanwhile
    /// or the key is held for something else, too.
    bool go_on(LaneKey key);
    /// Ends one `hold` or `hold_key`; the key goes on when all are ended. No effect when the key
    /// is not held.
    void resume(LaneKey key);

    struct Withdrawn {
        Position position = 0;
        std::uint32_t attempts = 0;
        std::int64_t due_us = 0;  ///< Not before; 0: at once.
        std::int64_t dead_id = 0;
        bool failed = false;  ///< `attempts` and `due_us` say something.
    };
    /// Takes out of a key's lane all that is not in flight, ascending, for the caller to admit
    /// again in that order. What was sent before counts as exposed no longer, as it may stay away
    /// for days. No effect on positions that are handed out (`take_due`), nor on a key whose
    /// outcomes are awaited after a failure: it is to be asked again when an event of it is ready.
    void withdraw(LaneKey key, std::vector<Withdrawn>& out);
    /// Whether what is handed out of the key can be withdrawn, too (`withdraw`, then `gone`). Else
    /// it is to be refilled: its place is in the lane, before what is there.
    [[nodiscard]] bool may_withdraw(LaneKey key) const;

    /// Earliest time at which a waiting key wants to go on; INT64_MAX: none. Without `fresh` one
    /// whose next event is exposed already, as in `take_due`.
    [[nodiscard]] std::int64_t next_due_us(bool fresh = true) const;

    struct Due {
        LaneKey key = 0;
        Position position = 0;
        std::uint32_t attempts = 0;
        bool sent = false;
        TenantId tenant = 0;
    };
    /// Appends positions of keys that are due, which the caller fetches and hands to `refill` or
    /// `gone`, all of one key in order. Takes at most `limit` and no more than there is room for,
    /// which the caller keeps: it leaves as many of `free_slots` as it has of these. Without
    /// `fresh` only what is exposed already.
    void take_due(std::int64_t now_us, std::size_t limit, std::vector<Due>& out, bool fresh = true);
    /// The event of `due` was fetched into `batch` and holds a slot again.
    void refill(const Due& due, std::uint32_t batch, std::uint32_t index);
    /// The row of `due` is gone: nothing to send.
    void gone(const Due& due);
    /// Instead of fetching `due`, where an event of its key that was fetched has failed meanwhile:
    /// it is handed out again with that one, which gives up its memory once all of the key are
    /// back. Of one key the last is returned first. False: it has to be fetched.
    [[nodiscard]] bool return_due(const Due& due);

    /// Keys that are ready with an event that was not sent before wait, as if they were due: what
    /// is exposed, and cannot come back for want of memory, has theirs; what `take_due` gave of
    /// them is to be returned. Not where something of the key is under way. Appends dead letters
    /// that are ready, which the caller withdraws.
    void give_way(std::vector<SlotId>& letters);
    /// Whether keys wait for `take_due` with `fresh`.
    [[nodiscard]] bool fresh_wait() const { return !fresh_due_.empty(); }

    /// An event that lost its slot because its key waits or was withdrawn.
    struct Released {
        std::uint32_t batch = 0;
        std::uint32_t index = 0;
        TenantId tenant = 0;
    };
    void take_released(std::vector<Released>& events) { events.swap(released_); }

  private:
    struct Slot {
        Work work;
        LaneId lane = 0;
        SlotId previous = kNoSlot;  // in the lane
        SlotId next = kNoSlot;
        SlotId ready_previous = kNoSlot;  // in its ready list
        SlotId ready_next = kNoSlot;
        bool ready = false;
        bool in_flight = false;
        bool first_time = false;  // in flight for the first time
    };
    struct ReadyList {
        SlotId first = kNoSlot;
        SlotId last = kNoSlot;
    };
    // A position and whether it was sent before, in eight bytes: there may be many.
    class Parked {
      public:
        Parked(Position position, bool sent) : packed_(position * 2 + (sent ? 1 : 0)) {}
        [[nodiscard]] Position position() const { return packed_ >> 1; }
        [[nodiscard]] bool sent() const { return (packed_ & 1) != 0; }
        void clear_sent() { packed_ &= ~std::int64_t{1}; }

      private:
        std::int64_t packed_;
    };
    struct Retry {
        std::uint32_t attempts = 0;
        std::int64_t due_us = 0;
    };
    struct Waiting {
        std::deque<Parked> events;
        std::map<Position, Retry> retries;  // those of `events` that failed
        std::int64_t due_us = 0;
        std::uint32_t holds = 0;      // waits for as many `resume`, not for a time
        bool held_back = false;       // one of `holds` is that of `hold_back`
        bool uncounted = false;       // held for long: sent events count no longer
        std::size_t outstanding = 0;  // positions that were handed out and are not back
        bool withdrawn = false;       // what was behind those
    };
    struct Lane {
        LaneKey key = 0;
        TenantId tenant = 0;
        SlotId head = kNoSlot;
        SlotId tail = kNoSlot;
        std::uint32_t in_flight = 0;
        bool breaking = false;      // nothing goes until all outcomes are known
        bool parking = false;       // and then the slots become positions
        std::uint64_t channel = 0;  // of what is under way
        std::unique_ptr<Waiting> waiting;
    };
    struct DueEntry {
        std::int64_t due_us;
        LaneKey key;
        bool operator>(const DueEntry& other) const { return due_us > other.due_us; }
    };

    [[nodiscard]] const Lane& lane_of(SlotId slot) const { return lanes_[slots_[slot].lane]; }
    LaneId find_or_add(LaneKey key, TenantId tenant);
    Waiting& waiting_of(Lane& lane);
    void uncount(Waiting& waiting);
    SlotId append_slot(LaneId id, const Work& work);
    void release_slot(SlotId slot);
    void unlink(SlotId slot);
    ReadyList& ready_list(const Slot& slot) { return slot.work.sent ? again_ : fresh_; }
    void make_ready(SlotId slot);
    void unready(SlotId slot);
    void cover(Slot& slot);
    void break_lane(Lane& lane);
    void break_and_park(Lane& lane);
    void outcome(SlotId slot);
    void settle(LaneId id);
    void park(Lane& lane);
    void take_due_of(Lane& lane, std::size_t limit, bool fresh, std::size_t& room,
                     std::vector<Due>& out);

    Options options_;
    std::vector<Slot> slots_;
    std::vector<SlotId> free_slot_ids_;
    std::vector<Lane> lanes_;
    std::vector<LaneId> free_lane_ids_;
    LaneTable table_;
    ReadyList again_;  // sent before: these go first, so that few events are exposed
    ReadyList fresh_;
    std::priority_queue<DueEntry, std::vector<DueEntry>, std::greater<>> due_;
    std::vector<DueEntry> no_room_;    // due, and wait for a free slot
    std::vector<DueEntry> fresh_due_;  // due, and wait until what is fresh may be sent
    std::vector<Released> released_;
    std::vector<LaneId> giving_way_;  // scratch of `give_way`
    std::size_t used_slots_ = 0;
    std::size_t in_flight_ = 0;
    std::size_t exposed_ = 0;
    std::size_t reserved_ = 0;  // exposed events that hold no slot
    std::size_t waiting_count_ = 0;
};

}  // namespace outbox::core
