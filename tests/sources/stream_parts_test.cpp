#include <gtest/gtest.h>

#include "sources/postgres/replication.h"
#include "sources/postgres/stream.h"

namespace outbox::postgres {
namespace {

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

}  // namespace
}  // namespace outbox::postgres
