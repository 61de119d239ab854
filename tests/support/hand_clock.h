#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "core/clock.h"

namespace outbox::test {

// Both clocks, moved by hand. Thread-safe.
class HandClock final : public core::Clock {
  public:
    std::int64_t boot_us() const override { return boot_us_; }
    std::int64_t wall_us() const override { return wall_us_; }
    void advance_us(std::int64_t us) {
        boot_us_ += us;
        wall_us_ += us;
    }
    void advance_ms(std::int64_t ms) { advance_us(ms * 1000); }
    void set_back_ms(std::int64_t ms) { wall_us_ -= ms * 1000; }

  private:
    std::atomic<std::int64_t> boot_us_ = 1'000'000;
    std::atomic<std::int64_t> wall_us_ = std::chrono::duration_cast<std::chrono::microseconds>(
                                             std::chrono::system_clock::now().time_since_epoch())
                                             .count();
};

}  // namespace outbox::test
