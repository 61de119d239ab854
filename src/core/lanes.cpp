#include "core/lanes.h"

#include <algorithm>
#include <cassert>

namespace outbox::core {

namespace {
// How far `next_probe` looks for another key's event, and how many positions of one key are
// fetched at a time once its failing event is through.
constexpr std::size_t kProbeSearch = 1'000;
constexpr std::size_t kRefillPerKey = 100;
}  // namespace

Lanes::Lanes(Options options) : options_(options), slots_(options.max_slots) {
    free_slot_ids_.reserve(options.max_slots);
    for (std::size_t i = options.max_slots; i > 0; --i) {
        free_slot_ids_.push_back(static_cast<SlotId>(i - 1));
    }
}

bool Lanes::admit(LaneKey key, const Work& work) {
    const LaneId id = find_or_add(key);
    Lane& lane = lanes_[id];
    if (lane.waiting) {
        lane.waiting->positions.push_back(work.position);
        ++waiting_count_;
        return false;
    }
    const SlotId slot = append_slot(id, work);
    if (!lane.breaking && (!options_.one_per_key || lane.head == slot)) make_ready(slot);
    return true;
}

void Lanes::admit_waiting(LaneKey key, Position position, std::uint32_t attempts,
                          std::int64_t due_us) {
    const LaneId id = find_or_add(key);
    Lane& lane = lanes_[id];
    const bool first = !lane.waiting;
    Waiting& waiting = waiting_of(lane);
    waiting.positions.push_back(position);
    ++waiting_count_;
    if (!first) return;
    waiting.failing = position;
    waiting.attempts = attempts;
    // Events of the key that are under way already lie before this one and go first.
    if (lane.head == kNoSlot) {
        schedule(lane, due_us);
    } else {
        waiting.due_us = due_us;
    }
}

SlotId Lanes::next_ready() {
    while (!ready_.empty()) {
        const Ready ready = ready_.front();
        ready_.pop_front();
        if (!valid(ready)) continue;
        send(ready.slot);
        return ready.slot;
    }
    return kNoSlot;
}

SlotId Lanes::next_probe(Position prefer, Position avoid) {
    SlotId chosen = kNoSlot;
    SlotId other = kNoSlot;
    SlotId any = kNoSlot;
    std::size_t looked = 0;
    for (const Ready& ready : ready_) {
        if (++looked > kProbeSearch && any != kNoSlot && prefer == 0) break;
        if (!valid(ready) || lane_of(ready.slot).head != ready.slot) continue;
        if (any == kNoSlot) any = ready.slot;
        const Position position = slots_[ready.slot].work.position;
        if (position == prefer) {
            chosen = ready.slot;
            break;
        }
        if (other == kNoSlot && position != avoid) {
            other = ready.slot;
            if (prefer == 0) break;
        }
    }
    if (chosen == kNoSlot) chosen = other != kNoSlot ? other : any;
    if (chosen != kNoSlot) send(chosen);
    return chosen;
}

void Lanes::put_back(SlotId id) {
    Slot& slot = slots_[id];
    slot.in_flight = false;
    --lanes_[slot.lane].in_flight;
    --in_flight_;
    if (++next_ticket_ == 0) ++next_ticket_;
    slot.ticket = next_ticket_;
    ready_.push_front({id, slot.ticket});
}

void Lanes::acknowledge(SlotId id) {
    const LaneId lane = slots_[id].lane;
    outcome(id);
    unlink(id);
    release_slot(id);
    settle(lane);
}

void Lanes::requeue(SlotId id) {
    const LaneId lane = slots_[id].lane;
    outcome(id);
    break_lane(lanes_[lane]);
    settle(lane);
}

void Lanes::block(SlotId id, std::uint32_t attempts, std::int64_t due_us) {
    const LaneId lane_id = slots_[id].lane;
    Lane& lane = lanes_[lane_id];
    outcome(id);
    break_lane(lane);
    lane.parking = true;
    Waiting& waiting = waiting_of(lane);
    waiting.failing = slots_[id].work.position;
    waiting.attempts = attempts;
    waiting.due_us = due_us;
    settle(lane_id);
}

void Lanes::hold(SlotId id) {
    const LaneId lane_id = slots_[id].lane;
    Lane& lane = lanes_[lane_id];
    outcome(id);
    unlink(id);
    release_slot(id);
    break_lane(lane);
    lane.parking = true;
    Waiting& waiting = waiting_of(lane);
    waiting.failing = 0;
    waiting.attempts = 0;
    waiting.held = true;
    settle(lane_id);
}

void Lanes::resume(LaneKey key) {
    const LaneId id = table_.find(key);
    if (id == kNoLane) return;
    Lane& lane = lanes_[id];
    if (!lane.waiting || !lane.waiting->held) return;
    lane.waiting->held = false;
    lane.waiting->due_us = 0;
    settle(id);
}

void Lanes::hold_key(LaneKey key) {
    Lane& lane = lanes_[find_or_add(key)];
    if (lane.head != kNoSlot) {
        break_lane(lane);
        lane.parking = true;
    }
    waiting_of(lane).held = true;
    if (lane.in_flight == 0 && lane.breaking) settle(table_.find(key));
}

std::int64_t Lanes::next_due_us() const {
    return due_.empty() ? std::numeric_limits<std::int64_t>::max() : due_.top().due_us;
}

void Lanes::take_due(std::int64_t now_us, std::size_t limit, std::vector<Due>& out) {
    limit = std::min(limit, free_slots());
    while (limit > 0 && !due_.empty() && due_.top().due_us <= now_us) {
        const DueEntry entry = due_.top();
        due_.pop();
        const LaneId id = table_.find(entry.key);
        if (id == kNoLane) continue;
        Lane& lane = lanes_[id];
        // A later block or hold has replaced this entry.
        if (!lane.waiting || lane.waiting->held || lane.waiting->fetching || lane.breaking ||
            lane.head != kNoSlot || lane.waiting->due_us != entry.due_us) {
            continue;
        }
        Waiting& waiting = *lane.waiting;
        if (waiting.positions.empty()) {
            settle(id);
            continue;
        }
        // The event that failed goes alone: were it to fail again, nothing else would be in its
        // wake. Behind it the key flows in larger steps.
        const bool retried = waiting.positions.front() == waiting.failing;
        const std::size_t count =
            retried ? 1 : std::min({waiting.positions.size(), kRefillPerKey, limit});
        for (std::size_t i = 0; i < count; ++i) {
            const Position position = waiting.positions.front();
            if (i > 0 && position == waiting.failing) break;
            waiting.positions.pop_front();
            --waiting_count_;
            out.push_back({entry.key, position, retried ? waiting.attempts : 0});
            ++waiting.outstanding;
            --limit;
        }
        waiting.fetching = true;
    }
}

void Lanes::refill(LaneKey key, const Work& work) {
    const LaneId id = table_.find(key);
    assert(id != kNoLane && lanes_[id].waiting);
    Lane& lane = lanes_[id];
    Waiting& waiting = *lane.waiting;
    if (--waiting.outstanding == 0) waiting.fetching = false;
    const SlotId slot = append_slot(id, work);
    if (!lane.breaking && (!options_.one_per_key || lane.head == slot)) make_ready(slot);
}

void Lanes::gone(LaneKey key, Position position) {
    const LaneId id = table_.find(key);
    assert(id != kNoLane && lanes_[id].waiting);
    Waiting& waiting = *lanes_[id].waiting;
    if (--waiting.outstanding == 0) waiting.fetching = false;
    if (waiting.failing == position) waiting.failing = 0;
    settle(id);
}

LaneId Lanes::find_or_add(LaneKey key) {
    LaneId id = table_.find(key);
    if (id != kNoLane) return id;
    if (free_lane_ids_.empty()) {
        id = static_cast<LaneId>(lanes_.size());
        lanes_.emplace_back();
    } else {
        id = free_lane_ids_.back();
        free_lane_ids_.pop_back();
    }
    lanes_[id].key = key;
    table_.insert(key, id);
    return id;
}

Lanes::Waiting& Lanes::waiting_of(Lane& lane) {
    if (!lane.waiting) lane.waiting = std::make_unique<Waiting>();
    return *lane.waiting;
}

SlotId Lanes::append_slot(LaneId lane_id, const Work& work) {
    assert(!free_slot_ids_.empty());
    const SlotId id = free_slot_ids_.back();
    free_slot_ids_.pop_back();
    ++used_slots_;
    Lane& lane = lanes_[lane_id];
    slots_[id] = {work, lane_id, lane.tail, kNoSlot, 0, false};
    if (lane.tail == kNoSlot) {
        lane.head = id;
    } else {
        slots_[lane.tail].next = id;
    }
    lane.tail = id;
    return id;
}

void Lanes::unlink(SlotId id) {
    const Slot& slot = slots_[id];
    Lane& lane = lanes_[slot.lane];
    (slot.previous == kNoSlot ? lane.head : slots_[slot.previous].next) = slot.next;
    (slot.next == kNoSlot ? lane.tail : slots_[slot.next].previous) = slot.previous;
}

void Lanes::release_slot(SlotId id) {
    slots_[id].ticket = 0;
    free_slot_ids_.push_back(id);
    --used_slots_;
}

void Lanes::make_ready(SlotId id) {
    if (++next_ticket_ == 0) ++next_ticket_;
    slots_[id].ticket = next_ticket_;
    ready_.push_back({id, next_ticket_});
}

bool Lanes::valid(const Ready& ready) const {
    const Slot& slot = slots_[ready.slot];
    return slot.ticket == ready.ticket && !slot.in_flight;
}

void Lanes::send(SlotId id) {
    Slot& slot = slots_[id];
    slot.in_flight = true;
    slot.ticket = 0;
    ++lanes_[slot.lane].in_flight;
    ++in_flight_;
}

void Lanes::outcome(SlotId id) {
    Slot& slot = slots_[id];
    assert(slot.in_flight);
    slot.in_flight = false;
    --lanes_[slot.lane].in_flight;
    --in_flight_;
}

// What has not gone yet must not overtake what failed: its turn comes when all is settled.
void Lanes::break_lane(Lane& lane) {
    lane.breaking = true;
    for (SlotId id = lane.head; id != kNoSlot; id = slots_[id].next) slots_[id].ticket = 0;
}

void Lanes::settle(LaneId id) {
    Lane& lane = lanes_[id];
    if (lane.breaking) {
        if (lane.in_flight > 0) return;
        lane.breaking = false;
        if (lane.parking) {
            lane.parking = false;
            park(lane);
        } else {
            for (SlotId slot = lane.head; slot != kNoSlot; slot = slots_[slot].next) {
                make_ready(slot);
                if (options_.one_per_key) break;
            }
            if (lane.head != kNoSlot) return;
        }
    }
    if (lane.head != kNoSlot) {
        Slot& head = slots_[lane.head];
        if (options_.one_per_key && !head.in_flight && head.ticket == 0) make_ready(lane.head);
        return;
    }
    if (lane.waiting) {
        Waiting& waiting = *lane.waiting;
        if (waiting.held || waiting.fetching) return;
        if (!waiting.positions.empty()) {
            const bool retried = waiting.positions.front() == waiting.failing;
            schedule(lane, retried ? waiting.due_us : 0);
            return;
        }
        lane.waiting.reset();
    }
    table_.erase(lane.key);
    free_lane_ids_.push_back(id);
}

// The events of a waiting key give up their slots and keep their places.
void Lanes::park(Lane& lane) {
    Waiting& waiting = waiting_of(lane);
    for (SlotId id = lane.tail; id != kNoSlot;) {
        const Slot& slot = slots_[id];
        waiting.positions.push_front(slot.work.position);
        ++waiting_count_;
        released_.push_back(slot.work.batch);
        const SlotId previous = slot.previous;
        release_slot(id);
        id = previous;
    }
    lane.head = kNoSlot;
    lane.tail = kNoSlot;
}

void Lanes::schedule(Lane& lane, std::int64_t due_us) {
    lane.waiting->due_us = due_us;
    due_.push({due_us, lane.key});
}

}  // namespace outbox::core
