#include "tests/simulation/postgres/receiving.h"

#include <cstdio>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "tests/simulation/seeds.h"

namespace outbox::simulation {
namespace {

constexpr std::uint64_t kManySeeds = 300;
constexpr std::uint64_t kFewSeeds = 4;
constexpr const char* kEvery = "SimulationOfReceiving.EveryHistoryKeepsThePromises";

ReceivingVerdict history_of(std::uint64_t seed) {
    ReceivingSettings settings = ReceivingSettings::from_seed(seed);
    settings.settings.tracing = true;
    return ReceivingHistory(Server::for_tests(), settings).run();
}

// Seeds as the relays' histories have them.
TEST(SimulationOfReceiving, EveryHistoryKeepsThePromises) {
    const auto [one, goes_on, first, count] = Seeds(kFewSeeds, kManySeeds);
    ReceivingVerdict all;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const ReceivingVerdict verdict = history_of(seed);
        if (goes_on && !verdict.violations.empty()) {
            ADD_FAILURE() << report(seed, verdict, "simulation_postgres_test", kEvery);
            continue;
        }
        ASSERT_TRUE(verdict.violations.empty())
            << report(seed, verdict, "simulation_postgres_test", kEvery);
        all.events += verdict.events;
        all.repeats += verdict.repeats;
        all.effects += verdict.effects;
        all.handovers += verdict.handovers;
        all.deliveries += verdict.deliveries;
        all.dead += verdict.dead;
        all.answers += verdict.answers;
        all.completed += verdict.completed;
        all.compensated += verdict.compensated;
        all.statements += verdict.statements;
        all.blocked += verdict.blocked;
        for (const auto& [what, times] : verdict.happened) all.happened[what] += times;
    }
    std::printf(
        "%llu histories: %zu events, %zu repeats, %zu effects by %zu handlers, %zu deliveries by "
        "queues, %zu dead letters; "
        "%zu answers; %zu and %zu sagas; %zu statements, %zu waits for locks\n",
        static_cast<unsigned long long>(count), all.events, all.repeats, all.effects, all.handovers,
        all.deliveries, all.dead, all.answers, all.completed, all.compensated, all.statements,
        all.blocked);
    for (const auto& [what, times] : all.happened) std::printf("%6zu x %s\n", times, what.c_str());
    if (one || goes_on || count < kManySeeds) return;
    // Were a kind of history to stop happening, the checkers would have nothing to see.
    EXPECT_GT(all.events, count * 20);
    EXPECT_GT(all.repeats, 0U);
    EXPECT_GT(all.handovers, all.effects);
    EXPECT_GT(all.deliveries, count);
    EXPECT_GT(all.dead, 0U);
    EXPECT_GT(all.answers, count);
    EXPECT_GT(all.completed, 0U);
    EXPECT_GT(all.compensated, 0U);
    EXPECT_GT(all.happened.size(), 5U);
}

TEST(SimulationOfReceiving, OneSeedIsOneHistory) {
    const std::uint64_t first = number_from("OUTBOX_SIMULATION_FIRST_SEED", 3);
    const std::uint64_t count = number_from("OUTBOX_SIMULATION_SEEDS", 2);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const ReceivingVerdict one = history_of(seed);
        const ReceivingVerdict other = history_of(seed);
        EXPECT_EQ(one.fingerprint, other.fingerprint) << "seed " << seed << "\n"
                                                      << parting(one, other);
        EXPECT_EQ(one.ended_us, other.ended_us) << "seed " << seed;
        EXPECT_EQ(one.statements, other.statements) << "seed " << seed;
    }
}

// A guard that is taken out of a statement or a function of ours.
struct Planted {
    const char* name;
    Lines::Plant plant;
    std::uint64_t from = 1;  // the seed that found it last
    bool queue = false;      // messages come by one
};

class PlantedInReceiving : public testing::TestWithParam<Planted> {};

constexpr std::uint64_t kFoundWithin = 200;

TEST_P(PlantedInReceiving, IsFound) {
    std::size_t planted = 0;
    const std::uint64_t from = GetParam().from;
    for (std::uint64_t seed = from; seed < from + kFoundWithin; ++seed) {
        ReceivingSettings settings = ReceivingSettings::from_seed(seed);
        settings.plant = GetParam().plant;
        settings.queue = GetParam().queue;
        const ReceivingVerdict verdict = ReceivingHistory(Server::for_tests(), settings).run();
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
    Guards, PlantedInReceiving,
    testing::Values(
        Planted{"RepeatsCountAsNew", {"(SELECT count(*) FROM taken)", "1"}, 132},
        Planted{"RepeatsInABatchCountAsNew", {"t.message_id IS NOT NULL", "true"}, 160},
        Planted{"TheSinkKeepsNoOrder", {"ORDER BY r.n ON", "ORDER BY r.n DESC ON"}},
        Planted{"TheMailboxIsReadFromItsEnd",
                {"ORDER BY position LIMIT $4", "ORDER BY position DESC LIMIT $4"}},
        Planted{"AnotherBodyHasTheAnswer",
                {"known.fingerprint <> idempotency_claim.fingerprint", "false"}},
        Planted{
            "AnotherBodyTakesOver", {"AND f.fingerprint = idempotency_claim.fingerprint", ""}, 57},
        Planted{"ALeaseIsNotLookedAt", {"f.lease_until <= clock_timestamp()", "true"}},
        Planted{"WhoLostItsClaimIsNotTold", {"RETURN FOUND", "RETURN true"}, 10},
        Planted{"AStepIsUndoneTwice", {"AND state = $4", "AND $4::text <> ''"}, 65},
        Planted{"RepeatsOfAQueueCountAsNew",
                {"DO NOTHING RETURNING message_id",
                 "DO UPDATE SET consumer = excluded.consumer RETURNING message_id"},
                1,
                true},
        Planted{"AMessageThatIsGivenUpOnIsNotKept", {"OR EXISTS (SELECT FROM seen)", ""}, 1, true}),
    [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace outbox::simulation
