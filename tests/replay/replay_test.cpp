// The pure parts of a replay: its pace, how far it is, ids of new events, times as people write
// them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "claim/relay_headers.h"
#include "codec/claim_encoder.h"
#include "codec/raw.h"
#include "codec/replay_encoder.h"
#include "net/uuid5.h"
#include "replay/history.h"
#include "replay/pace.h"
#include "replay/tracker.h"
#include "runtime/options.h"

namespace outbox::replay {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr std::int64_t kSecond = 1'000'000;

// How many go in that time, by looks of a millisecond.
std::size_t goes(Pace& pace, std::int64_t from_us, std::int64_t to_us) {
    std::size_t all = 0;
    for (std::int64_t now = from_us; now < to_us; now += 1'000) {
        const std::size_t some = pace.may_go(now, 500);
        pace.went(some);
        all += some;
    }
    return all;
}

TEST(PaceOfAReplay, IsTheRateAndHasNoBurstBehindAPause) {
    Pace pace(1'000, 0);
    EXPECT_NEAR(static_cast<double>(goes(pace, 0, 10 * kSecond)), 10'000, 10);
    EXPECT_EQ(pace.may_go(100 * kSecond, 5'000), 100U) << "a tenth of a second's";
    pace.went(100);
    EXPECT_EQ(pace.may_go(100 * kSecond, 5'000), 0U);
}

TEST(PaceOfAReplay, OfOneInASecondIsKept) {
    Pace pace(1, 0);
    EXPECT_NEAR(static_cast<double>(goes(pace, 0, 10 * kSecond)), 10, 1);
}

TEST(PaceOfAReplay, SlowsDownForOthers) {
    Pace pace(1'000, 0);
    pace.slow_down_to(0.1);
    EXPECT_NEAR(static_cast<double>(goes(pace, 0, 10 * kSecond)), 1'000, 2);
    pace.slow_down_to(1);
    EXPECT_NEAR(static_cast<double>(goes(pace, 10 * kSecond, 11 * kSecond)), 1'000, 2);
}

std::vector<spi::Position> passed(Tracker& tracker) {
    std::vector<spi::Position> out;
    tracker.move_on(out);
    return out;
}

TEST(TrackerOfAReplay, IsAsFarAsTheLastBeforeWhichAllHaveAnEnd) {
    Tracker tracker(10, 1, {{"x", "k", "e"}});
    for (const spi::Position position : {3, 5, 8, 9}) tracker.handed_out(position);
    tracker.sent(5);
    tracker.sent(9);
    EXPECT_THAT(passed(tracker), IsEmpty());
    EXPECT_EQ(tracker.sent(), 10);
    tracker.refused(3, {"3", "k", "no"});
    tracker.sent(3);  // the pipeline is done with it, too
    EXPECT_THAT(passed(tracker), ElementsAre(3, 5));
    EXPECT_EQ(tracker.open(), 2U);
    EXPECT_EQ(tracker.sent(), 11);
    EXPECT_EQ(tracker.refused(), 2);
    ASSERT_EQ(tracker.refusals().size(), 2U);
    EXPECT_EQ(tracker.refusals()[1].id, "3");
    tracker.gone(8);
    EXPECT_THAT(passed(tracker), ElementsAre(8, 9));
    EXPECT_EQ(tracker.sent(), 12) << "what was gone was not sent";
    EXPECT_EQ(tracker.open(), 0U);
}

TEST(TrackerOfAReplay, ListsTheFirstRefusalsAndCountsAll) {
    Tracker tracker(0, 0, {});
    constexpr int kMany = static_cast<int>(kMaxRefusals) + 5;
    for (int i = 1; i <= kMany; ++i) {
        tracker.handed_out(i);
        tracker.refused(i, {std::to_string(i), "", ""});
    }
    EXPECT_EQ(passed(tracker).size(), static_cast<std::size_t>(kMany));
    EXPECT_EQ(tracker.refused(), kMany);
    EXPECT_EQ(tracker.refusals().size(), kMaxRefusals);
    EXPECT_EQ(tracker.refusals().front().id, "1");
}

TEST(IdsOfAReplay, AreTheUuid5OfRunAndId) {
    // RFC 9562, appendix A.4.
    EXPECT_EQ(net::uuid5("6ba7b810-9dad-11d1-80b4-00c04fd430c8", "www.example.com"),
              "2ed6657d-e927-568b-95e1-2665a8aea6a2");
    EXPECT_EQ(net::uuid5("no uuid", "x"), "");
    EXPECT_NE(net::uuid4(), net::uuid4());
    EXPECT_EQ(net::uuid4().substr(14, 1), "4");
}

TEST(IdsOfAReplay, BeforeAFloorHaveLowerDigits) {
    EXPECT_EQ(uuid7_digits(0), "000000000000");
    EXPECT_EQ(uuid7_digits(1'000), "000000000001");
    EXPECT_EQ(uuid7_digits(1'001), "000000000002") << "a part of a millisecond counts as one";
    EXPECT_EQ(uuid7_digits(0x0193'9d3e'7c00 * std::int64_t{1'000}), "01939d3e7c00");
}

TEST(RecordsOfAReplay, BearTheRunAndNoEventCanClaimIt) {
    const std::string run = "0b6dff1c-6d6c-4f6e-9d3e-0a4a5a0f2d11";
    const codec::MakeEncoder plain =
        codec::with_claims([] { return std::make_unique<codec::RawEncoder>(); }, {});
    spi::EventView event;
    event.id = "e-1";
    event.occurred_at_us = 5;
    event.headers = R"({"Outbox-Replay": "forged", "other": "stays"})";
    event.payload = "1";
    spi::EventBatch arena;
    const auto header = [](const spi::Record& record, std::string_view name) {
        std::string values;
        for (const spi::HeaderView& one : record.headers) {
            if (one.name == name) values += "[" + std::string(one.value) + "]";
        }
        return values;
    };
    const auto live = plain()->encode(event, "t", arena);
    ASSERT_TRUE(live.ok());
    EXPECT_EQ(header(*live, "Outbox-Replay"), "");
    EXPECT_EQ(header(*live, "other"), "[stays]");
    const auto again = codec::as_replay(plain, {run, false, 0})()->encode(event, "t", arena);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(header(*again, claim::kReplayHeader), "[" + run + "]");
    EXPECT_EQ(again->id, "e-1");
    const auto as_new =
        codec::as_replay(plain, {run, true, 1'000'000})()->encode(event, "t", arena);
    ASSERT_TRUE(as_new.ok());
    EXPECT_EQ(as_new->id, net::uuid5(run, "e-1"));
    EXPECT_EQ(header(*as_new, "id"), "[" + net::uuid5(run, "e-1") + "]");
    EXPECT_EQ(header(*as_new, "occurred_at"), "[1970-01-01T00:00:01.000000Z]");
}

TEST(ATimeOfTheCommandLine, IsAnInstantADayOrHowLongAgo) {
    constexpr std::int64_t kNow = 10'000 * kSecond;
    const auto time = [](std::string_view text) {
        const auto parsed = runtime::parse_time(text, kNow);
        return parsed.ok() ? *parsed : -1;
    };
    EXPECT_EQ(time("2h"), kNow - 7'200 * kSecond);
    EXPECT_EQ(time("1970-01-02"), 86'400 * kSecond);
    EXPECT_EQ(time("1970-01-01T00:00:01Z"), kSecond);
    EXPECT_EQ(time("1970-01-01T02:00:01.5+02:00"), kSecond + 500'000);
    EXPECT_EQ(time("1969-12-31T23:00:00-01:00"), -1);
    EXPECT_EQ(time("1970-01-01T00:00:00.1234567Z"), 123'456);
    for (const char* wrong : {"", "now", "1970-13-01", "1970-01-01T", "1970-01-01T00:00:00",
                              "1970-01-01T00:00:00.Z", "1970-01-01T00:00:00Zx", "1970-1-1",
                              "1970-01-01T24:00:00Z", "5", "-5m", "1970-01-01T00:00:00+2:00"}) {
        EXPECT_EQ(time(wrong), -1) << wrong;
    }
}

}  // namespace
}  // namespace outbox::replay
