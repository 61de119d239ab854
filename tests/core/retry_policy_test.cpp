#include "core/retry_policy.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

namespace outbox::core {
namespace {

RC_GTEST_PROP(RetryPolicy, WaitsBetweenHalfAndTheWholeOfTheExponentialDelay, ()) {
    RetryPolicy policy{200, 60'000, 5};
    policy.base_ms = *rc::gen::inRange<std::int64_t>(1, 10'000);
    policy.max_ms = *rc::gen::inRange<std::int64_t>(1, 86'400'000);
    const auto attempts = *rc::gen::inRange<std::uint32_t>(1, 200);
    const auto random = *rc::gen::arbitrary<std::uint64_t>();
    std::int64_t full_ms = policy.base_ms;
    for (std::uint32_t i = 1; i < attempts && full_ms < policy.max_ms; ++i) full_ms *= 2;
    full_ms = std::min(full_ms, policy.max_ms);
    const std::int64_t delay_us = policy.delay_us(attempts, random);
    RC_ASSERT(delay_us >= full_ms * 500);
    RC_ASSERT(delay_us <= full_ms * 1000);
}

TEST(RetryPolicy, GivesUpAfterTheLastAttempt) {
    const RetryPolicy policy{200, 60'000, 5};
    EXPECT_FALSE(policy.exhausted(4));
    EXPECT_TRUE(policy.exhausted(5));
}

}  // namespace
}  // namespace outbox::core
