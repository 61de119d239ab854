#pragma once

#include <cstdint>

namespace outbox::core {

/// Where the relay reads the time; the simulation has its own.
class Clock {
  public:
    Clock() = default;
    Clock(const Clock&) = delete;
    Clock& operator=(const Clock&) = delete;
    virtual ~Clock() = default;

    /// Microseconds that never jump and go on while the machine sleeps (CLOCK_BOOTTIME).
    [[nodiscard]] virtual std::int64_t boot_us() const = 0;
    /// Microseconds since the Unix epoch; may jump.
    [[nodiscard]] virtual std::int64_t wall_us() const = 0;
};

}  // namespace outbox::core
