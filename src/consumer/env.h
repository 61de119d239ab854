#pragma once

#include <cstdint>

#include "core/clock.h"

namespace outbox::consumer {

/// What a consumer takes from the machine it runs on; the simulation has its own. Where a consumer
/// begins it is chosen, and handed on from there to all that the consumer is made of.
struct Env {
    const core::Clock& clock;  ///< Outlives who is given it. Thread-safe.
    std::uint64_t seed = 0;    ///< Of all its randomness.
};

/// Thread-safe.
[[nodiscard]] const core::Clock& machine_clock();

/// The machine's. Each call gives another seed. Thread-safe.
[[nodiscard]] Env real_env();

/// By what calls in a transaction that is not ours (`accept`, `claim_key`, a step of a saga) tell
/// the time: the clock of the consumer whose handler makes them, on its thread; else the machine's.
[[nodiscard]] const core::Clock& callers_clock();

/// While it lives `callers_clock` of this thread is this one.
class CallersClock {
  public:
    explicit CallersClock(const core::Clock& clock);
    ~CallersClock();
    CallersClock(const CallersClock&) = delete;
    CallersClock& operator=(const CallersClock&) = delete;

  private:
    const core::Clock* before_;
};

}  // namespace outbox::consumer
