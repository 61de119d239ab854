#pragma once

#include <cstdint>
#include <cstdio>
#include <gtest/gtest.h>
#include <string>

#include "tests/simulation/receiving/history.h"
#include "tests/simulation/seeds.h"

namespace outbox::simulation {

inline void add(ReceivingVerdict& all, const ReceivingVerdict& one) {
    all.events += one.events;
    all.repeats += one.repeats;
    all.effects += one.effects;
    all.handovers += one.handovers;
    all.deliveries += one.deliveries;
    all.dead += one.dead;
    all.answers += one.answers;
    all.completed += one.completed;
    all.compensated += one.compensated;
    all.statements += one.statements;
    all.waits += one.waits;
    for (const auto& [what, times] : one.happened) all.happened[what] += times;
}

/// Runs the histories that `Seeds` chooses, each of which must keep the promises. `test`: the name
/// of the one that runs them, in `program`. `history_of` traces.
template <typename HistoryOf>
void every_history_keeps_the_promises(std::uint64_t few, std::uint64_t many,
                                      const std::string& program, const std::string& test,
                                      HistoryOf history_of) {
    const auto [one, goes_on, first, count] = Seeds(few, many);
    ReceivingVerdict all;
    for (std::uint64_t seed = first; seed < first + count; ++seed) {
        const ReceivingVerdict verdict = history_of(seed);
        if (goes_on && !verdict.violations.empty()) {
            ADD_FAILURE() << report(seed, verdict, program, test);
            continue;
        }
        ASSERT_TRUE(verdict.violations.empty()) << report(seed, verdict, program, test);
        add(all, verdict);
    }
    std::printf(
        "%llu histories: %zu events, %zu repeats, %zu effects by %zu handlers, %zu deliveries by "
        "queues, %zu dead letters; "
        "%zu answers; %zu and %zu sagas; %zu statements, %zu waits for locks\n",
        static_cast<unsigned long long>(count), all.events, all.repeats, all.effects, all.handovers,
        all.deliveries, all.dead, all.answers, all.completed, all.compensated, all.statements,
        all.waits);
    for (const auto& [what, times] : all.happened) std::printf("%6zu x %s\n", times, what.c_str());
    if (one || goes_on || count < many) return;
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

template <typename HistoryOf>
void one_seed_is_one_history(HistoryOf history_of) {
    const std::uint64_t first = number_from("OUTBOX_SIMULATION_FIRST_SEED", 8);
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

/// Some history from `from` on notices a guard that is gone. `history_of` takes it out.
template <typename HistoryOf>
void is_found(std::uint64_t from, HistoryOf history_of) {
    constexpr std::uint64_t kFoundWithin = 200;
    std::size_t planted = 0;
    for (std::uint64_t seed = from; seed < from + kFoundWithin; ++seed) {
        const ReceivingVerdict verdict = history_of(seed);
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

}  // namespace outbox::simulation
