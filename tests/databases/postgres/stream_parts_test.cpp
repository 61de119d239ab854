#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "databases/postgres/replication.h"
#include "databases/postgres/source/published.h"
#include "databases/postgres/stream/hub.h"
#include "databases/postgres/stream/visibility.h"

namespace outbox::postgres {
namespace {

using testing::IsEmpty;

std::string positions(const std::vector<spi::Ghost>& ghosts) {
    std::string out;
    for (const spi::Ghost& ghost : ghosts) {
        out += std::to_string(ghost.position) + ghost.id + " ";
    }
    return out;
}

TEST(Published, NamesWhatWasRemovedBehindAPlaceInTheLog) {
    Published published;
    for (const spi::Position position : {3, 1, 2, 4}) published.returned(position, "a");
    published.finished(std::vector<spi::Position>{1, 2}, 100);
    published.finished(std::vector<spi::Position>{3}, 101);
    EXPECT_EQ(positions(published.removed_behind(100)), "3a ");
    EXPECT_EQ(positions(published.removed_behind(99)), "1a 2a 3a ");
    EXPECT_THAT(published.removed_behind(101), IsEmpty());
}

TEST(Published, KeepsTheFirstWordOnARemovalThatIsTriedAgain) {
    Published published;
    published.returned(1, "a");
    published.finished(std::vector<spi::Position>{1}, 100);
    published.finished(std::vector<spi::Position>{1}, 200);
    EXPECT_THAT(published.removed_behind(100), IsEmpty());
    published.returned(1, "a");  // by another route
    EXPECT_EQ(positions(published.removed_behind(99)), "1a ");
    published.returned(1, "b");  // another event
    EXPECT_THAT(published.removed_behind(0), IsEmpty());
}

TEST(Published, ForgetsTheOldest) {
    Published published;
    const auto count = static_cast<spi::Position>(Published::kMax);
    for (spi::Position p = 1; p <= count + 5; ++p) {
        published.returned(p, "a");
        published.finished(std::vector<spi::Position>{p}, 7);
    }
    const auto kept = published.removed_behind(0);
    ASSERT_EQ(kept.size(), Published::kMax);
    EXPECT_EQ(kept.front().position, 6);
}

TEST(Timelines, EndWhereTheHistoryOfALaterOneSays) {
    const char* history =
        "1\t0/16B3B68\tno recovery target specified\n\n2\t1/A\tbefore 2026-11-21\n";
    EXPECT_EQ(end_of_timeline(history, 1), Lsn{0x16B3B68});
    EXPECT_EQ(end_of_timeline(history, 2), Lsn{0x10000000A});
    EXPECT_EQ(end_of_timeline(history, 3), std::nullopt);
    EXPECT_EQ(end_of_timeline("", 1), std::nullopt);
    EXPECT_EQ(end_of_timeline("1", 1), std::nullopt);
    EXPECT_EQ(end_of_timeline("1\tnonsense", 1), std::nullopt);
}

TEST(Backoff, GrowsWithEachFailureUpToItsLimitAndEndsWithSuccess) {
    Backoff backoff;
    const Backoff::Clock::time_point now{std::chrono::hours(1)};
    EXPECT_LE(backoff.next(), now);
    backoff.failed(now);
    EXPECT_EQ(backoff.next(), now + Backoff::kMin);
    backoff.failed(now);
    EXPECT_EQ(backoff.next(), now + 2 * Backoff::kMin);
    for (int i = 0; i < 20; ++i) backoff.failed(now);
    EXPECT_EQ(backoff.next(), now + Backoff::kMax);
    backoff.succeeded();
    EXPECT_LE(backoff.next(), now);
}

TEST(SnapshotBounds, ShowsWhatHasEnded) {
    const auto snapshot = SnapshotBounds::parse("10:20:12,15");
    ASSERT_TRUE(snapshot);
    for (const std::uint32_t ended : {3U, 9U, 10U, 14U, 19U}) EXPECT_TRUE(snapshot->shows(ended));
    for (const std::uint32_t running : {12U, 15U, 20U, 21U}) EXPECT_FALSE(snapshot->shows(running));
}

TEST(SnapshotBounds, KnowsAnIdByItsLowHalfAcrossEpochs) {
    const auto snapshot = SnapshotBounds::parse("4294967290:4294967300:4294967295");
    ASSERT_TRUE(snapshot);
    EXPECT_TRUE(snapshot->shows(4294967290U));
    EXPECT_FALSE(snapshot->shows(4294967295U));
    EXPECT_TRUE(snapshot->shows(3U));
    EXPECT_FALSE(snapshot->shows(4U));
    EXPECT_FALSE(snapshot->shows(100U));
}

TEST(SnapshotBounds, RefusesWhatIsNoSnapshot) {
    EXPECT_TRUE(SnapshotBounds::parse("10:10:"));
    for (const char* text : {"", "10", "x:1:", "1:2:3,,4", "1:2:x", "1;2:3"}) {
        EXPECT_FALSE(SnapshotBounds::parse(text)) << text;
    }
}

}  // namespace
}  // namespace outbox::postgres
