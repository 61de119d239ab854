#include "core/down_parts.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <iterator>
#include <limits>
#include <set>
#include <string>
#include <vector>

namespace outbox::core {
namespace {

class DownPartsTest : public testing::Test {
  protected:
    using News = DownParts::News;
    News failed(std::string_view name, LaneKey key, bool waits = true) {
        return parts_.failed(name, key, waits, now_us_, 0);
    }
    void fail_many(std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) failed("topic " + std::to_string(i), i);
    }
    [[nodiscard]] std::int64_t next_due_us() const { return parts_.next_due_us(0); }
    std::vector<LaneKey> due(std::size_t under_way = 0) {
        std::vector<LaneKey> keys;
        now_us_ = std::max(now_us_, parts_.next_due_us(under_way));
        parts_.take_due(now_us_, under_way, keys);
        return keys;
    }
    // As much time passes as `due` waits for.
    std::size_t tried_in(std::int64_t time_us, bool passes = false) {
        std::size_t tried = 0;
        for (const std::int64_t end_us = now_us_ + time_us; next_due_us() < end_us;) {
            for (const LaneKey key : due()) {
                ++tried;
                if (passes) {
                    passed(key);
                } else {
                    failed("topic " + std::to_string(key), key);
                }
            }
        }
        return tried;
    }
    std::vector<LaneKey> passed(LaneKey key) {
        std::vector<LaneKey> keys;
        parts_.passed(key, now_us_, keys);
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
        const std::int64_t wait_us = next_due_us() - now_us_;
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
    const std::int64_t due_us = next_due_us();
    for (LaneKey key = 2; key < 50; ++key) failed("topic a", key);
    failed("topic a", 2, false);
    EXPECT_EQ(next_due_us(), due_us);
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
    parts_.heard(1, now_us_);
    failed("topic b", 4);
    EXPECT_EQ(next_due_us(), now_us_);
    EXPECT_EQ(due(), Keys{2});
    parts_.heard(3, now_us_);
    EXPECT_GT(next_due_us(), now_us_) << "not the one that was tried";
    failed("topic c", 2);
    EXPECT_EQ(due(), Keys{3}) << "the trial ended at another part";
}

TEST_F(DownPartsTest, AreLimited) {
    fail_many(DownParts::kMaxParts);
    EXPECT_EQ(failed("one more", 5'000), News::kTooMany);
    EXPECT_EQ(failed("another", 5'001), News::kNone) << "told once";
    EXPECT_EQ(parts_.count(), DownParts::kMaxParts);
}

TEST_F(DownPartsTest, ThatThereAreTooManyIsToldOfEachOutage) {
    for (int outage = 0; outage < 3; ++outage) {
        fail_many(DownParts::kMaxParts);
        EXPECT_EQ(failed("topic 5000", 5'000), News::kTooMany) << outage;
        // What was beyond the limit becomes a part once there is room, and is mended last.
        bool became_one = false;
        while (next_due_us() != std::numeric_limits<std::int64_t>::max()) {
            for (const LaneKey key : due()) {
                if (key == 5'000 && !became_one) {
                    became_one = parts_.count() < DownParts::kMaxParts;
                    failed("topic 5000", key);
                } else {
                    passed(key);
                }
            }
        }
        EXPECT_EQ(parts_.count(), 0U);
    }
}

TEST_F(DownPartsTest, HoweverManyAreDownFewAreTried) {
    fail_many(20'000);
    Keys tried_first = due();
    EXPECT_EQ(tried_first.size(), DownParts::kMostProbing);
    const Keys more = due(1'000);
    EXPECT_EQ(more.size(), 50 - DownParts::kMostProbing) << "no more than in a second";
    tried_first.insert(tried_first.end(), more.begin(), more.end());
    for (const LaneKey key : tried_first) failed("topic " + std::to_string(key), key);
    tried_in(60'000'000);
    const std::size_t tried = tried_in(60'000'000);
    EXPECT_GE(tried, 60 * DownParts::kProbesPerSecond - 1);
    EXPECT_LE(tried, 61 * DownParts::kProbesPerSecond);
}

TEST_F(DownPartsTest, ThoseBeyondTheLimitKeepNoPartFromItsTurn) {
    fail_many(20'000);
    std::set<LaneKey> tried;
    for (const std::int64_t end_us = now_us_ + 120'000'000; now_us_ < end_us;) {
        for (const LaneKey key : due()) {
            tried.insert(key);
            failed("topic " + std::to_string(key), key);
        }
    }
    const auto of_parts = std::distance(tried.begin(), tried.lower_bound(DownParts::kMaxParts));
    EXPECT_EQ(of_parts, DownParts::kMaxParts);
    EXPECT_GT(tried.size(), DownParts::kMaxParts + 1'000);
}

TEST_F(DownPartsTest, AKeyBeyondTheLimitIsTriedLessAndLessOftenAndByItself) {
    fail_many(DownParts::kMaxParts);
    tried_in(60'000'000, true);
    ASSERT_TRUE(parts_.empty());
    fail_many(DownParts::kMaxParts);
    failed("one more", 5'000);
    std::vector<std::int64_t> at_us;
    for (const std::int64_t end_us = now_us_ + 1'200'000'000; now_us_ < end_us;) {
        for (const LaneKey key : due()) {
            if (key == 5'000) at_us.push_back(now_us_);
            failed(key == 5'000 ? "one more" : "topic " + std::to_string(key), key);
        }
    }
    ASSERT_GE(at_us.size(), 6U);
    EXPECT_LE(at_us.size(), 14U);
    EXPECT_GE(at_us.back() - at_us[at_us.size() - 2], DownParts::kLoneMaxMs * 500);
    while (due() != Keys{5'000}) {
    }
    EXPECT_EQ(passed(5'000), Keys{});
}

TEST_F(DownPartsTest, AllAreTriedSoonOnceTheyPass) {
    fail_many(10'000);
    now_us_ += 10'000'000;
    EXPECT_EQ(tried_in(5'000'000, true), 10'000U);
    EXPECT_TRUE(parts_.empty());
}

TEST_F(DownPartsTest, AreToldOnceEachTime) {
    EXPECT_EQ(failed("topic a", 1), News::kPart);
    EXPECT_EQ(failed("topic a", 2), News::kNone);
    EXPECT_EQ(due(), Keys{1});
    EXPECT_EQ(passed(1), Keys{2});
    EXPECT_EQ(failed("topic a", 1), News::kPart) << "it was back";
    while (!parts_.empty()) due();
    EXPECT_EQ(failed("topic a", 1), News::kNone) << "it was only forgotten";
    while (!parts_.empty()) due();
    now_us_ += DownParts::kToldForUs;
    EXPECT_EQ(failed("topic a", 1), News::kPart);
}

}  // namespace
}  // namespace outbox::core
