#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <gtest/gtest.h>
#include <set>
#include <string>
#include <utility>

#include "tests/simulation/seeds.h"
#include "tests/simulation/sqlite/history.h"
#include "tests/simulation/sqlite/shrink.h"

namespace outbox::simulation {
namespace {

constexpr std::uint64_t kDefaultSeeds = 1'000;
constexpr std::uint64_t kShortSeeds = 100;
constexpr std::uint64_t kFoundWithin = 500;

SqliteVerdict history_of(std::uint64_t seed,
                         const char* kind = std::getenv("OUTBOX_SIMULATION_KIND")) {
    SqliteSettings settings = SqliteSettings::from_seed(seed);
    settings.settings.tracing = true;
    if (kind != nullptr) settings.only(kind);
    return SqliteHistory(settings).run();
}

std::string report_of(std::uint64_t seed, const SqliteVerdict& verdict,
                      const char* kind = std::getenv("OUTBOX_SIMULATION_KIND")) {
    return report(seed, verdict, "simulation", "Simulation.EveryHistoryKeepsThePromises", kind);
}

// For each change; the tests below run many more.
TEST(Simulation, SomeHistoriesKeepThePromises) {
    for (std::uint64_t seed = 1; seed <= 24; ++seed) {
        const SqliteVerdict verdict = history_of(seed, nullptr);
        EXPECT_TRUE(verdict.violations.empty()) << report_of(seed, verdict, nullptr);
    }
}

// What went wrong on its day; what a seed does changes with what histories do.
TEST(Simulation, SeedsThatOnceFailedKeepThePromises) {
    static constexpr std::pair<std::uint64_t, const char*> kSeeds[] = {
        {218, "a relay ended where its journal could not be opened for a moment"},
        {226, "a letter without a position that timed out kept its route from reading"},
        {347, "routes were changed under a relay that stood still"},
        {1404, "delayed events were hidden by what was known of a former table"},
        {1548, "an older state from after the last renewal was told by nothing"},
        {1853, "a ledger of a former table hid new events"},
        {2225, "a relay ended for a missing right as its file was replaced"},
        {2757, "the judge took a dead letter for lost"},
        {2911, "a route stood still where memory was full of what may not be sent"},
        {4203, "a relay that stood still began a term with routes of before"},
        {5900, "a relay started with routes of before"},
        {5909, "a writer waited for a change of routes"},
        {6011, "an operator's commit was gone after a failure of power"},
        {9781, "a file that was replaced as nobody had it open passed for the same"},
        {10518, "letters were written while their discard waited"},
        {11053, "a part of a destination was tried with a key that sends nothing"},
        {11064, "what a term recorded last was of the numbers of before"},
        {16333, "too many events that get no answer"},
        {58409, "a letter in a file that was replaced blocked its key"},
        {70173, "a transaction that had ended was taken for open"},
    };
    for (const auto& [seed, was] : kSeeds) {
        const SqliteVerdict verdict = history_of(seed, nullptr);
        EXPECT_TRUE(verdict.violations.empty()) << was << "\n" << report_of(seed, verdict, nullptr);
    }
}

// Of histories in which nothing goes wrong but single events.
TEST(Simulation, AFailingEventDelaysOnlyItsOwnKey) {
    const auto [one, goes_on, first, count] = Seeds(10, kDefaultSeeds);
    std::size_t compared = 0;
    std::size_t dead = 0;
    std::int64_t worst_us = 0;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const SqliteVerdict verdict = history_of(seed, "quiet");
        EXPECT_TRUE(verdict.violations.empty()) << report_of(seed, verdict, "quiet");
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

// For each change, of the faults that `PlantedFault` plants.
TEST(Simulation, ADestinationThatLiesIsFound) {
    static constexpr std::pair<Fault, const char*> kFaults[] = {
        {Fault::kEarlyAcknowledgement, "is not finished"},
        {Fault::kGapAfterFailure, "out of order"},
    };
    for (const auto& [fault, noticed_as] : kFaults) {
        std::string noticed;
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            SqliteSettings settings = SqliteSettings::from_seed(seed);
            if (fault == Fault::kGapAfterFailure) settings.settings.fail_stop = true;
            settings.settings.fault = fault;
            for (const std::string& violation : SqliteHistory(settings).run().violations) {
                noticed += violation + "\n";
            }
        }
        EXPECT_NE(noticed.find(noticed_as), std::string::npos) << noticed;
    }
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
    constexpr std::size_t kLarge = 120;  // events
    SqliteVerdict before = SqliteHistory(settings_of(failing)).run();
    while (before.violations.empty() || before.events < kLarge) {
        ++failing.seed;
        before = SqliteHistory(settings_of(failing)).run();
    }
    const Case smallest = shrink(failing);
    const SqliteVerdict after = SqliteHistory(settings_of(smallest)).run();
    std::printf("%s: %zu events in place of %zu\n", smallest.text().c_str(), after.events,
                before.events);
    ASSERT_FALSE(after.violations.empty());
    const auto without_numbers = [](std::string text) {
        std::erase_if(text, [](unsigned char c) { return std::isdigit(c) != 0; });
        return text;
    };
    EXPECT_EQ(without_numbers(after.violations.front()),
              without_numbers(before.violations.front()));
    EXPECT_LT(after.events * 3, before.events);
}

TEST(Simulation, WhatPassesIsLeftAsItIs) {
    EXPECT_TRUE(shrink({.seed = 1}).less.empty());
    EXPECT_THROW(static_cast<void>(settings_of({.less = {"nonsense"}})), std::invalid_argument);
}

// A destination or a lease that lies, or a guard that is taken out of a statement of ours.
struct Planted {
    const char* name;
    const char* noticed_as;  // a part of what the judge then says
    Fault fault = Fault::kNone;
    Disk::Plant plant{};
    const char* kind = nullptr;  // of chaos that shows it; null: what the seed says
    std::uint64_t from = 1;      // just before the seed that found it last
};

// OUTBOX_SIMULATION_SEEDS and OUTBOX_SIMULATION_FIRST_SEED: in these.
class PlantedFault : public testing::TestWithParam<Planted> {};

TEST_P(PlantedFault, IsFound) {
    const Planted& planted = GetParam();
    std::string others;
    std::size_t times = 0;
    const std::uint64_t first = number_from("OUTBOX_SIMULATION_FIRST_SEED", planted.from);
    const std::uint64_t count = number_from("OUTBOX_SIMULATION_SEEDS", kFoundWithin);
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        SqliteSettings settings = SqliteSettings::from_seed(seed);
        if (planted.kind != nullptr) settings.only(planted.kind);
        if (planted.fault == Fault::kGapAfterFailure) settings.settings.fail_stop = true;
        settings.settings.fault = planted.fault;
        settings.plant = planted.plant;
        const SqliteVerdict verdict = SqliteHistory(settings).run();
        times += verdict.planted;
        for (const std::string& violation : verdict.violations) {
            if (violation.find(planted.noticed_as) == std::string::npos) {
                others = violation;
                continue;
            }
            std::printf("%s: found by seed %llu: %s\n", planted.name,
                        static_cast<unsigned long long>(seed), violation.c_str());
            return;
        }
    }
    FAIL() << planted.name << " was not found within " << count << " seeds, planted " << times
           << " times" << (others.empty() ? "" : "; noticed last: ") << others;
}

INSTANTIATE_TEST_SUITE_P(
    Simulation, PlantedFault,
    testing::Values(
        Planted{"EarlyAcknowledgement", "is not finished", Fault::kEarlyAcknowledgement},
        Planted{"GapAfterFailure", "out of order", Fault::kGapAfterFailure},
        Planted{
            "LostLeaseIgnored", "without the lease", Fault::kLostLeaseIgnored, {}, nullptr, 113},
        Planted{"ARefusalHoldsUpAll",
                "nothing wrong in its key waited",
                Fault::kRefusalHoldsUpAll,
                {},
                "quiet",
                3},
        Planted{
            .name = "TheReaderDoesNotSeeATableBeginAnew",
            .noticed_as =
                "out of order",  // what it leaves behind, until the recorder ends the term
            .plant = {"SELECT seq FROM sqlite_sequence", "SELECT 1000000000 FROM sqlite_master"},
            .kind = "anew",
            .from = 150},
        Planted{.name = "TheLedgerIsOfAFormerTable",
                // Nothing is lost: no reader reads what its ledger calls another table, for ever.
                .noticed_as = "a writer hangs",
                .plant = {"SELECT coalesce(max(seq), 0) FROM sqlite_sequence",
                          "SELECT 1000000000 + coalesce(max(seq), 0) FROM sqlite_sequence"},
                .kind = "anew"},
        Planted{
            .name = "AnOlderStatesLeaseIsTakenForTheOwn",
            .noticed_as = "out of order",
            // Nor is one told by the rows that were read or removed.
            .plant = {"SELECT epoch, coalesce(expires_at, 0), owner IS NOT NULL, "
                      "coalesce(acquired_at, 0), (SELECT id FROM \"outbox_events\" WHERE position "
                      "= ?1), EXISTS (SELECT 1 FROM \"outbox_events\" WHERE position = ?2)",
                      "SELECT epoch, coalesce(expires_at, 0) + 1000000000000, owner IS NOT NULL, "
                      "coalesce(acquired_at, 0), NULL, ?1 > ?2 AND 0"},
            .kind = "set_backs",
            .from = 2040},
        Planted{.name = "TheLedgerKeepsWhatIsRemoved",
                .noticed_as = "in the ledger of",
                .plant = {"SELECT route, done FROM outbox_ledger_segments WHERE source = ? AND "
                          "segment = ?",
                          "SELECT route, done FROM outbox_ledger_segments WHERE source = ? AND "
                          "segment = 1 + ?"}},
        Planted{.name = "ANewTermForgetsWhichKeysAreBlocked",
                .noticed_as = "passed the dead letter",
                .plant = {"outbox_dead_letters WHERE source = ? AND route = ? AND NOT unmatched",
                          "outbox_dead_letters WHERE source = ? AND route = ? AND unmatched"},
                .from = 80},
        Planted{.name = "ALedgerKeepsTheNameOfARouteThatIsRenamed",
                .noticed_as = "out of order",
                .plant = {"UPDATE outbox_ledger_segments SET route = ?3",
                          "UPDATE outbox_ledger_segments SET route = coalesce(route, ?3)"},
                .kind = "route_changes",
                .from = 70},
        Planted{.name = "WhatIsDueIsMovedAgainAndAgain",
                .noticed_as = "stays",
                .plant = {"DELETE FROM outbox_scheduled WHERE schedule_id = ?1",
                          "DELETE FROM outbox_scheduled WHERE schedule_id = 1 - ?1"},
                .kind = "delays"}),
    [](const auto& planted) { return std::string(planted.param.name); });

}  // namespace
}  // namespace outbox::simulation
