#include "relay/outcome_queue.h"

#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

namespace outbox::relay {
namespace {

using namespace std::chrono_literals;

// A recorder that waits for `count` outcomes, for an hour at most.
class WaitingRecorder {
  public:
    WaitingRecorder(OutcomeQueue& queue, std::size_t count)
        : taken_(std::async(std::launch::async, [&queue, count] {
              std::vector<Outcomes> taken(1);
              queue.take(count, 1h, taken);
              return taken[0].count();
          })) {
        std::this_thread::sleep_for(20ms);  // most likely it waits by then; else the same follows
    }
    [[nodiscard]] bool waits() const { return taken_.wait_for(0s) != std::future_status::ready; }
    std::size_t taken() {
        return taken_.wait_for(60s) == std::future_status::ready ? taken_.get() : 0;
    }

  private:
    std::future<std::size_t> taken_;
};

void push(OutcomeQueue& queue, std::vector<Position> finished, bool hurry = false) {
    Outcomes outcomes;
    outcomes.finished = std::move(finished);
    outcomes.hurry = hurry;
    queue.push(0, outcomes);
}

TEST(OutcomeQueue, WakesTheRecorderWhenThereIsEnough) {
    OutcomeQueue queue(1);
    WaitingRecorder recorder(queue, 3);
    push(queue, {1});
    push(queue, {2});
    EXPECT_TRUE(recorder.waits());
    push(queue, {3});
    EXPECT_EQ(recorder.taken(), 3U);
    queue.flush();  // or what fails would take its hour
}

TEST(OutcomeQueue, WakesTheRecorderWhereSomebodyWaits) {
    OutcomeQueue queue(1);
    WaitingRecorder recorder(queue, 3);
    push(queue, {1}, true);
    EXPECT_EQ(recorder.taken(), 1U);
    queue.flush();
}

TEST(OutcomeQueue, WakesTheRecorderAtTheEnd) {
    OutcomeQueue queue(1);
    WaitingRecorder recorder(queue, 3);
    push(queue, {1});
    queue.flush();
    EXPECT_EQ(recorder.taken(), 1U);
}

Feedback found(std::uint64_t look, std::int64_t dead_id) {
    Feedback feedback;
    feedback.look = look;
    feedback.redeliver.emplace_back().dead_id = dead_id;
    return feedback;
}

TEST(OutcomeQueue, ALaterLookTakesThePlaceOfNoLetterNorOfKeysThatItDidNotLookFor) {
    OutcomeQueue queue(1);
    const std::uint64_t first = queue.begin_look();
    Feedback keys = found(first, 1);
    keys.keys_look = first;
    keys.dead_keys.emplace();
    queue.answer(0, std::move(keys));
    const std::uint64_t second = queue.begin_look();
    queue.answer(0, found(second, 2));
    EXPECT_FALSE(queue.has_taken(0, first));
    Feedback taken;
    ASSERT_TRUE(queue.take_feedback(0, taken));
    EXPECT_EQ(taken.redeliver.size(), 2U);
    // The letter of the first may have been settled since.
    EXPECT_EQ(taken.look, first);
    EXPECT_TRUE(taken.dead_keys);
    EXPECT_EQ(taken.keys_look, first);
    EXPECT_TRUE(queue.has_taken(0, second));
    const std::uint64_t third = queue.begin_look();
    queue.answer(0, found(third, 3));
    EXPECT_FALSE(queue.has_taken(0, third));
    taken = Feedback{};
    ASSERT_TRUE(queue.take_feedback(0, taken));
    EXPECT_EQ(taken.look, third);
}

}  // namespace
}  // namespace outbox::relay
