#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <set>
#include <string>

#include "tests/simulation/seeds.h"
#include "tests/simulation/sqlite/history.h"
#include "tests/simulation/sqlite/shrink.h"

namespace outbox::simulation {
namespace {

constexpr std::uint64_t kDefaultSeeds = 1'000;
constexpr std::uint64_t kShortSeeds = 100;

SqliteVerdict history_of(std::uint64_t seed,
                         const char* kind = std::getenv("OUTBOX_SIMULATION_KIND")) {
    SqliteSettings settings = SqliteSettings::from_seed(seed);
    settings.settings.tracing = true;
    if (kind != nullptr) settings.only(kind);
    return SqliteHistory(settings).run();
}

std::string report_of(std::uint64_t seed, const SqliteVerdict& verdict) {
    return report(seed, verdict, "simulation", "Simulation.EveryHistoryKeepsThePromises");
}

// OUTBOX_SIMULATION_SEEDS=N runs N histories, OUTBOX_SIMULATION_SEED=S only the one of seed S; with
// OUTBOX_SIMULATION_KIND, as SqliteSettings::only has it.
TEST(Simulation, EveryHistoryKeepsThePromises) {
    const auto [one, goes_on, first, count] = Seeds(kShortSeeds, kDefaultSeeds);
    SqliteVerdict all;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const SqliteVerdict verdict = history_of(seed);
        if (goes_on && !verdict.violations.empty()) {
            ADD_FAILURE() << report_of(seed, verdict);
            continue;
        }
        ASSERT_TRUE(verdict.violations.empty()) << report_of(seed, verdict);
        all.events += verdict.events;
        all.repeats += verdict.repeats;
        all.dead += verdict.dead;
        all.epochs += verdict.epochs;
        all.statements += verdict.statements;
        all.waits += verdict.waits;
        all.failed += verdict.failed;
        for (const auto& [what, times] : verdict.happened) all.happened[what] += times;
    }
    std::printf(
        "%llu histories: %zu events, %zu repeats, %zu dead letters, %llu terms; %zu statements, "
        "%zu waits within them, %zu calls that failed\n",
        static_cast<unsigned long long>(count), all.events, all.repeats, all.dead,
        static_cast<unsigned long long>(all.epochs), all.statements, all.waits, all.failed);
    for (const auto& [what, times] : all.happened) std::printf("%6zu x %s\n", times, what.c_str());
    if (one || goes_on || count < kShortSeeds || std::getenv("OUTBOX_SIMULATION_KIND") != nullptr) {
        return;
    }
    // Were a kind of history to stop happening, the checkers would have nothing to see.
    EXPECT_GT(all.events, count * 50);
    EXPECT_GT(all.repeats, count);
    EXPECT_GT(all.dead, count / 4);
    EXPECT_GT(all.epochs, count * 2);
    EXPECT_GT(all.failed, count);
    EXPECT_GT(all.happened.size(), 25U);
}

// OUTBOX_SIMULATION_SEEDS and OUTBOX_SIMULATION_FIRST_SEED: of these.
TEST(Simulation, OneSeedIsOneHistory) {
    const std::uint64_t first = number_from("OUTBOX_SIMULATION_FIRST_SEED", 3);
    const std::uint64_t count = number_from("OUTBOX_SIMULATION_SEEDS", 5);
    std::set<std::uint64_t> fingerprints;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const SqliteVerdict one = history_of(seed);
        const SqliteVerdict other = history_of(seed);
        EXPECT_EQ(one.fingerprint, other.fingerprint) << "seed " << seed << "\n"
                                                      << parting(one, other);
        EXPECT_EQ(one.ended_us, other.ended_us) << "seed " << seed;
        EXPECT_EQ(one.statements, other.statements) << "seed " << seed;
        EXPECT_TRUE(one.trace == other.trace) << "seed " << seed << "\n" << parting(one, other);
        fingerprints.insert(one.fingerprint);
    }
    EXPECT_EQ(fingerprints.size(), count);
}

TEST(Simulation, WhatFailsIsMadeSmaller) {
    Case failing;
    failing.plant = [](SqliteSettings& settings) {
        settings.settings.fault = Fault::kEarlyAcknowledgement;
    };
    while (SqliteHistory(settings_of(failing)).run().violations.empty()) ++failing.seed;
    const Case smallest = shrink(failing);
    const SqliteVerdict before = SqliteHistory(settings_of(failing)).run();
    const SqliteVerdict after = SqliteHistory(settings_of(smallest)).run();
    std::printf("%s: %zu events in place of %zu\n", smallest.text().c_str(), after.events,
                before.events);
    ASSERT_FALSE(after.violations.empty());
    const std::string& kind = before.violations.front();
    EXPECT_EQ(after.violations.front().substr(0, kind.find(':')), kind.substr(0, kind.find(':')));
    EXPECT_LT(after.events * 4, before.events);
}

TEST(Simulation, WhatPassesIsLeftAsItIs) {
    EXPECT_TRUE(shrink({.seed = 1}).less.empty());
    EXPECT_THROW(static_cast<void>(settings_of({.less = {"nonsense"}})), std::invalid_argument);
}

}  // namespace
}  // namespace outbox::simulation
