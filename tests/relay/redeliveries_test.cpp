#include "relay/redeliveries.h"

#include <gtest/gtest.h>

namespace outbox::relay {
namespace {

TEST(Redeliveries, OneWhosePartIsDownWaitsForLongerEachTime) {
    Redeliveries letters;
    const auto delay_us = [](std::uint32_t times) { return std::int64_t{100} * times; };
    letters.begin(7);
    EXPECT_FALSE(letters.is_waiting(7, 1'000));
    EXPECT_EQ(letters.waits_for_part(7, 1'000, delay_us), 1U);
    EXPECT_TRUE(letters.is_waiting(7, 1'099));
    EXPECT_FALSE(letters.is_waiting(7, 1'100));
    EXPECT_EQ(letters.waits_for_part(7, 1'100, delay_us), 2U);
    EXPECT_TRUE(letters.is_waiting(7, 1'299));
    EXPECT_FALSE(letters.is_waiting(8, 1'100));
    letters.ended(7);
    EXPECT_FALSE(letters.is_waiting(7, 1'200));
}

}  // namespace
}  // namespace outbox::relay
