#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <utility>

#include "tests/simulation/postgres/history.h"
#include "tests/simulation/seeds.h"

namespace outbox::simulation {
namespace {

constexpr std::uint64_t kDefaultSeeds = 200;
constexpr std::uint64_t kShortSeeds = 12;

PostgresVerdict history_of(std::uint64_t seed,
                           const char* kind = std::getenv("OUTBOX_SIMULATION_KIND")) {
    PostgresSettings settings = PostgresSettings::from_seed(seed, Server::for_tests());
    settings.settings.tracing = true;
    if (kind != nullptr) settings.only(kind);
    return PostgresHistory(Server::for_tests(), settings).run();
}

constexpr const char* kEvery = "SimulationOnPostgres.EveryHistoryKeepsThePromises";

// OUTBOX_SIMULATION_SEEDS=N runs N histories, OUTBOX_SIMULATION_SEED=S only the one of seed S; with
// OUTBOX_SIMULATION_KIND, as PostgresSettings::only has it.
TEST(SimulationOnPostgres, EveryHistoryKeepsThePromises) {
    const auto [one, goes_on, first, count] = Seeds(kShortSeeds, kDefaultSeeds);
    PostgresVerdict all;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const PostgresVerdict verdict = history_of(seed);
        if (goes_on && !verdict.violations.empty()) {
            ADD_FAILURE() << report(seed, verdict, "simulation_postgres_test", kEvery);
            continue;
        }
        ASSERT_TRUE(verdict.violations.empty())
            << report(seed, verdict, "simulation_postgres_test", kEvery);
        all.events += verdict.events;
        all.repeats += verdict.repeats;
        all.dead += verdict.dead;
        all.epochs += verdict.epochs;
        all.joins += verdict.joins;
        all.streamed += verdict.streamed;
        all.statements += verdict.statements;
        all.blocked += verdict.blocked;
        all.connections += verdict.connections;
        for (const auto& [what, times] : verdict.happened) all.happened[what] += times;
    }
    std::printf(
        "%llu histories: %zu events, %zu repeats, %zu dead letters, %llu terms; "
        "%zu connections, %zu statements, %zu waits for locks\n",
        static_cast<unsigned long long>(count), all.events, all.repeats, all.dead,
        static_cast<unsigned long long>(all.epochs), all.connections, all.statements, all.blocked);
    std::printf("%zu joins of the stream, which brought %zu events\n", all.joins, all.streamed);
    for (const auto& [what, times] : all.happened) std::printf("%6zu x %s\n", times, what.c_str());
    if (one || goes_on || count < kShortSeeds || std::getenv("OUTBOX_SIMULATION_KIND") != nullptr) {
        return;
    }
    // Were a kind of history to stop happening, the checkers would have nothing to see.
    EXPECT_GT(all.events, count * 50);
    EXPECT_GT(all.repeats, 0U);
    EXPECT_GT(all.dead, count / 4);
    EXPECT_GT(all.epochs, count * 2);
    EXPECT_GT(all.blocked, count);
    EXPECT_GT(all.joins, count / 4);
    EXPECT_GT(all.streamed, count);
    EXPECT_GT(all.happened.size(), 10U);
}

void keeps_the_promises(std::uint64_t seed, const char* kind) {
    const PostgresVerdict verdict = history_of(seed, kind);
    EXPECT_TRUE(verdict.violations.empty())
        << report(seed, verdict, "simulation_postgres_test", kEvery, kind);
}

// For each change; the tests around it run many more.
TEST(SimulationOnPostgres, SomeHistoriesKeepThePromises) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) keeps_the_promises(seed, nullptr);
    // The publication did not show the table, and the stream went on.
    keeps_the_promises(32, "publications");
}

// What went wrong on its day; what a seed does changes with what histories do.
TEST(SimulationOnPostgres, SeedsThatOnceFailedKeepThePromises) {
    static constexpr std::pair<std::uint64_t, const char*> kSeeds[] = {
        {77, nullptr},          // a relay heard of its epoch when another had had its own
        {259, "publications"},  // rows that the publication did not show came after later ones
        {403, nullptr},         // a checkpoint waited for a sender whose client did not read
        {404, nullptr},         // a slot that was being made as its host vanished
        // A route stood still where its memory was full of events whose keys had failed; what a
        // history leaves in the server was part of it.
        {446, nullptr},
        {447, nullptr},
        {448, nullptr},
        {449, nullptr},
        {450, nullptr},
        {451, nullptr},
    };
    for (const auto& [seed, kind] : kSeeds) keeps_the_promises(seed, kind);
}

// Of histories in which nothing goes wrong but single events.
TEST(SimulationOnPostgres, AFailingEventDelaysOnlyItsOwnKey) {
    const auto [one, goes_on, first, count] = Seeds(6, kDefaultSeeds / 4);
    std::size_t compared = 0;
    std::size_t dead = 0;
    std::int64_t worst_us = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const PostgresVerdict verdict = history_of(seed, "quiet");
        EXPECT_TRUE(verdict.violations.empty())
            << report(seed, verdict, "simulation_postgres_test", kEvery, "quiet");
        compared += verdict.latencies;
        dead += verdict.dead;
        worst_us = std::max(worst_us, verdict.worst_latency_us);
    }
    std::printf("%llu histories: %zu events beside %zu dead letters, none later than %lld ms\n",
                static_cast<unsigned long long>(count), compared, dead,
                static_cast<long long>(worst_us / kMs));
    if (one) return;
    EXPECT_GT(compared, count * 20);
    EXPECT_GT(dead, count);
}

// A trigger of the owner's keeps rows that all routes have finished.
TEST(SimulationOnPostgres, RowsThatCannotBeRemovedHoldNothingUp) {
    const auto [one, goes_on, first, count] = Seeds(3, kDefaultSeeds / 10);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        keeps_the_promises(seed, "refusals");
    }
}

// OUTBOX_SIMULATION_SEEDS and OUTBOX_SIMULATION_FIRST_SEED: of these.
TEST(SimulationOnPostgres, OneSeedIsOneHistory) {
    const std::uint64_t first = number_from("OUTBOX_SIMULATION_FIRST_SEED", 3);
    const std::uint64_t count = number_from("OUTBOX_SIMULATION_SEEDS", 2);
    std::set<std::uint64_t> fingerprints;
    const auto twice = [&](std::uint64_t seed, const char* kind) {
        const PostgresVerdict one = history_of(seed, kind);
        const PostgresVerdict other = history_of(seed, kind);
        EXPECT_EQ(one.fingerprint, other.fingerprint) << "seed " << seed << "\n"
                                                      << parting(one, other);
        EXPECT_EQ(one.ended_us, other.ended_us) << "seed " << seed;
        EXPECT_EQ(one.statements, other.statements) << "seed " << seed;
        fingerprints.insert(one.fingerprint);
    };
    const char* const kind = std::getenv("OUTBOX_SIMULATION_KIND");
    for (std::uint64_t seed = first; seed < first + count; ++seed) twice(seed, kind);
    EXPECT_EQ(fingerprints.size(), count);
    if (kind == nullptr) twice(5, "bursts");  // a stream that comes piece by piece
}

// A guard of the stream that is taken out of a statement of ours.
struct Planted {
    const char* name;
    const char* kind;  // of chaos that shows it
    Lines::Plant plant;
    std::uint64_t from = 1;  // the seed that found it last
};

class PlantedInTheStream : public testing::TestWithParam<Planted> {};

constexpr std::uint64_t kFoundWithin = 100;

TEST_P(PlantedInTheStream, IsFound) {
    std::size_t planted = 0;
    const std::uint64_t from = GetParam().from;
    for (std::uint64_t seed = from; seed < from + kFoundWithin; ++seed) {
        PostgresSettings settings = PostgresSettings::from_seed(seed, Server::for_tests());
        settings.only(GetParam().kind);
        settings.plant = GetParam().plant;
        const PostgresVerdict verdict = PostgresHistory(Server::for_tests(), settings).run();
        planted += verdict.planted;
        if (verdict.violations.empty()) continue;
        std::printf("seed %llu: %s\n", static_cast<unsigned long long>(seed),
                    verdict.violations.front().c_str());
        EXPECT_GT(planted, 0U) << verdict.violations.front();
        return;
    }
    ADD_FAILURE() << "not found within " << kFoundWithin << " seeds; taken out " << planted
                  << " times";
}

INSTANTIATE_TEST_SUITE_P(
    Guards, PlantedInTheStream,
    testing::Values(Planted{"WhatNobodySeesIsHandedOut",
                            "lingers",
                            {"SELECT pg_current_snapshot()::text, ", "SELECT '1:2000000000:', "}},
                    Planted{"ChangesOfThePublicationAreNotLookedAt",
                            "publications",
                            {"string_agg(version, '/' ORDER BY version)", "max('1')"},
                            250},
                    Planted{"TheLogThatIsKeptIsNotLookedAt",
                            "growth",
                            {"max(pg_wal_lsn_diff(", "max(0 * pg_wal_lsn_diff("}},
                    Planted{"TheSlotStays", "cuts", {" TEMPORARY LOGICAL ", " LOGICAL "}},
                    Planted{"TheServerWaitsForAHostThatIsGone",
                            "hosts",
                            {"wal_sender_timeout = '10s'", "wal_sender_timeout = 0"}}),
    [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace outbox::simulation
