#include "core/lanes.h"

#include <algorithm>

#include "core/check.h"

namespace outbox::core {

namespace {
// How many positions of one key are fetched at a time once its failing event is through.
constexpr std::size_t kRefillPerKey = 100;
}  // namespace

Lanes::Lanes(Options options) : options_(options), slots_(options.max_slots) {
    free_slot_ids_.reserve(options.max_slots);
    for (std::size_t i = options.max_slots; i > 0; --i) {
        free_slot_ids_.push_back(static_cast<SlotId>(i - 1));
    }
}

bool Lanes::admit(LaneKey key, const Work& work, TenantId tenant) {
    const LaneId id = find_or_add(key, tenant);
    Lane& lane = lanes_[id];
    if (lane.waiting) {
        lane.waiting->events.emplace_back(work.position, false);
        if (work.attempts > 0) lane.waiting->retries[work.position] = {work.attempts, 0};
        ++waiting_count_;
        return false;
    }
    const SlotId slot = append_slot(id, work);
    if (!lane.breaking && (!options_.one_per_key || lane.head == slot)) make_ready(slot);
    return true;
}

void Lanes::admit_waiting(LaneKey key, Position position, std::uint32_t attempts,
                          std::int64_t due_us, TenantId tenant) {
    const LaneId id = find_or_add(key, tenant);
    Waiting& waiting = waiting_of(lanes_[id]);
    const bool first = waiting.events.empty();
    waiting.events.emplace_back(position, false);
    waiting.retries[position] = {attempts, due_us};
    ++waiting_count_;
    // Events of the key that are under way already lie before this one and go first.
    if (first) settle(id);
}

SlotId Lanes::next_ready(bool fresh) {
    const SlotId slot = again_.first != kNoSlot || !fresh ? again_.first : fresh_.first;
    if (slot != kNoSlot) take(slot);
    return slot;
}

SlotId Lanes::find_probe(EventRef prefer, std::span<const EventRef> avoid, bool fresh) const {
    SlotId other = kNoSlot;
    SlotId any = kNoSlot;
    for (const ReadyList* list : {&fresh_, &again_}) {
        if (list == &fresh_ && !fresh) continue;
        for (SlotId id = list->first; id != kNoSlot; id = slots_[id].ready_next) {
            if (lane_of(id).head != id) continue;
            const EventRef event = slots_[id].work.ref();
            if (!prefer.is_none() && event == prefer) return id;
            if (any == kNoSlot) any = id;
            if (other == kNoSlot && std::find(avoid.begin(), avoid.end(), event) == avoid.end()) {
                other = id;
            }
            if (other != kNoSlot && prefer.is_none()) return other;
        }
    }
    return other != kNoSlot ? other : any;
}

void Lanes::take(SlotId id) {
    unready(id);
    Slot& slot = slots_[id];
    slot.in_flight = true;
    slot.first_time = !slot.work.sent;
    if (slot.first_time) ++exposed_;
    slot.work.sent = true;
    ++lanes_[slot.lane].in_flight;
    ++in_flight_;
}

void Lanes::put_back(SlotId id) {
    Slot& slot = slots_[id];
    outcome(id);
    if (slot.first_time) cover(slot);
    ReadyList& list = ready_list(slot);
    slot.ready = true;
    slot.ready_previous = kNoSlot;
    slot.ready_next = list.first;
    (list.first == kNoSlot ? list.last : slots_[list.first].ready_previous) = id;
    list.first = id;
}

bool Lanes::enter(SlotId id, std::uint64_t channel) {
    Lane& lane = lanes_[slots_[id].lane];
    if (lane.in_flight == 1 || lane.channel == channel) {
        lane.channel = channel;
        return true;
    }
    outcome(id);
    if (slots_[id].first_time) cover(slots_[id]);
    break_lane(lane);
    return false;
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

void Lanes::block(SlotId id, std::uint32_t attempts, std::int64_t due_us, bool refused) {
    const LaneId lane_id = slots_[id].lane;
    Lane& lane = lanes_[lane_id];
    outcome(id);
    if (refused) cover(slots_[id]);
    waiting_of(lane).retries[slots_[id].work.position] = {attempts, due_us};
    break_and_park(lane);
    settle(lane_id);
}

void Lanes::hold(SlotId id) {
    const LaneId lane_id = slots_[id].lane;
    Lane& lane = lanes_[lane_id];
    outcome(id);
    unlink(id);
    release_slot(id);
    ++waiting_of(lane).holds;
    break_and_park(lane);
    settle(lane_id);
}

void Lanes::hold_key(LaneKey key) {
    const LaneId id = find_or_add(key, 0);
    Waiting& waiting = waiting_of(lanes_[id]);
    ++waiting.holds;
    uncount(waiting);
    if (lanes_[id].head != kNoSlot) break_and_park(lanes_[id]);
    settle(id);
}

void Lanes::uncount(Waiting& waiting) {
    waiting.uncounted = true;
    for (Parked& event : waiting.events) {
        if (!event.sent()) continue;
        event.clear_sent();
        --exposed_;
        --reserved_;
    }
}

void Lanes::hold_back(SlotId id) {
    const LaneId lane_id = slots_[id].lane;
    Lane& lane = lanes_[lane_id];
    outcome(id);
    Waiting& waiting = waiting_of(lane);
    waiting.retries[slots_[id].work.position] = {slots_[id].work.attempts, 0};
    if (!waiting.held_back) ++waiting.holds;
    waiting.held_back = true;
    uncount(waiting);
    break_and_park(lane);
    settle(lane_id);
}

bool Lanes::go_on(LaneKey key) {
    LaneId id = table_.find(key);
    if (id == kNoLane || !lanes_[id].waiting || !lanes_[id].waiting->held_back) return false;
    lanes_[id].waiting->held_back = false;
    resume(key);
    id = table_.find(key);
    return id != kNoLane && (!lanes_[id].waiting || lanes_[id].waiting->holds == 0);
}

void Lanes::resume(LaneKey key) {
    const LaneId id = table_.find(key);
    if (id == kNoLane) return;
    Waiting* waiting = lanes_[id].waiting.get();
    if (waiting == nullptr || waiting->holds == 0) return;
    if (--waiting->holds > 0) return;
    waiting->uncounted = false;
    settle(id);
}

void Lanes::withdraw(LaneKey key, std::vector<Withdrawn>& out) {
    const LaneId id = table_.find(key);
    if (id == kNoLane || lanes_[id].breaking) return;
    Lane& lane = lanes_[id];
    for (SlotId slot = lane.head; slot != kNoSlot;) {
        const Work work = slots_[slot].work;
        const SlotId next = slots_[slot].next;
        if (!slots_[slot].in_flight) {
            out.push_back({work.position, work.attempts, 0, work.dead_id, work.attempts > 0});
            released_.push_back({work.batch, work.index, lane.tenant});
            unready(slot);
            unlink(slot);
            release_slot(slot);
        }
        slot = next;
    }
    if (Waiting* waiting = lane.waiting.get(); waiting != nullptr) {
        for (const Parked event : waiting->events) {
            Withdrawn one{event.position()};
            if (const auto retry = waiting->retries.find(one.position);
                retry != waiting->retries.end()) {
                one.attempts = retry->second.attempts;
                one.due_us = retry->second.due_us;
                one.failed = true;
            }
            if (event.sent()) {
                --exposed_;
                --reserved_;
            }
            out.push_back(one);
        }
        waiting_count_ -= waiting->events.size();
        waiting->events.clear();
        waiting->retries.clear();
        waiting->withdrawn = waiting->outstanding > 0;
    }
    settle(id);
}

bool Lanes::may_withdraw(LaneKey key) const {
    const LaneId id = table_.find(key);
    if (id == kNoLane) return false;
    const Lane& lane = lanes_[id];
    return !lane.breaking || (lane.waiting && lane.waiting->withdrawn);
}

std::int64_t Lanes::next_due_us(bool fresh) const {
    if (fresh && !fresh_due_.empty()) return fresh_due_.front().due_us;
    if (!no_room_.empty() && free_slots() > 0) return no_room_.front().due_us;
    return due_.empty() ? std::numeric_limits<std::int64_t>::max() : due_.top().due_us;
}

void Lanes::take_due(std::int64_t now_us, std::size_t limit, std::vector<Due>& out, bool fresh) {
    std::size_t room = free_slots();
    if (fresh) {
        for (const DueEntry& entry : fresh_due_) due_.push(entry);
        fresh_due_.clear();
    }
    if (room > 0) {
        for (const DueEntry& entry : no_room_) due_.push(entry);
        no_room_.clear();
    }
    const std::size_t end = out.size() + limit;
    while (out.size() < end && !due_.empty() && due_.top().due_us <= now_us) {
        const DueEntry entry = due_.top();
        due_.pop();
        const LaneId id = table_.find(entry.key);
        if (id == kNoLane) continue;
        Lane& lane = lanes_[id];
        // A later failure or hold has replaced this entry, or it was served already.
        if (!lane.waiting || lane.waiting->holds > 0 || lane.waiting->outstanding > 0 ||
            lane.head != kNoSlot || lane.waiting->events.empty() ||
            lane.waiting->due_us != entry.due_us) {
            continue;
        }
        if (!fresh && !lane.waiting->events.front().sent()) {
            fresh_due_.push_back(entry);
            continue;
        }
        take_due_of(lane, end - out.size(), fresh, room, out);
        if (lane.waiting->outstanding == 0) {
            no_room_.push_back(entry);
        }
    }
}

// An event that failed goes alone: were it to fail again, nothing else would be in its wake.
// Behind it the key flows in larger steps.
void Lanes::take_due_of(Lane& lane, std::size_t limit, bool fresh, std::size_t& room,
                        std::vector<Due>& out) {
    Waiting& waiting = *lane.waiting;
    limit = std::min(limit, kRefillPerKey);
    bool alone = false;
    while (waiting.outstanding < limit && !alone && !waiting.events.empty()) {
        const Parked event = waiting.events.front();
        if (!event.sent() && (room == 0 || !fresh)) return;
        Due due{lane.key, event.position(), 0, event.sent(), lane.tenant};
        if (!waiting.retries.empty()) {
            if (const auto it = waiting.retries.find(event.position());
                it != waiting.retries.end()) {
                if (waiting.outstanding > 0) return;
                alone = true;
                due.attempts = it->second.attempts;
                waiting.retries.erase(it);
            }
        }
        if (!event.sent()) --room;
        waiting.events.pop_front();
        --waiting_count_;
        ++waiting.outstanding;
        out.push_back(due);
    }
}

void Lanes::refill(const Due& due, std::uint32_t batch, std::uint32_t index) {
    const LaneId id = table_.find(due.key);
    OUTBOX_CHECK(id != kNoLane && lanes_[id].waiting && lanes_[id].waiting->outstanding > 0,
                 "a lane gets back only what it handed out");
    Lane& lane = lanes_[id];
    if (due.sent) --reserved_;
    const SlotId slot = append_slot(id, {due.position, batch, index, due.attempts, due.sent});
    const bool last = --lane.waiting->outstanding == 0;
    if (last) lane.waiting->withdrawn = false;
    // Held in the meantime: all go back to their places when the last of them is here.
    if (lane.waiting->holds > 0) break_and_park(lane);
    if (lane.breaking) {
        if (last) settle(id);
    } else if (!options_.one_per_key || lane.head == slot) {
        make_ready(slot);
    }
}

void Lanes::gone(const Due& due) {
    const LaneId id = table_.find(due.key);
    OUTBOX_CHECK(id != kNoLane && lanes_[id].waiting && lanes_[id].waiting->outstanding > 0,
                 "a lane gets back only what it handed out");
    Lane& lane = lanes_[id];
    if (due.sent) {
        --exposed_;
        --reserved_;
    }
    if (--lane.waiting->outstanding > 0) return;
    lane.waiting->withdrawn = false;
    if (lane.waiting->holds > 0 && lane.head != kNoSlot) break_and_park(lane);
    settle(id);
}

bool Lanes::return_due(const Due& due) {
    const LaneId id = table_.find(due.key);
    OUTBOX_CHECK(id != kNoLane && lanes_[id].waiting && lanes_[id].waiting->outstanding > 0,
                 "a lane gets back only what it handed out");
    Lane& lane = lanes_[id];
    Waiting& waiting = *lane.waiting;
    if (!lane.parking || waiting.withdrawn) return false;
    waiting.events.emplace_front(due.position, due.sent);
    ++waiting_count_;
    if (due.attempts > 0) waiting.retries[due.position] = {due.attempts, 0};
    if (waiting.uncounted) uncount(waiting);
    if (--waiting.outstanding == 0) settle(id);
    return true;
}

void Lanes::give_way(std::vector<SlotId>& letters) {
    giving_way_.clear();
    for (SlotId id = fresh_.first; id != kNoSlot; id = slots_[id].ready_next) {
        const Slot& slot = slots_[id];
        const Lane& lane = lanes_[slot.lane];
        if (lane.head != id || lane.in_flight > 0) continue;
        if (slot.work.dead_id != 0) {
            letters.push_back(id);
        } else {
            giving_way_.push_back(slot.lane);
        }
    }
    for (const LaneId id : giving_way_) {
        waiting_of(lanes_[id]);
        break_and_park(lanes_[id]);
        settle(id);
    }
}

LaneId Lanes::find_or_add(LaneKey key, TenantId tenant) {
    LaneId id = table_.find(key);
    if (id != kNoLane) {
        // Keys are held before an event of theirs is seen.
        if (tenant != 0) lanes_[id].tenant = tenant;
        return id;
    }
    if (free_lane_ids_.empty()) {
        id = static_cast<LaneId>(lanes_.size());
        lanes_.emplace_back();
    } else {
        id = free_lane_ids_.back();
        free_lane_ids_.pop_back();
    }
    lanes_[id].key = key;
    lanes_[id].tenant = tenant;
    table_.insert(key, id);
    return id;
}

Lanes::Waiting& Lanes::waiting_of(Lane& lane) {
    if (!lane.waiting) lane.waiting = std::make_unique<Waiting>();
    return *lane.waiting;
}

SlotId Lanes::append_slot(LaneId lane_id, const Work& work) {
    OUTBOX_CHECK(!free_slot_ids_.empty(), "an event comes only where a slot is free");
    const SlotId id = free_slot_ids_.back();
    free_slot_ids_.pop_back();
    ++used_slots_;
    Lane& lane = lanes_[lane_id];
    Slot& slot = slots_[id];
    slot = Slot{};
    slot.work = work;
    slot.lane = lane_id;
    slot.previous = lane.tail;
    (lane.tail == kNoSlot ? lane.head : slots_[lane.tail].next) = id;
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
    cover(slots_[id]);
    free_slot_ids_.push_back(id);
    --used_slots_;
}

void Lanes::make_ready(SlotId id) {
    Slot& slot = slots_[id];
    ReadyList& list = ready_list(slot);
    slot.ready = true;
    slot.ready_previous = list.last;
    slot.ready_next = kNoSlot;
    (list.last == kNoSlot ? list.first : slots_[list.last].ready_next) = id;
    list.last = id;
}

void Lanes::unready(SlotId id) {
    Slot& slot = slots_[id];
    if (!slot.ready) return;
    ReadyList& list = ready_list(slot);
    (slot.ready_previous == kNoSlot ? list.first : slots_[slot.ready_previous].ready_next) =
        slot.ready_next;
    (slot.ready_next == kNoSlot ? list.last : slots_[slot.ready_next].ready_previous) =
        slot.ready_previous;
    slot.ready = false;
}

// The event is finished, or is known not to be at the destination. Not while it is ready.
void Lanes::cover(Slot& slot) {
    if (slot.work.sent) --exposed_;
    slot.work.sent = false;
}

void Lanes::outcome(SlotId id) {
    Slot& slot = slots_[id];
    OUTBOX_CHECK(slot.in_flight, "an outcome is that of something sent");
    slot.in_flight = false;
    --lanes_[slot.lane].in_flight;
    --in_flight_;
}

// What has not gone yet must not overtake what failed: its turn comes when all is settled.
void Lanes::break_lane(Lane& lane) {
    lane.breaking = true;
    for (SlotId id = lane.head; id != kNoSlot; id = slots_[id].next) unready(id);
}

void Lanes::break_and_park(Lane& lane) {
    break_lane(lane);
    lane.parking = true;
}

// Decides what a lane does next: go on, wait, or end.
void Lanes::settle(LaneId id) {
    Lane& lane = lanes_[id];
    if (lane.breaking) {
        if (lane.in_flight > 0) return;
        if (lane.parking && lane.waiting->outstanding > 0) return;
        lane.breaking = false;
        if (lane.parking) {
            lane.parking = false;
            park(lane);
        } else {
            for (SlotId slot = lane.head; slot != kNoSlot; slot = slots_[slot].next) {
                make_ready(slot);
                if (options_.one_per_key) break;
            }
        }
    }
    if (lane.head != kNoSlot) {
        const Slot& head = slots_[lane.head];
        if (options_.one_per_key && !head.in_flight && !head.ready) make_ready(lane.head);
        return;
    }
    if (lane.waiting) {
        Waiting& waiting = *lane.waiting;
        if (waiting.holds > 0 || waiting.outstanding > 0) return;
        if (!waiting.events.empty()) {
            const auto retry = waiting.retries.find(waiting.events.front().position());
            waiting.due_us = retry == waiting.retries.end() ? 0 : retry->second.due_us;
            due_.push({waiting.due_us, lane.key});
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
        Slot& slot = slots_[id];
        const Position position = slot.work.position;
        if (waiting.uncounted) cover(slot);
        if (slot.work.sent) ++reserved_;
        waiting.events.emplace_front(position, slot.work.sent);
        // One that had failed before keeps its count, unless it has just failed again.
        if (slot.work.attempts > 0) {
            waiting.retries.try_emplace(position, Retry{slot.work.attempts, 0});
        }
        ++waiting_count_;
        released_.push_back({slot.work.batch, slot.work.index, lane.tenant});
        slot.work.sent = false;  // stays exposed
        const SlotId previous = slot.previous;
        release_slot(id);
        id = previous;
    }
    lane.head = kNoSlot;
    lane.tail = kNoSlot;
}

}  // namespace outbox::core
