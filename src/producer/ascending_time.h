#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace outbox {

/// Times for ids, each higher than any before, also where the clock stands still or is set back.
/// Thread-safe, without a lock.
class AscendingTime {
  public:
    /// Of a millisecond: the 12 bits that RFC 9562 calls rand_a, by its method 3.
    static constexpr std::uint64_t kFractionSteps = 4096;

    /// Milliseconds since 1970 and their fraction, in steps; as near to `now` as the order allows.
    std::uint64_t next(std::chrono::nanoseconds now) {
        constexpr std::uint64_t kPerMillisecond = 1'000'000;
        const auto ns = static_cast<std::uint64_t>(now.count());
        const std::uint64_t time = ns / kPerMillisecond * kFractionSteps +
                                   ns % kPerMillisecond * kFractionSteps / kPerMillisecond;
        std::uint64_t before = last_.load(std::memory_order_relaxed);
        std::uint64_t mine = 0;
        do {
            mine = time > before ? time : before + 1;
        } while (!last_.compare_exchange_weak(before, mine, std::memory_order_relaxed));
        return mine;
    }

  private:
    std::atomic<std::uint64_t> last_{0};
};

}  // namespace outbox
