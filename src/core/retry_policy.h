#pragma once

#include <algorithm>
#include <cstdint>

namespace outbox::core {

/// Exponential delays with jitter: attempt n waits between half and the whole of
/// min(base * 2^(n-1), max). Half of it is jitter so that keys which failed together do not
/// return together.
struct RetryPolicy {
    std::int64_t base_ms = 0;
    std::int64_t max_ms = 0;
    std::uint32_t max_attempts = 0;

    /// The wait in microseconds after `attempts` failures (>= 1); `random` is any 64 random bits.
    [[nodiscard]] std::int64_t delay_us(std::uint32_t attempts, std::uint64_t random) const {
        constexpr std::uint32_t kMaxDoublings = 32;
        const std::uint32_t doublings = std::min(attempts == 0 ? 0 : attempts - 1, kMaxDoublings);
        const std::int64_t full_ms =
            base_ms > (max_ms >> doublings) ? max_ms : std::min(base_ms << doublings, max_ms);
        const std::int64_t half_us = full_ms * 500;
        return half_us +
               static_cast<std::int64_t>(random % static_cast<std::uint64_t>(half_us + 1));
    }

    [[nodiscard]] bool exhausted(std::uint32_t attempts) const { return attempts >= max_attempts; }
};

}  // namespace outbox::core
