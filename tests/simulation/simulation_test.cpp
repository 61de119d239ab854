#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <string>

#include "tests/simulation/history.h"
#include "tests/simulation/shrink.h"
#include "tests/support/full_run.h"

namespace outbox::simulation {
namespace {

constexpr std::uint64_t kDefaultSeeds = 500;
constexpr std::uint64_t kShortSeeds = 120;

std::uint64_t number_from(const char* variable, std::uint64_t otherwise) {
    const char* text = std::getenv(variable);
    return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

std::string report(Settings settings) {
    settings.tracing = true;
    const Verdict verdict = History(settings).run();
    std::string text;
    for (const std::string& line : verdict.trace) text += line + "\n";
    text += "seed " + std::to_string(settings.seed) + ":\n";
    for (const std::string& violation : verdict.violations) text += "  " + violation + "\n";
    return text + "replay with: OUTBOX_SIMULATION_SEED=" + std::to_string(settings.seed) +
           " simulation --gtest_filter=Simulation.EveryHistoryKeepsThePromises\n";
}

// OUTBOX_SIMULATION_SEEDS=N runs N histories, OUTBOX_SIMULATION_SEED=S only the one of seed S.
TEST(Simulation, EveryHistoryKeepsThePromises) {
    const bool one = std::getenv("OUTBOX_SIMULATION_SEED") != nullptr;
    const std::uint64_t first = number_from("OUTBOX_SIMULATION_SEED", 1);
    const std::uint64_t count = one ? 1
                                    : number_from("OUTBOX_SIMULATION_SEEDS",
                                                  test::full_run() ? kDefaultSeeds : kShortSeeds);
    std::size_t events = 0;
    std::size_t repeats = 0;
    std::size_t dead = 0;
    std::uint64_t terms = 0;
    Judge::Streamed streamed;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const Settings settings = Settings::from_seed(seed);
        const Verdict verdict = History(settings).run();
        ASSERT_TRUE(verdict.violations.empty()) << report(settings);
        events += verdict.events;
        repeats += verdict.repeats;
        dead += verdict.dead;
        terms += verdict.epochs;
        streamed.joins += verdict.streamed.joins;
        streamed.behind += verdict.streamed.behind;
        streamed.events += verdict.streamed.events;
    }
    std::printf("%llu histories: %zu events, %zu repeats, %zu dead letters, %llu terms\n",
                static_cast<unsigned long long>(count), events, repeats, dead,
                static_cast<unsigned long long>(terms));
    std::printf(
        "the stream was joined %zu times, brought %zu events and was left behind %zu times\n",
        streamed.joins, streamed.events, streamed.behind);
    if (one) return;
    // Were a kind of history to stop happening, the checkers would have nothing to see.
    EXPECT_GT(events, count * 100);
    EXPECT_GT(repeats, count);
    EXPECT_GT(dead, count / 2);
    EXPECT_GT(terms, count * 2);
    EXPECT_GT(streamed.joins, count);
    EXPECT_GT(streamed.behind, count / 20);
    EXPECT_GT(streamed.events, count * 20);
}

// Several events that time out each, with few others to show that it is their own fault.
TEST(Simulation, SeedsThatOnceFailedPass) {
    for (const std::uint64_t seed :
         {659, 1066, 1181, 1198, 1806, 2550, 2729, 3102, 3173, 3305, 3352}) {
        const Settings settings = Settings::from_seed(seed);
        ASSERT_TRUE(History(settings).run().violations.empty()) << report(settings);
    }
}

TEST(Simulation, OneSeedIsOneHistory) {
    for (const std::uint64_t seed : {3, 14}) {
        const Verdict first = History(Settings::from_seed(seed)).run();
        const Verdict second = History(Settings::from_seed(seed)).run();
        EXPECT_EQ(first.fingerprint, second.fingerprint);
        EXPECT_EQ(first.ended_us, second.ended_us);
        EXPECT_EQ(first.repeats, second.repeats);
    }
    EXPECT_NE(History(Settings::from_seed(3)).run().fingerprint,
              History(Settings::from_seed(14)).run().fingerprint);
}

TEST(Simulation, WhatFailsIsMadeSmaller) {
    Case failing{.fault = Fault::kEarlyAcknowledgement};
    while (History(settings_of(failing)).run().violations.empty()) ++failing.seed;
    const Case smallest = shrink(failing);
    const Verdict before = History(settings_of(failing)).run();
    const Verdict after = History(settings_of(smallest)).run();
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

struct Planted {
    const char* name;
    Fault fault;
    const char* noticed_as;  // a part of what the judge then says
};

class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFound) {
    std::string others;
    for (std::uint64_t seed = 1; seed <= kDefaultSeeds; ++seed) {
        const Verdict verdict = History(Settings::from_seed(seed, GetParam().fault)).run();
        for (const std::string& violation : verdict.violations) {
            if (violation.find(GetParam().noticed_as) == std::string::npos) {
                others = violation;
                continue;
            }
            std::printf("%s: found by seed %llu: %s\n", GetParam().name,
                        static_cast<unsigned long long>(seed), violation.c_str());
            return;
        }
    }
    FAIL() << GetParam().name << " was not found within " << kDefaultSeeds << " seeds"
           << (others.empty() ? "" : "; noticed last: ") << others;
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, PlantedFault,
    testing::Values(Planted{"HoleClosedWithoutProof", Fault::kHoleClosedWithoutProof, "lost"},
                    Planted{"BareCursor", Fault::kBareCursor, "lost"},
                    Planted{"EarlyAcknowledgement", Fault::kEarlyAcknowledgement,
                            "is not finished"},
                    Planted{"LostLeaseIgnored", Fault::kLostLeaseIgnored, "without the lease"},
                    Planted{"JoinWithoutSnapshot", Fault::kJoinWithoutSnapshot, "out of order"},
                    Planted{"StreamClosesHoles", Fault::kStreamClosesHoles, "out of order"},
                    Planted{"RemovalForgotten", Fault::kRemovalForgotten, "stay in the table"},
                    Planted{"MissingIsGone", Fault::kMissingIsGone, "is not finished"},
                    Planted{"GapAfterFailure", Fault::kGapAfterFailure, "out of order"}),
    [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace outbox::simulation
