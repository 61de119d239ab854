#include "consumer/env.h"

#include <random>

#include "core/system_clock.h"

namespace outbox::consumer {

Env real_env() {
    static const core::SystemClock clock;
    return {clock, std::uint64_t{std::random_device{}()} << 32U | std::random_device{}()};
}

}  // namespace outbox::consumer
