#pragma once

#include <cstdint>

#include "core/clock.h"
#include "tests/simulation/world.h"

namespace outbox::simulation {

/// What the clocks of one machine show. The references are shared by all machines.
class SimClock final : public core::Clock {
  public:
    SimClock(const World& world, const std::int64_t& wall_offset_us, std::int64_t booted_us)
        : world_(world), wall_offset_us_(wall_offset_us), booted_us_(booted_us) {}
    [[nodiscard]] std::int64_t boot_us() const override { return world_.now_us() + booted_us_; }
    [[nodiscard]] std::int64_t wall_us() const override {
        return world_.now_us() + wall_offset_us_;
    }

  private:
    const World& world_;
    const std::int64_t& wall_offset_us_;
    std::int64_t booted_us_;
};

}  // namespace outbox::simulation
