#include "tests/simulation/postgres/receiving.h"

#include <gtest/gtest.h>
#include <string>

#include "tests/simulation/receiving/suite.h"

namespace outbox::simulation {
namespace {

ReceivingVerdict history_of(PostgresReceivingSettings settings) {
    settings.settings.tracing = true;
    return PostgresReceiving(Server::for_tests(), settings).run();
}

ReceivingVerdict history_of(std::uint64_t seed) {
    return history_of(PostgresReceivingSettings::from_seed(seed));
}

// Seeds as the relays' histories have them.
TEST(SimulationOfReceiving, EveryHistoryKeepsThePromises) {
    every_history_keeps_the_promises(4, 300, "simulation_postgres_test",
                                     "SimulationOfReceiving.EveryHistoryKeepsThePromises",
                                     [](std::uint64_t seed) { return history_of(seed); });
}

TEST(SimulationOfReceiving, OneSeedIsOneHistory) {
    one_seed_is_one_history([](std::uint64_t seed) { return history_of(seed); });
}

// A guard that is taken out of a statement or a function of ours.
struct Planted {
    const char* name;
    Lines::Plant plant;
    std::uint64_t from = 1;  // the seed that found it last
    bool queue = false;      // messages come by one
};

class PlantedInReceiving : public testing::TestWithParam<Planted> {};

TEST_P(PlantedInReceiving, IsFound) {
    is_found(number_from("OUTBOX_SIMULATION_FIRST_SEED", GetParam().from), [](std::uint64_t seed) {
        PostgresReceivingSettings settings = PostgresReceivingSettings::from_seed(seed);
        settings.plant = GetParam().plant;
        settings.queue = GetParam().queue;
        return PostgresReceiving(Server::for_tests(), settings).run();
    });
}

INSTANTIATE_TEST_SUITE_P(
    Guards, PlantedInReceiving,
    testing::Values(
        Planted{"RepeatsCountAsNew", {"(SELECT count(*) FROM taken)", "1"}, 132},
        Planted{"RepeatsInABatchCountAsNew", {"id IN (SELECT message_id FROM taken)", "true"}, 290},
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
