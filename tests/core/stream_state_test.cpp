#include "core/stream_state.h"

#include <gtest/gtest.h>

namespace outbox::core {
namespace {

using Path = StreamState::Path;
using Why = StreamState::Why;

constexpr std::int64_t kSecondUs = 1'000'000;

std::int64_t caught_up_after(StreamState& state, std::int64_t from_us) {
    std::int64_t now_us = from_us;
    while (!state.wants_stream(now_us)) {
        state.table_read(now_us, true);
        now_us += 10'000;
    }
    return now_us - from_us;
}

TEST(StreamState, AsksForTheStreamOnlyWhenTheTableHasBeenEmptyForAWhile) {
    StreamState state;
    EXPECT_FALSE(state.wants_stream(0));
    state.table_read(0, false);
    EXPECT_FALSE(state.wants_stream(kSecondUs));
    state.table_read(kSecondUs, true);
    EXPECT_FALSE(state.wants_stream(kSecondUs));
    EXPECT_TRUE(state.wants_stream(kSecondUs + StreamState::kCaughtUpUs));
    state.table_read(kSecondUs + StreamState::kCaughtUpUs, false);
    EXPECT_FALSE(state.wants_stream(2 * kSecondUs));
}

TEST(StreamState, ReadsTheTableOnTheStreamOnlyForHolesAStandstillAndAsANet) {
    StreamState state;
    EXPECT_TRUE(state.table_due(0, false, false));
    state.joined(0);
    EXPECT_EQ(state.path(), Path::kStream);
    EXPECT_FALSE(state.wants_stream(kSecondUs));
    EXPECT_FALSE(state.table_due(StreamState::kHolesEveryUs, false, false));
    EXPECT_TRUE(state.table_due(StreamState::kHolesEveryUs, true, false));
    EXPECT_TRUE(state.table_due(StreamState::kStalledEveryUs, false, true));
    EXPECT_TRUE(state.table_due(StreamState::kNetEveryUs, false, false));
    state.table_read(StreamState::kNetEveryUs, false);
    EXPECT_TRUE(state.table_due(StreamState::kNetEveryUs + 1, false, true));
    EXPECT_FALSE(state.table_due(StreamState::kNetEveryUs + 1, false, false));
    state.table_read(StreamState::kNetEveryUs, true);
    EXPECT_FALSE(state.table_due(StreamState::kNetEveryUs + 1, true, true));
}

TEST(StreamState, WaitsLongerEachTimeItFellBehindAndForgetsThatOnceTheStreamHolds) {
    StreamState state;
    const std::int64_t first = caught_up_after(state, 0);
    std::int64_t now_us = kSecondUs;
    for (int i = 0; i < 20; ++i) {
        state.joined(now_us);
        state.left(now_us += kSecondUs, Why::kBehind);
        EXPECT_EQ(state.path(), Path::kTable);
    }
    const std::int64_t later = caught_up_after(state, now_us);
    EXPECT_GT(later, 100 * first);
    EXPECT_LE(later, StreamState::kMaxCaughtUpUs + kSecondUs);
    now_us += later;
    state.joined(now_us);
    state.left(now_us += StreamState::kProvenUs, Why::kLost);
    EXPECT_EQ(caught_up_after(state, now_us), first);
}

TEST(StreamState, ALostStreamCostsNoPatience) {
    StreamState state;
    const std::int64_t first = caught_up_after(state, 0);
    state.joined(first);
    state.left(first, Why::kLost);
    EXPECT_EQ(caught_up_after(state, first), first);
}

}  // namespace
}  // namespace outbox::core
