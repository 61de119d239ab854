#include "tests/simulation/sqlite/receiving.h"

#include <gtest/gtest.h>
#include <string>

#include "tests/simulation/receiving/suite.h"

namespace outbox::simulation {
namespace {

ReceivingVerdict history_of(std::uint64_t seed) {
    SqliteReceivingSettings settings = SqliteReceivingSettings::from_seed(seed);
    settings.settings.tracing = true;
    return SqliteReceiving(settings).run();
}

TEST(SimulationOfReceivingOnSqlite, EveryHistoryKeepsThePromises) {
    every_history_keeps_the_promises(20, 1'000, "simulation",
                                     "SimulationOfReceivingOnSqlite.EveryHistoryKeepsThePromises",
                                     history_of);
}

// For each change: those of a few seeds, and of such as failed on their day. 80: a message whose
// commits found the disk full became a dead letter. 953: a probe was sent whose lease had ended.
TEST(SimulationOfReceivingOnSqlite, SomeHistoriesKeepThePromises) {
    for (const std::uint64_t seed : {1, 2, 3, 4, 80, 953}) {
        const ReceivingVerdict verdict = history_of(seed);
        EXPECT_TRUE(verdict.violations.empty())
            << report(seed, verdict, "simulation",
                      "SimulationOfReceivingOnSqlite.EveryHistoryKeepsThePromises");
    }
}

TEST(SimulationOfReceivingOnSqlite, OneSeedIsOneHistory) {
    one_seed_is_one_history(history_of);
}

// A guard that is taken out of a statement of ours.
struct Planted {
    const char* name;
    Disk::Plant plant;
    std::uint64_t from = 1;  // the seed that found it last
    bool queue = false;      // messages come by one
    bool power = false;      // fails, beside a rollback journal
};

class PlantedInReceivingOnSqlite : public testing::TestWithParam<Planted> {};

TEST_P(PlantedInReceivingOnSqlite, IsFound) {
    is_found(number_from("OUTBOX_SIMULATION_FIRST_SEED", GetParam().from), [](std::uint64_t seed) {
        SqliteReceivingSettings settings = SqliteReceivingSettings::from_seed(seed);
        settings.plant = GetParam().plant;
        settings.queue = GetParam().queue;
        if (GetParam().power) {
            settings.wal = false;
            settings.crashes = true;
        }
        return SqliteReceiving(settings).run();
    });
}

INSTANTIATE_TEST_SUITE_P(
    Guards, PlantedInReceivingOnSqlite,
    testing::Values(
        Planted{"RepeatsCountAsNew",
                {"VALUES (?1, ?2, coalesce(?3, -9223372036854775807), ?4) ON CONFLICT (consumer, "
                 "message_id) DO NOTHING",
                 "VALUES (?1, ?2, coalesce(?3, -9223372036854775807), ?4) ON CONFLICT (consumer, "
                 "message_id) DO UPDATE SET applied_at = excluded.applied_at"}},
        Planted{"RepeatsOfAQueueCountAsNew",
                {"VALUES (?1, ?2, coalesce(?3, -9223372036854775807), ?4) ON CONFLICT (consumer, "
                 "message_id) DO NOTHING",
                 "VALUES (?1, ?2, coalesce(?3, -9223372036854775807), ?4) ON CONFLICT (consumer, "
                 "message_id) DO UPDATE SET applied_at = excluded.applied_at"},
                1,
                true},
        Planted{"WhatABrokerIsToldIsNotDurable",
                {"PRAGMA synchronous = EXTRA", "PRAGMA synchronous = FULL"},
                1,
                true,
                true},
        Planted{"TheMailboxIsReadFromItsEnd",
                {"ORDER BY position LIMIT ?4", "ORDER BY position DESC LIMIT ?4"}},
        Planted{"AnotherBodyTakesOver", {"AND i.fingerprint = excluded.fingerprint", ""}, 40},
        Planted{"ALeaseIsNotLookedAt", {"i.lease_until <= ?6 ", "1 "}},
        Planted{"WhoLostItsClaimIsNotTold", {"AND attempt = ?3 AND status IS NULL", "AND ?3 > 0"}},
        Planted{"AStepIsUndoneTwice",
                {"AND step = ?3 AND state = ?4", "AND step = ?3 AND ?4 <> ''"},
                195}),
    [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace outbox::simulation
