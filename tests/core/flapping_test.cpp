#include "core/flapping.h"

#include <gtest/gtest.h>

namespace outbox::core {
namespace {

constexpr std::int64_t kS = 1'000'000;

TEST(Flapping, OutagesThatAreFarApartAreToldAsTheyBeginAndEnd) {
    Flapping flapping;
    for (const std::int64_t at : {1 * kS, 30 * kS, 60 * kS}) {
        EXPECT_TRUE(flapping.down(at));
        EXPECT_TRUE(flapping.up(at + kS));
        EXPECT_FALSE(flapping.settled(at + 20 * kS)) << "it was told";
    }
}

TEST(Flapping, WhatGoesDownAgainAndAgainIsDownUntilItHasHeld) {
    Flapping flapping;
    EXPECT_TRUE(flapping.down(0));
    EXPECT_TRUE(flapping.up(kS));
    EXPECT_TRUE(flapping.down(2 * kS)) << "the last line says how it stands";
    for (std::int64_t at = 3 * kS; at < 60 * kS; at += kS) {
        EXPECT_FALSE(flapping.up(at));
        EXPECT_FALSE(flapping.settled(at + kS / 4));
        EXPECT_FALSE(flapping.down(at + kS / 2));
    }
    EXPECT_FALSE(flapping.up(60 * kS));
    EXPECT_FALSE(flapping.up(65 * kS)) << "the time counts from the first";
    EXPECT_FALSE(flapping.settled(60 * kS + Flapping::kHoldsUs - 1));
    EXPECT_TRUE(flapping.settled(60 * kS + Flapping::kHoldsUs));
    EXPECT_FALSE(flapping.settled(80 * kS)) << "once";
    EXPECT_TRUE(flapping.is_calm(80 * kS));
    EXPECT_TRUE(flapping.down(90 * kS));
    EXPECT_TRUE(flapping.up(91 * kS)) << "what was forgotten";
}

TEST(Flapping, WhatStaysDownIsNotCalm) {
    Flapping flapping;
    EXPECT_TRUE(flapping.down(0));
    EXPECT_FALSE(flapping.is_calm(100 * kS));
    EXPECT_TRUE(flapping.up(100 * kS));
    EXPECT_FALSE(flapping.is_calm(101 * kS));
    EXPECT_TRUE(flapping.down(102 * kS));
    EXPECT_FALSE(flapping.is_calm(200 * kS));
}

}  // namespace
}  // namespace outbox::core
