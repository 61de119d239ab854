#pragma once

#include <cstdint>

#include "core/clock.h"

namespace outbox::consumer {

/// What a consumer takes from the machine it runs on; the simulation has its own.
struct Env {
    const core::Clock& clock;  ///< Outlives who is given it.
    std::uint64_t seed = 0;    ///< Of all its randomness.
};

/// The machine's. Each call gives another seed. Thread-safe.
[[nodiscard]] Env real_env();

}  // namespace outbox::consumer
