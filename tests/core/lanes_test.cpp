#include "core/lanes.h"

#include <algorithm>
#include <deque>
#include <gtest/gtest.h>
#include <map>
#include <ostream>
#include <rapidcheck/gtest.h>
#include <set>
#include <vector>

namespace outbox::core {
namespace {

// Lanes beside a plain model of what each key has unfinished. Every step is checked.
class Model {
  public:
    Model(bool one_per_key, std::size_t max_slots, std::uint64_t channels)
        : lanes_({max_slots, 100'000, one_per_key}),
          one_per_key_(one_per_key),
          max_slots_(max_slots),
          channels_(channels) {}

    void admit(LaneKey key, std::uint32_t attempts) {
        if (lanes_.free_slots() <= fresh_due()) return;
        const Position p = next_position_++;
        unfinished_[key].push_back(p);
        attempts_[p] = attempts;
        if (lanes_.admit(key, {p, static_cast<std::uint32_t>(p), 0, attempts, false}))
            live_.insert(p);
    }
    void admit_waiting(LaneKey key, std::int64_t delay_us) {
        const Position p = next_position_++;
        unfinished_[key].push_back(p);
        attempts_[p] = 1;
        due_at_[p] = now_us_ + delay_us;
        troubled_.insert(key);
        lanes_.admit_waiting(key, p, 1, now_us_ + delay_us);
    }
    bool send(bool fresh = true) {
        const SlotId slot = lanes_.next_ready(fresh);
        if (slot == kNoSlot) return false;
        if (enters(slot)) sent(slot);
        return true;
    }
    void send_and_put_back() {
        const SlotId slot = lanes_.next_ready();
        if (slot != kNoSlot) lanes_.put_back(slot);
    }
    void probe(Position prefer, EventRef avoid) {
        const SlotId slot = lanes_.find_probe(prefer, {&avoid, 1});
        if (slot == kNoSlot) return;
        lanes_.take(slot);
        if (enters(slot)) sent(slot);
    }
    enum class Outcome : std::uint8_t {
        kAcknowledged,
        kRequeued,
        kBlocked,
        kDeferred,
        kHeld,
        kHeldBack
    };
    void tell(LaneKey key, Outcome outcome, std::int64_t delay_us) {
        if (flying_[key].empty()) return;
        // The destination answers for a key in order; after a failure nothing behind is accepted.
        const bool failing = failing_.contains(key);
        if (failing && outcome == Outcome::kAcknowledged) outcome = Outcome::kRequeued;
        auto it = failing ? std::prev(flying_[key].end()) : flying_[key].begin();
        const auto [p, slot] = *it;
        flying_[key].erase(it);
        if (outcome != Outcome::kAcknowledged) {
            failing_.insert(key);
            troubled_.insert(key);
        }
        if (flying_[key].empty()) failing_.erase(key);
        retrying_.erase(p);
        switch (outcome) {
            case Outcome::kAcknowledged:
                RC_ASSERT(p == unfinished_[key].front());
                finished(key, p);
                live_.erase(p);
                lanes_.acknowledge(slot);
                break;
            case Outcome::kRequeued:
                lanes_.requeue(slot);
                break;
            case Outcome::kBlocked:
                exposed_.erase(p);
                ++attempts_[p];
                due_at_[p] = now_us_ + delay_us;
                lanes_.block(slot, attempts_[p], due_at_[p], true);
                break;
            case Outcome::kDeferred:
                due_at_[p] = now_us_ + delay_us;
                lanes_.block(slot, attempts_[p], due_at_[p], false);
                break;
            case Outcome::kHeld:
                finished(key, p);
                live_.erase(p);
                ++holds_[key];
                lanes_.hold(slot);
                break;
            case Outcome::kHeldBack: {
                const bool first = held_back_.insert(key).second;
                if (first) ++holds_[key];
                blocked_.insert(key);
                RC_ASSERT(lanes_.is_held_back(slot) != first);
                lanes_.hold_back(slot);
                break;
            }
        }
    }
    void hold_key(LaneKey key) {
        ++holds_[key];
        troubled_.insert(key);
        lanes_.hold_key(key);
        blocked_.insert(key);
    }
    void go_on(LaneKey key) {
        check();
        lanes_.go_on(key);
        if (held_back_.erase(key) > 0 && --holds_[key] == 0) blocked_.erase(key);
    }
    void resume(LaneKey key) {
        if (held_back_.contains(key) && holds_[key] == 1) return;
        check();
        lanes_.resume(key);
        int& holds = holds_[key];
        if (holds > 0) --holds;
        if (holds == 0) blocked_.erase(key);
    }
    void take_due(std::int64_t passed_us, std::size_t limit, bool fresh = true) {
        if (!due_.empty()) return;
        now_us_ += passed_us;
        const std::size_t room = lanes_.free_slots();
        lanes_.take_due(now_us_, limit, due_, fresh);
        RC_ASSERT(due_.size() <= limit);
        RC_ASSERT(fresh_due() <= (fresh ? room : 0));
        std::sort(due_.begin(), due_.end(),
                  [](const auto& a, const auto& b) { return a.position < b.position; });
    }
    // The first of those that are due, as there may be no room for more.
    void fetched(std::uint32_t which_are_gone, std::size_t most = SIZE_MAX) {
        const std::vector<Lanes::Due> left(
            due_.begin() + static_cast<std::ptrdiff_t>(std::min(most, due_.size())), due_.end());
        due_.resize(due_.size() - left.size());
        for (const Lanes::Due& due : due_) {
            which_are_gone = which_are_gone * 1664525 + 1013904223;
            RC_ASSERT(due.attempts == attempts_[due.position]);
            if (which_are_gone >> 29 == 0) {
                finished(due.key, due.position);
                lanes_.gone(due);
            } else {
                live_.insert(due.position);
                retrying_.insert(due.position);
                if (due.attempts == 0) retrying_.erase(due.position);
                lanes_.refill(due, static_cast<std::uint32_t>(due.position), 0);
            }
        }
        due_ = left;
    }
    void give_way() {
        for (const auto& [key, positions] : unfinished_) troubled_.insert(key);
        std::vector<SlotId> letters;
        lanes_.give_way(letters);
        RC_ASSERT(letters.empty());
        return_due();
        // Nothing else can go than what was sent before.
        if (lanes_.in_flight() == 0 && due_.empty()) {
            const std::size_t exposed = lanes_.exposed();
            const SlotId slot = lanes_.next_ready();
            if (slot == kNoSlot) return;
            RC_ASSERT(lanes_.exposed() == exposed);
            lanes_.put_back(slot);
        }
    }
    void return_due() {
        for (std::size_t i = due_.size(); i-- > 0;) {
            if (!lanes_.return_due(due_[i])) continue;
            due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(i));
        }
    }

    void check() {
        std::vector<Lanes::Released> released;
        lanes_.take_released(released);
        for (const Lanes::Released& one : released) RC_ASSERT(live_.erase(one.batch) == 1U);
        for (const LaneKey key : blocked_) uncount(key);
        std::size_t flying = 0;
        std::size_t unfinished = 0;
        for (const auto& [key, slots] : flying_) flying += slots.size();
        for (const auto& [key, positions] : unfinished_) unfinished += positions.size();
        RC_ASSERT(lanes_.in_flight() == flying);
        std::size_t exposed_and_waiting = 0;
        for (const Position p : exposed_) exposed_and_waiting += live_.contains(p) ? 0 : 1;
        RC_ASSERT(max_slots_ - lanes_.free_slots() == live_.size() + exposed_and_waiting);
        RC_ASSERT(lanes_.queued() + flying == live_.size());
        RC_ASSERT(lanes_.waiting() + live_.size() + due_.size() == unfinished);
        RC_ASSERT(lanes_.exposed() == exposed_.size());
    }
    // A key that never failed is not delayed by those that did.
    void check_healthy_keys_flow() {
        for (const auto& [key, positions] : unfinished_) {
            if (troubled_.contains(key) || positions.empty() || channels_ > 1) continue;
            RC_ASSERT(flying_[key].size() == (one_per_key_ ? 1U : positions.size()));
        }
    }
    // Everything that is left can be finished.
    void finish() {
        for (int round = 0; round < 10'000; ++round) {
            fetched(1U << 31);
            for (const auto& entry : flying_) {
                while (!flying_[entry.first].empty()) tell(entry.first, Outcome::kAcknowledged, 0);
            }
            for (const auto& [key, count] : holds_) {
                go_on(key);
                for (int left = count; left > 0; --left) resume(key);
            }
            while (send()) {
            }
            take_due(1'000'000, 500);
            check();
            if (live_.empty() && lanes_.waiting() == 0 && due_.empty()) break;
        }
        for (const auto& [key, positions] : unfinished_) RC_ASSERT(positions.empty());
        RC_ASSERT(lanes_.free_slots() == max_slots_);
        RC_ASSERT(lanes_.exposed() == 0U);
    }

  private:
    [[nodiscard]] std::size_t fresh_due() const {
        return static_cast<std::size_t>(
            std::count_if(due_.begin(), due_.end(), [](const auto& due) { return !due.sent; }));
    }
    // What waits of a blocked key is not exposed; what is in memory or on its way to it still is.
    void uncount(LaneKey key) {
        for (const Position p : unfinished_[key]) {
            const bool coming = std::any_of(due_.begin(), due_.end(),
                                            [&](const auto& due) { return due.position == p; });
            if (!coming && !live_.contains(p)) exposed_.erase(p);
        }
    }
    // Neighbours mostly share a channel.
    [[nodiscard]] std::uint64_t channel_of(Position p) const {
        return static_cast<std::uint64_t>(p) / 3 % channels_;
    }
    bool enters(SlotId slot) {
        const LaneKey key = lanes_.key(slot);
        const std::uint64_t channel = channel_of(lanes_.work(slot).position);
        const bool entered = lanes_.enter(slot, channel);
        const auto& flying = flying_[key];
        RC_ASSERT(entered == (flying.empty() || channel_of(flying.begin()->first) == channel));
        return entered;
    }
    void sent(SlotId slot) {
        const Work& work = lanes_.work(slot);
        const Position p = work.position;
        const LaneKey key = lanes_.key(slot);
        RC_ASSERT(live_.contains(p));
        RC_ASSERT(work.attempts == attempts_[p]);
        RC_ASSERT(holds_[key] == 0);
        RC_ASSERT(due_at_[p] <= now_us_);
        RC_ASSERT(!failing_.contains(key));
        for (const Position before : unfinished_[key]) {
            if (before == p) break;
            RC_ASSERT(!one_per_key_);
            RC_ASSERT(flying_[key].contains(before));
            RC_ASSERT(!retrying_.contains(before));
        }
        RC_ASSERT(flying_[key].emplace(p, slot).second);
        exposed_.insert(p);
    }
    void finished(LaneKey key, Position p) {
        std::erase(unfinished_[key], p);
        exposed_.erase(p);
        due_at_.erase(p);
    }

    Lanes lanes_;
    bool one_per_key_;
    std::size_t max_slots_;
    std::uint64_t channels_;
    std::int64_t now_us_ = 1;
    Position next_position_ = 1;
    std::map<LaneKey, std::deque<Position>> unfinished_;
    std::map<LaneKey, std::map<Position, SlotId>> flying_;
    std::map<LaneKey, int> holds_;
    std::set<LaneKey> blocked_;  // by `hold_key` or `hold_back`
    std::set<LaneKey> held_back_;
    std::set<LaneKey> failing_;   // a failure was told and not yet all outcomes
    std::set<LaneKey> troubled_;  // ever failed, held or waited
    std::set<Position> live_;     // hold a slot; each event has a batch of its own
    std::set<Position> retrying_;
    std::set<Position> exposed_;
    std::map<Position, std::uint32_t> attempts_;
    std::map<Position, std::int64_t> due_at_;
    std::vector<Lanes::Due> due_;
};

struct Step {
    int what = 0;
    LaneKey key = 0;
    std::uint32_t number = 0;
};

std::ostream& operator<<(std::ostream& out, const Step& step) {
    return out << step.what << " " << step.key << " " << step.number;
}

void run(bool one_per_key, std::uint64_t channels = 1) {
    const auto slots = *rc::gen::inRange<std::size_t>(1, 40);
    const auto keys = *rc::gen::inRange<LaneKey>(1, 6);
    const auto steps =
        *rc::gen::scale(6.0, rc::gen::container<std::vector<Step>>(rc::gen::construct<Step>(
                                 rc::gen::inRange(0, 29), rc::gen::inRange<LaneKey>(0, keys),
                                 rc::gen::arbitrary<std::uint32_t>())));
    Model model(one_per_key, slots, channels);
    for (const Step& step : steps) {
        const std::int64_t delay_us = step.number % 1'000;
        switch (step.what) {
            case 0:
            case 1:
            case 2:
            case 3:
            case 4:
                model.admit(step.key, 0);
                break;
            case 5:
                model.admit(step.key, step.number % 3);
                break;
            case 6:
                model.admit_waiting(step.key, delay_us);
                break;
            case 7:
            case 8:
            case 9:
                model.send(step.number % 8 != 0);
                break;
            case 10:
                model.send_and_put_back();
                break;
            case 11:
                model.probe(step.number % 50, step.number % 7);
                break;
            case 12:
            case 13:
                model.tell(step.key, Model::Outcome::kAcknowledged, 0);
                break;
            case 14:
                model.tell(step.key, Model::Outcome::kRequeued, 0);
                break;
            case 15:
                model.tell(step.key, Model::Outcome::kBlocked, delay_us);
                break;
            case 16:
                model.tell(step.key, Model::Outcome::kHeld, 0);
                break;
            case 17:
                model.hold_key(step.key);
                break;
            case 18:
                model.resume(step.key);
                break;
            case 19:
                model.take_due(delay_us, step.number % 60);
                break;
            case 20:
                model.fetched(step.number);
                break;
            case 21:
                model.tell(step.key, Model::Outcome::kDeferred, delay_us);
                break;
            case 22:
                model.tell(step.key, Model::Outcome::kHeldBack, 0);
                break;
            case 23:
                model.go_on(step.key);
                break;
            case 24:
                model.fetched(step.number, step.number % 4);
                break;
            case 25:
                model.return_due();
                break;
            case 26:
                model.take_due(delay_us, step.number % 60, false);
                break;
            case 27:
                model.give_way();
                break;
            default:
                while (model.send()) {
                }
                model.check_healthy_keys_flow();
                break;
        }
        model.check();
    }
    model.finish();
}

RC_GTEST_PROP(Lanes, KeepOrderAndLoseNothingWithAFailStopSink, ()) {
    run(false);
}

RC_GTEST_PROP(Lanes, KeepAKeyToOneChannelAtATimeAndItsOrder, ()) {
    run(false, 3);
}

RC_GTEST_PROP(Lanes, KeepOrderAndLoseNothingWithOneEventPerKey, ()) {
    run(true);
}

Work event(Position position) {
    return {position, static_cast<std::uint32_t>(position), 0, 0, false};
}

Position send_next(Lanes& lanes, SlotId& slot) {
    slot = lanes.next_ready();
    return slot == kNoSlot ? 0 : lanes.work(slot).position;
}

TEST(Lanes, KeepEveryFailedEventsWaitAndAttempts) {
    Lanes lanes({8, 100, false});
    lanes.admit(1, event(1));
    lanes.admit(1, event(2));
    SlotId first = kNoSlot;
    SlotId second = kNoSlot;
    ASSERT_EQ(send_next(lanes, first), 1);
    ASSERT_EQ(send_next(lanes, second), 2);
    lanes.block(first, 3, 1'000, true);
    lanes.block(second, 1, 500, true);
    EXPECT_EQ(lanes.next_due_us(), 1'000);
    std::vector<Lanes::Due> due;
    lanes.take_due(999, 10, due);
    EXPECT_TRUE(due.empty());
    lanes.take_due(1'000, 10, due);
    ASSERT_EQ(due.size(), 1U);
    EXPECT_EQ(due[0].position, 1);
    EXPECT_EQ(due[0].attempts, 3U);
}

TEST(Lanes, ANewDeadLetterOfAKeyIsWaitedForAsWell) {
    Lanes lanes({8, 100, false});
    for (const Position p : {1, 2, 3}) lanes.admit(1, event(p));
    SlotId first = kNoSlot;
    SlotId second = kNoSlot;
    send_next(lanes, first);
    send_next(lanes, second);
    lanes.hold(first);
    lanes.hold(second);
    lanes.resume(1);  // the first dead letter is on disk, the second is not
    EXPECT_EQ(lanes.next_due_us(), std::numeric_limits<std::int64_t>::max());
    lanes.resume(1);
    EXPECT_EQ(lanes.next_due_us(), 0);
}

TEST(Lanes, AKeyHeldWhileItsEventsAreFetchedSendsNone) {
    Lanes lanes({8, 100, true});
    lanes.admit_waiting(1, 1, 1, 10);
    std::vector<Lanes::Due> due;
    lanes.take_due(10, 10, due);
    ASSERT_EQ(due.size(), 1U);
    lanes.hold_key(1);
    lanes.refill(due[0], 1, 0);
    EXPECT_EQ(lanes.next_ready(), kNoSlot);
    EXPECT_EQ(lanes.free_slots(), 8U);
    lanes.resume(1);
    due.clear();
    lanes.take_due(10, 10, due);
    EXPECT_EQ(due.size(), 1U);
}

// There is no room for the rest of a key, and its first event fails once more: what was fetched of
// it would be kept for ever.
TEST(Lanes, AKeyThatFailsGivesUpItsMemoryWhereTheRestOfItIsReturned) {
    Lanes lanes({8, 100, false});
    lanes.admit_waiting(1, 1, 1, 0);
    for (const Position p : {2, 3, 4, 5}) lanes.admit(1, event(p));
    std::vector<Lanes::Due> due;
    SlotId slot = kNoSlot;
    lanes.take_due(10, 10, due);
    ASSERT_EQ(due.size(), 1U);
    lanes.refill(due[0], 1, 0);
    ASSERT_EQ(send_next(lanes, slot), 1);
    lanes.acknowledge(slot);
    due.clear();
    lanes.take_due(10, 10, due);
    ASSERT_EQ(due.size(), 4U);
    EXPECT_FALSE(lanes.return_due(due[3])) << "nothing has failed";
    for (const std::size_t i : {0U, 1U}) lanes.refill(due[i], 1, 0);
    std::vector<Lanes::Released> released;
    lanes.take_released(released);
    released.clear();
    ASSERT_EQ(send_next(lanes, slot), 2);
    lanes.block(slot, 1, 1'000, true);
    lanes.take_released(released);
    EXPECT_TRUE(released.empty());
    EXPECT_TRUE(lanes.return_due(due[3]));
    EXPECT_TRUE(lanes.return_due(due[2]));
    lanes.take_released(released);
    EXPECT_EQ(released.size(), 2U);
    due.clear();
    lanes.take_due(1'000, 10, due);
    ASSERT_EQ(due.size(), 1U);
    EXPECT_EQ(due[0].position, 2);
    lanes.refill(due[0], 2, 0);
    ASSERT_EQ(send_next(lanes, slot), 2);
    lanes.acknowledge(slot);
    due.clear();
    lanes.take_due(1'000, 10, due);
    ASSERT_EQ(due.size(), 3U);
    EXPECT_EQ(due[0].position, 3);
    EXPECT_EQ(due[2].position, 5);
}

TEST(Lanes, AKeyOfWhichMoreIsBeingFetchedGivesWayOnceThatIsReturned) {
    Lanes lanes({8, 100, true});
    for (const Position p : {1, 2, 3}) lanes.admit(1, event(p));
    SlotId slot = kNoSlot;
    ASSERT_EQ(send_next(lanes, slot), 1);
    lanes.block(slot, 1, 0, true);
    std::vector<Lanes::Due> due;
    lanes.take_due(0, 10, due);
    ASSERT_EQ(due.size(), 1U) << "what failed goes alone";
    lanes.refill(due[0], 1, 0);
    ASSERT_EQ(send_next(lanes, slot), 1);
    lanes.acknowledge(slot);
    due.clear();
    lanes.take_due(0, 10, due);
    ASSERT_EQ(due.size(), 2U);
    lanes.refill(due[0], 2, 0);
    std::vector<Lanes::Released> released;
    lanes.take_released(released);
    released.clear();
    std::vector<SlotId> letters;
    lanes.give_way(letters);
    EXPECT_EQ(lanes.next_ready(), kNoSlot);
    EXPECT_TRUE(lanes.return_due(due[1]));
    lanes.take_released(released);
    EXPECT_EQ(released.size(), 1U);
    due.clear();
    lanes.take_due(0, 10, due);
    ASSERT_EQ(due.size(), 2U);
    EXPECT_EQ(due[0].position, 2);
    EXPECT_EQ(due[1].position, 3);
}

TEST(Lanes, WhatWasNotSentBeforeGivesWayUntilItMayBe) {
    Lanes lanes({8, 100, false});
    lanes.admit(1, event(1));
    SlotId slot = kNoSlot;
    ASSERT_EQ(send_next(lanes, slot), 1);
    lanes.block(slot, 0, 1'000, false);
    for (const Position p : {2, 3}) lanes.admit(2, event(p));
    lanes.admit(3, {4, 4, 0, 0, false, 77});
    std::vector<Lanes::Released> released;
    lanes.take_released(released);
    released.clear();
    std::vector<SlotId> letters;
    lanes.give_way(letters);
    lanes.take_released(released);
    EXPECT_EQ(released.size(), 2U);
    ASSERT_EQ(letters.size(), 1U) << "a dead letter is in no table to be read again";
    EXPECT_EQ(lanes.work(letters[0]).dead_id, 77);
    EXPECT_TRUE(lanes.next_due_us(true) == 0);
    std::vector<Lanes::Due> due;
    lanes.take_due(999, 10, due, false);
    EXPECT_TRUE(due.empty());
    EXPECT_TRUE(lanes.fresh_wait());
    EXPECT_EQ(lanes.next_due_us(false), 1'000);
    lanes.take_due(1'000, 10, due, false);
    ASSERT_EQ(due.size(), 1U);
    EXPECT_EQ(due[0].position, 1);
    lanes.refill(due[0], 1, 0);
    due.clear();
    EXPECT_EQ(lanes.next_due_us(true), 0);
    lanes.take_due(1'000, 10, due, true);
    ASSERT_EQ(due.size(), 2U);
    EXPECT_EQ(due[0].position, 2);
    EXPECT_EQ(due[1].position, 3);
    EXPECT_FALSE(lanes.fresh_wait());
}

TEST(Lanes, WhatWasSentBeforeGoesBeforeWhatWasNot) {
    Lanes lanes({8, 100, true});
    for (const Position p : {1, 2, 3}) lanes.admit(static_cast<LaneKey>(p), event(p));
    SlotId slot = kNoSlot;
    ASSERT_EQ(send_next(lanes, slot), 1);
    lanes.requeue(slot);
    EXPECT_EQ(lanes.exposed(), 1U);
    slot = lanes.next_ready(false);
    ASSERT_NE(slot, kNoSlot);
    EXPECT_EQ(lanes.work(slot).position, 1);
    EXPECT_EQ(lanes.next_ready(false), kNoSlot);
    EXPECT_NE(lanes.next_ready(true), kNoSlot);
}

TEST(Lanes, AProbePrefersTheSuspectAndAvoidsTheCulprit) {
    Lanes lanes({8, 100, false});
    lanes.admit(1, event(1));
    lanes.admit(1, event(2));
    lanes.admit(2, event(3));
    const auto probe = [&](Position prefer, EventRef avoid) {
        return lanes.work(lanes.find_probe(prefer, {&avoid, 1})).position;
    };
    EXPECT_EQ(probe(3, 0), 3);
    EXPECT_EQ(probe(0, 1), 3);
    EXPECT_EQ(probe(0, 3), 1);
    EXPECT_EQ(probe(2, 1), 3);  // it is not the turn of 2
    const SlotId failed = lanes.next_ready();
    lanes.requeue(failed);
    EXPECT_EQ(probe(0, 0), 3);  // rather than one that failed
}

// Also where assertions are compiled out.
TEST(LanesDeathTest, AnOutcomeOfWhatWasNotSentEndsTheProcess) {
    Lanes lanes({8, 100, false});
    lanes.admit(1, event(1));
    const SlotId waiting = lanes.find_probe({}, {});
    EXPECT_DEATH(lanes.acknowledge(waiting), "an outcome is that of something sent");
}

}  // namespace
}  // namespace outbox::core
