#include "core/lane_table.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <unordered_map>

namespace outbox::core {
namespace {

// Keys that share their places in the table, so that probing and shifting back are exercised, also
// around the end of the table.
RC_GTEST_PROP(LaneTable, HoldsWhatAMapHolds, ()) {
    LaneTable table;
    std::unordered_map<std::uint64_t, LaneId> model;
    const int steps = *rc::gen::inRange(1, 400);
    for (int step = 0; step < steps; ++step) {
        const std::uint64_t place = *rc::gen::element<std::uint64_t>(0, 1, 2, 4093, 4094, 4095);
        const std::uint64_t key = place + 4096 * *rc::gen::inRange<std::uint64_t>(0, 8);
        if (model.contains(key)) {
            RC_ASSERT(table.find(key) == model[key]);
            table.erase(key);
            model.erase(key);
        } else {
            RC_ASSERT(table.find(key) == kNoLane);
            const auto lane = static_cast<LaneId>(step);
            table.insert(key, lane);
            model[key] = lane;
        }
        RC_ASSERT(table.size() == model.size());
        for (const auto& [k, lane] : model) RC_ASSERT(table.find(k) == lane);
    }
}

TEST(LaneTable, GrowsWithoutLosingAKey) {
    LaneTable table;
    constexpr std::uint64_t kKeys = 20'000;
    for (std::uint64_t k = 0; k < kKeys; ++k) table.insert(k * 4096, static_cast<LaneId>(k));
    for (std::uint64_t k = 0; k < kKeys; k += 2) table.erase(k * 4096);
    for (std::uint64_t k = 0; k < kKeys; ++k) {
        ASSERT_EQ(table.find(k * 4096), k % 2 == 0 ? kNoLane : static_cast<LaneId>(k));
    }
    EXPECT_EQ(table.size(), kKeys / 2);
}

}  // namespace
}  // namespace outbox::core
