#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <outbox/result.h>

#include "core/clock.h"
#include "webhook/queues.h"
#include "webhook/store.h"

namespace outbox::webhook {

/// Counts deliveries in small steps, between which the thread and the database are the others':
/// the whole table once a minute.
class Census {
  public:
    Census(Outlet& outlet, Queues& queues, const core::Clock& clock);

    /// What it found holds no more: a look begins as soon as may be.
    void hurry() { (looking_ ? again_us_ : next_us_) = 0; }
    /// Goes on for a moment, if it is time. After an error it goes on later.
    Status go_on();
    /// That was for the first time in a row in vain.
    [[nodiscard]] bool take_failed() { return std::exchange(tell_failed_, false); }
    /// By endpoint, what the last look through the table found, if it ended since the last call.
    [[nodiscard]] const std::vector<Count>* take_found();

  private:
    static constexpr std::int64_t kEveryUs = 60'000'000;

    Result<bool> step();
    void end(std::int64_t now_us);

    Outlet& outlet_;
    Queues& queues_;
    const core::Clock& clock_;
    bool looking_ = false;
    std::int64_t next_us_ = 0;          // a step, or a look
    std::int64_t again_us_ = kEveryUs;  // after the end of a look
    std::size_t rows_;                  // of a step
    std::vector<Count> counts_;         // the last one's endpoint may have more
    std::vector<Count> found_;
    bool tell_found_ = false;
    bool failing_ = false;
    bool tell_failed_ = false;
};

}  // namespace outbox::webhook
