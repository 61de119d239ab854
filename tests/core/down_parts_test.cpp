#include "core/down_parts.h"

#include <gtest/gtest.h>

namespace outbox::core {
namespace {

class DownPartsTest : public testing::Test {
  protected:
    void failed(std::string_view name, LaneKey key, bool waits = true) {
        parts_.failed(name, key, waits, now_us_, 0);
    }
    std::vector<LaneKey> due() {
        std::vector<LaneKey> keys;
        parts_.take_due(now_us_ = std::max(now_us_, parts_.next_due_us()), keys);
        return keys;
    }
    std::vector<LaneKey> passed(LaneKey key) {
        std::vector<LaneKey> keys;
        parts_.passed(key, keys);
        return keys;
    }

    using Keys = std::vector<LaneKey>;
    std::int64_t now_us_ = 1'000'000;
    DownParts parts_{RetryPolicy{200, 5'000, 0}};
};

TEST_F(DownPartsTest, TriesOneKeyAtATimeAndLetsAllGoWhenItPasses) {
    for (LaneKey key = 1; key <= 100; ++key) failed("topic a", key);
    EXPECT_EQ(parts_.count(), 1U);
    EXPECT_EQ(due(), Keys{1});
    failed("topic a", 1);
    EXPECT_EQ(due(), Keys{2});
    EXPECT_EQ(passed(50), Keys{}) << "not the one that was tried";
    EXPECT_EQ(passed(2).size(), 99U);
    EXPECT_TRUE(parts_.empty());
}

TEST_F(DownPartsTest, WaitsLongerAfterEachFailedTrialUpToTheLimit) {
    failed("topic a", 1);
    std::int64_t last_us = 0;
    for (int i = 0; i < 20; ++i) {
        const std::int64_t wait_us = parts_.next_due_us() - now_us_;
        EXPECT_GE(wait_us, last_us);
        EXPECT_LE(wait_us, 5'000'000);
        last_us = wait_us;
        EXPECT_EQ(due(), Keys{1});
        failed("topic a", 1);
    }
    EXPECT_GE(last_us, 2'000'000);
}

TEST_F(DownPartsTest, RecordsSentBeforeItWasKnownToBeDownDoNotLengthenTheWait) {
    failed("topic a", 1);
    const std::int64_t due_us = parts_.next_due_us();
    for (LaneKey key = 2; key < 50; ++key) failed("topic a", key);
    failed("topic a", 2, false);
    EXPECT_EQ(parts_.next_due_us(), due_us);
}

TEST_F(DownPartsTest, EachPartIsTriedByItself) {
    failed("topic a[0]", 1);
    failed("topic a[0]", 2);
    failed("topic a[1]", 3);
    failed("topic a[1]", 4);
    EXPECT_EQ(due(), (Keys{1, 3}));
    failed("topic a[0]", 1);
    EXPECT_EQ(passed(3), Keys{4});
    EXPECT_EQ(due(), Keys{2});
    EXPECT_TRUE(parts_.contains("topic a[0]"));
    EXPECT_FALSE(parts_.contains("topic a[1]"));
}

TEST_F(DownPartsTest, ATrialOfWhichNothingIsHeardGivesWayToTheNext) {
    failed("topic a", 1);
    failed("topic a", 2);
    EXPECT_EQ(due(), Keys{1});
    EXPECT_EQ(due(), Keys{2});
    EXPECT_EQ(due(), Keys{});
    EXPECT_TRUE(parts_.empty()) << "nobody waits for it";
}

TEST_F(DownPartsTest, ATrialThatSaysNothingOfThePartGivesWayAtOnce) {
    for (LaneKey key = 1; key <= 3; ++key) failed("topic a", key);
    failed("topic b", 4);
    EXPECT_EQ(due(), (Keys{1, 4}));
    parts_.heard(1, {}, now_us_);
    parts_.heard(4, "topic b", now_us_);
    EXPECT_EQ(parts_.next_due_us(), now_us_);
    EXPECT_EQ(due(), Keys{2});
    parts_.heard(3, {}, now_us_);
    EXPECT_GT(parts_.next_due_us(), now_us_) << "not the one that was tried";
}

TEST_F(DownPartsTest, AreLimited) {
    for (std::size_t i = 0; i < DownParts::kMaxParts; ++i) {
        EXPECT_TRUE(parts_.has_room("topic " + std::to_string(i)));
        failed("topic " + std::to_string(i), i);
    }
    EXPECT_FALSE(parts_.has_room("one more"));
    EXPECT_TRUE(parts_.has_room("topic 7"));
}

}  // namespace
}  // namespace outbox::core
