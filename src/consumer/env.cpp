#include "consumer/env.h"

#include <random>
#include <utility>

#include "core/system_clock.h"

namespace outbox::consumer {
namespace {

thread_local const core::Clock* handlers_clock = nullptr;

}  // namespace

const core::Clock& machine_clock() {
    static const core::SystemClock clock;
    return clock;
}

Env real_env() {
    std::random_device random;
    return {machine_clock(), std::uint64_t{random()} << 32U | random()};
}

const core::Clock& callers_clock() {
    return handlers_clock == nullptr ? machine_clock() : *handlers_clock;
}

CallersClock::CallersClock(const core::Clock& clock)
    : before_(std::exchange(handlers_clock, &clock)) {}

CallersClock::~CallersClock() {
    handlers_clock = before_;
}

}  // namespace outbox::consumer
