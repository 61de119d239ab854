#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <set>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include <outbox/producer/emit.h>

#include "core/utf8.h"
#include "producer/ascending_time.h"

namespace outbox {
namespace {

TEST(EventId, IsAVersion7UuidOfTheCurrentTime) {
    const auto now = std::chrono::duration_cast<std::chrono::milliseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    const std::string id = new_event_id();
    EXPECT_THAT(id, testing::MatchesRegex("[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-"
                                          "[0-9a-f]{12}"));
    const auto time = std::stoll(id.substr(0, 8) + id.substr(9, 4), nullptr, 16);
    EXPECT_GE(time, now);
    EXPECT_LT(time, now + 60'000);
}

TEST(EventId, TimesAscendAlsoWhereTheClockIsSetBack) {
    using namespace std::chrono_literals;
    AscendingTime times;
    const std::uint64_t first = times.next(1h);
    EXPECT_EQ(first, 3'600'000U * AscendingTime::kFractionSteps);
    EXPECT_EQ(times.next(1h), first + 1) << "it stands still";
    EXPECT_EQ(times.next(30min), first + 2) << "it is set back";
    EXPECT_EQ(times.next(1h + 500us), first + AscendingTime::kFractionSteps / 2);
}

TEST(EventId, AscendsWithinAProcessOnEveryThread) {
    std::vector<std::vector<std::string>> made(4);
    std::vector<std::thread> threads;
    for (auto& ids : made) {
        threads.emplace_back([&ids] {
            for (int i = 0; i < 20'000; ++i) ids.push_back(new_event_id());
        });
    }
    for (auto& thread : threads) thread.join();
    std::set<std::string> all;
    for (const auto& ids : made) {
        EXPECT_TRUE(std::is_sorted(ids.begin(), ids.end()));
        all.insert(ids.begin(), ids.end());
    }
    EXPECT_EQ(all.size(), 80'000U);
}

TEST(Utf8, AcceptsWellFormedAndRefusesIllFormedText) {
    for (const char* good :
         {"", "plain ascii text", "gr\u00fc\u00dfe", "\u20ac", "\xf0\x9f\x98\x80",
          "12345678\xc3\xa9", "\xf4\x8f\xbf\xbf", "\xed\x9f\xbf"}) {
        EXPECT_TRUE(is_utf8(good)) << good;
    }
    for (const char* bad :
         {"\xff", "\xc3", "abc\x80", "\xc0\xaf", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80",
          "\xf0\x8f\xbf\xbf", "1234567\xe2\x82", "\xf8\x88"}) {
        EXPECT_FALSE(is_utf8(bad));
    }
}

TEST(Utf8, CleansWhatNoTextColumnTakesAndCutsBetweenCharacters) {
    EXPECT_EQ(to_storable_text(std::string_view("a\xff\0b", 4), 100), "a??b");
    EXPECT_EQ(to_storable_text("ab\xc3\xa9", 3), "ab");
    EXPECT_EQ(to_storable_text("ab\xc3\xa9", 4), "ab\xc3\xa9");
}

}  // namespace
}  // namespace outbox
