#pragma once

#include <ctime>

#include "core/clock.h"

namespace outbox::core {

/// The machine's clocks. Made where a program or a consumer begins, and handed on as a `Clock`.
/// Thread-safe.
class SystemClock final : public Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override { return read_us(CLOCK_BOOTTIME); }
    [[nodiscard]] std::int64_t wall_us() const override { return read_us(CLOCK_REALTIME); }

  private:
    static std::int64_t read_us(clockid_t clock) {
        timespec time{};
        clock_gettime(clock, &time);
        return std::int64_t{time.tv_sec} * 1'000'000 + time.tv_nsec / 1000;
    }
};

}  // namespace outbox::core
