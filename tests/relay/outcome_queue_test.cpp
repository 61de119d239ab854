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
        std::this_thread::sleep_for(20ms);  // most likely it waits by then
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

}  // namespace
}  // namespace outbox::relay
