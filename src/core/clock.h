#pragma once

#include <cstdint>

namespace outbox::core {

/// Where the relay and the consumers read the time; the simulation has its own. Code that only
/// bounds its own wait for a peer (to connect, for an answer) may use a steady clock of its own.
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
