#include "verify/verify.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <map>
#include <optional>
#include <rapidcheck/gtest.h>
#include <string>
#include <vector>

namespace outbox::core {
namespace {

// What producers committed, and what each consumer received.
struct History {
    std::vector<JournalLine> produced;
    std::vector<std::vector<JournalLine>> received;
};

JournalLine line(const std::string& id, const std::string& key, std::int64_t n, bool applied) {
    JournalLine out;
    out.id = id;
    out.key = key;
    out.n = n;
    out.applied = applied;
    return out;
}

// Every consumer received everything in order, with repeats that were dropped.
History faultless_history() {
    History history;
    const int events = *rc::gen::inRange(1, 60);
    const int keys = *rc::gen::inRange(1, 6);
    std::map<std::string, std::int64_t> last_n;
    for (int i = 0; i < events; ++i) {
        const std::string key = "key-" + std::to_string(*rc::gen::inRange(0, keys));
        history.produced.push_back(line("id-" + std::to_string(i), key, last_n[key]++, false));
    }
    const int consumers = *rc::gen::inRange(1, 4);
    for (int c = 0; c < consumers; ++c) {
        std::vector<JournalLine> seen;
        for (const JournalLine& event : history.produced) {
            seen.push_back(event);
            seen.back().applied = true;
            if (*rc::gen::inRange(0, 4) == 0) {
                seen.push_back(seen[*rc::gen::inRange<std::size_t>(0, seen.size())]);
                seen.back().applied = false;
            }
        }
        history.received.push_back(std::move(seen));
    }
    return history;
}

struct Outcome {
    Verdict verdict;
    std::vector<VerifyFault> faults;
};

Outcome verify(const History& history, const std::vector<std::string>& dead = {}) {
    Verifier verifier;
    for (const JournalLine& event : history.produced) verifier.produced(event).or_throw();
    for (const std::string& id : dead) verifier.dead_letter(id);
    for (std::size_t c = 0; c < history.received.size(); ++c) {
        verifier.begin_received("consumer-" + std::to_string(c)).or_throw();
        for (const JournalLine& event : history.received[c]) verifier.received(event).or_throw();
    }
    Outcome out;
    out.verdict = verifier.finish().value_or_throw();
    out.faults = verifier.faults();
    return out;
}

std::size_t any_index(const std::vector<JournalLine>& lines) {
    return *rc::gen::inRange<std::size_t>(0, lines.size());
}

std::vector<JournalLine>& any_consumer(History& history) {
    return history.received[*rc::gen::inRange<std::size_t>(0, history.received.size())];
}

void remove_event(std::vector<JournalLine>& lines, const std::string& id) {
    std::erase_if(lines, [&](const JournalLine& seen) { return seen.id == id; });
}

RC_GTEST_PROP(Verify, FindsNothingInAFaultlessHistory, ()) {
    const History history = faultless_history();
    const Verdict verdict = verify(history).verdict;
    RC_ASSERT(verdict.ok());
    std::int64_t received = 0;
    for (const auto& lines : history.received) received += static_cast<std::int64_t>(lines.size());
    const auto produced = static_cast<std::int64_t>(history.produced.size());
    const auto consumers = static_cast<std::int64_t>(history.received.size());
    RC_ASSERT(verdict.produced == produced);
    RC_ASSERT(verdict.received == received);
    RC_ASSERT(verdict.repeats == received - produced * consumers);
    RC_ASSERT(verdict.uncertain == 0);
}

RC_GTEST_PROP(Verify, FindsAnEventThatOneConsumerNeverReceived, ()) {
    History history = faultless_history();
    const std::string victim = history.produced[any_index(history.produced)].id;
    remove_event(any_consumer(history), victim);
    const Outcome outcome = verify(history);
    RC_ASSERT(outcome.verdict.lost == 1);
    RC_ASSERT(outcome.verdict.ghosts == 0);
    RC_ASSERT(outcome.faults.size() == 1U);
    RC_ASSERT(outcome.faults[0].id == victim);
}

RC_GTEST_PROP(Verify, ADeadLetterExcusesOneConsumerOnly, ()) {
    History history = faultless_history();
    const std::string victim = history.produced[any_index(history.produced)].id;
    for (auto& lines : history.received) remove_event(lines, victim);
    const std::vector<std::string> one_each(history.received.size(), victim);
    const Verdict all_dead = verify(history, one_each).verdict;
    RC_ASSERT(all_dead.ok());
    RC_ASSERT(all_dead.dead_letters == static_cast<std::int64_t>(one_each.size()));
    RC_ASSERT(all_dead.excused == 1);
    if (one_each.size() > 1) RC_ASSERT(verify(history, {victim}).verdict.lost == 1);
}

TEST(Verify, ALetterOfAnEventThatNoRouteTookExcusesAllConsumersAndNeedsNoRemark) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    verifier.dead_letter("a", true);
    for (const auto* file : {"one", "two", "three"}) verifier.begin_received(file).or_throw();
    const Verdict verdict = verifier.finish().value_or_throw();
    EXPECT_EQ(verdict.lost, 0);
    EXPECT_EQ(verdict.excused, 0);
}

// The letter may be of another route than the one that feeds this consumer.
TEST(Verify, WhatALetterExcusesIsNamedWithTheConsumer) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    verifier.dead_letter("a");
    verifier.begin_received("here").or_throw();
    verifier.received(line("a", "k", 1, true)).or_throw();
    verifier.begin_received("not here").or_throw();
    const Verdict verdict = verifier.finish().value_or_throw();
    EXPECT_EQ(verdict.lost, 0);
    EXPECT_EQ(verdict.excused, 1);
    ASSERT_EQ(verifier.excused().size(), 1U);
    EXPECT_EQ(verifier.excused()[0].id, "a");
    EXPECT_EQ(verifier.excused()[0].consumer, "not here");
}

RC_GTEST_PROP(Verify, FindsAnEventThatNobodyCommitted, ()) {
    History history = faultless_history();
    auto& lines = any_consumer(history);
    lines.insert(lines.begin() + static_cast<std::ptrdiff_t>(any_index(lines)),
                 line("ghost", "no-such-key", 1, true));
    const Outcome outcome = verify(history);
    RC_ASSERT(outcome.verdict.ghosts == 1);
    RC_ASSERT(outcome.verdict.lost == 0);
    RC_ASSERT(outcome.faults[0].id == "ghost");
}

RC_GTEST_PROP(Verify, FindsAnEventThatWasRolledBack, ()) {
    History history = faultless_history();
    history.produced[any_index(history.produced)].state = JournalState::kRolledBack;
    RC_ASSERT(verify(history).verdict.ghosts == 1);
}

RC_GTEST_PROP(Verify, FindsAnEventThatArrivedAfterALaterOneOfItsKey, ()) {
    History history = faultless_history();
    const std::int64_t n = *rc::gen::inRange(0, 3);
    history.produced.push_back(line("early", "pair", n, false));
    history.produced.push_back(line("late", "pair", n + 1, false));
    for (auto& lines : history.received) {
        lines.push_back(line("early", "pair", n, true));
        lines.push_back(line("late", "pair", n + 1, true));
    }
    auto& lines = any_consumer(history);
    std::swap(lines[lines.size() - 1], lines[lines.size() - 2]);
    const Outcome outcome = verify(history);
    RC_ASSERT(outcome.verdict.out_of_order == 1);
    RC_ASSERT(outcome.faults[0].id == "early");
    RC_ASSERT(outcome.verdict.lost == 0);
}

RC_GTEST_PROP(Verify, FindsARepeatThatWasApplied, ()) {
    History history = faultless_history();
    auto& lines = any_consumer(history);
    const JournalLine again = lines[any_index(lines)];
    lines.push_back(again);
    lines.back().applied = true;
    const Verdict verdict = verify(history).verdict;
    RC_ASSERT(verdict.repeats_applied == 1);
    RC_ASSERT(verdict.lost == 0);
    RC_ASSERT(verdict.out_of_order == 0);
}

RC_GTEST_PROP(Verify, AnIntentWithoutItsEndMayArriveOrNot, ()) {
    History history = faultless_history();
    JournalLine& victim = history.produced[any_index(history.produced)];
    victim.state = JournalState::kIntent;
    RC_ASSERT(verify(history).verdict.ok());
    RC_ASSERT(verify(history).verdict.uncertain == 0);
    for (auto& lines : history.received) remove_event(lines, victim.id);
    RC_ASSERT(verify(history).verdict.ok());
    RC_ASSERT(verify(history).verdict.uncertain == 1);
}

// Any consumer that received it proves that it was committed.
RC_GTEST_PROP(Verify, AnIntentThatOneConsumerReceivedMustReachTheOthers, ()) {
    History history = faultless_history();
    history.received.push_back(history.received[0]);
    JournalLine& victim = history.produced[any_index(history.produced)];
    victim.state = JournalState::kIntent;
    remove_event(any_consumer(history), victim.id);
    const Verdict verdict = verify(history).verdict;
    RC_ASSERT(verdict.lost == 1);
    RC_ASSERT(verdict.uncertain == 0);
}

RC_GTEST_PROP(Verify, AnIntentFollowedByItsCommitMustArrive, ()) {
    History history = faultless_history();
    const JournalLine victim = history.produced[any_index(history.produced)];
    JournalLine intent = victim;
    intent.state = JournalState::kIntent;
    history.produced.insert(history.produced.begin(), intent);
    RC_ASSERT(verify(history).verdict.ok());
    RC_ASSERT(verify(history).verdict.uncertain == 0);
    remove_event(history.received[0], victim.id);
    RC_ASSERT(verify(history).verdict.lost == 1);
}

RC_GTEST_PROP(Verify, AConsumerThatDiedAfterItsIntentHasNotLostTheEvent, ()) {
    History history = faultless_history();
    auto& lines = any_consumer(history);
    const JournalLine victim = lines[any_index(lines)];
    const auto first = std::find_if(lines.begin(), lines.end(),
                                    [&](const JournalLine& seen) { return seen.id == victim.id; });
    first->state = JournalState::kIntent;
    RC_ASSERT(verify(history).verdict.ok());
}

RC_GTEST_PROP(Verify, FindsAnEventThatAConsumerOnlyEverDropped, ()) {
    History history = faultless_history();
    const std::string victim = history.produced[any_index(history.produced)].id;
    auto& lines = any_consumer(history);
    const auto drop = [&](std::optional<bool> applied) {
        for (JournalLine& seen : lines)
            if (seen.id == victim) seen.applied = applied;
    };
    drop(false);
    const Outcome outcome = verify(history);
    RC_ASSERT(outcome.verdict.never_applied == 1);
    RC_ASSERT(!outcome.verdict.ok());
    RC_ASSERT(outcome.verdict.lost == 0);
    RC_ASSERT(outcome.faults.size() == 1U);
    RC_ASSERT(outcome.faults[0].id == victim);
    // The consumer gave it up: its letter is what later repeats are repeats of.
    const Verdict dead = verify(history, {victim}).verdict;
    RC_ASSERT(dead.ok());
    RC_ASSERT(dead.excused == 1);
    // A consumer that does not say what it did has said nothing wrong.
    drop(std::nullopt);
    RC_ASSERT(verify(history).verdict.ok());
}

// One letter is for one consumer.
TEST(Verify, ALetterExcusesALossOrADropNotBoth) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    verifier.dead_letter("a");
    verifier.begin_received("lost").or_throw();
    verifier.begin_received("dropped").or_throw();
    verifier.received(line("a", "k", 1, false)).or_throw();
    const Verdict verdict = verifier.finish().value_or_throw();
    EXPECT_EQ(verdict.lost, 0);
    EXPECT_EQ(verdict.excused, 1);
    EXPECT_EQ(verdict.never_applied, 1);
    ASSERT_EQ(verifier.faults().size(), 1U);
    EXPECT_EQ(verifier.faults()[0].consumer, "dropped");
}

// The process died behind its commit: what came again was a repeat of that.
TEST(Verify, AnIntentMayBeWhatALaterRepeatIsOf) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    verifier.begin_received("here").or_throw();
    JournalLine intent = line("a", "k", 1, false);
    intent.applied.reset();
    intent.state = JournalState::kIntent;
    verifier.received(intent).or_throw();
    verifier.received(line("a", "k", 1, false)).or_throw();
    EXPECT_TRUE(verifier.finish().value_or_throw().ok());
}

TEST(Verify, WhatHasNoNIsInNoOrder) {
    Verifier verifier;
    JournalLine unsaid = line("b", "k", 0, true);
    unsaid.n.reset();
    for (const JournalLine& event : {line("a", "k", 5, true), unsaid})
        verifier.produced(event).or_throw();
    verifier.begin_received("here").or_throw();
    for (const JournalLine& event : {line("a", "k", 5, true), unsaid})
        verifier.received(event).or_throw();
    EXPECT_TRUE(verifier.finish().value_or_throw().ok());
}

TEST(Verify, LinesThatNameAConsumerAreJoinedAcrossFiles) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    verifier.produced(line("b", "k", 2, false)).or_throw();
    for (const auto* id : {"a", "b"}) {
        verifier.begin_received(std::string("file of ") + id).or_throw();
        JournalLine seen = line(id, "k", id[0] == 'a' ? 1 : 2, true);
        seen.consumer = "stock";
        verifier.received(seen).or_throw();
    }
    EXPECT_TRUE(verifier.finish().value_or_throw().ok());
}

// A member died behind its intent, which is not known to be applied; the attempts of the others
// came to nothing.
TEST(Verify, AnIntentThatWasRolledBackIsNoArrival) {
    const auto lost_of = [](const std::vector<JournalState>& states) {
        Verifier verifier;
        verifier.produced(line("a", "k", 1, false)).or_throw();
        verifier.produced(line("b", "k", 2, false)).or_throw();
        verifier.begin_received("here").or_throw();
        verifier.received(line("b", "k", 2, true)).or_throw();
        for (const JournalState state : states) {
            JournalLine seen = line("a", "k", 1, false);
            seen.applied.reset();
            seen.state = state;
            verifier.received(seen).or_throw();
        }
        return verifier.finish().value_or_throw().lost;
    };
    constexpr auto kIntent = JournalState::kIntent;
    constexpr auto kRolledBack = JournalState::kRolledBack;
    EXPECT_EQ(lost_of({kIntent}), 0);
    EXPECT_EQ(lost_of({kIntent, kRolledBack}), 1);
    EXPECT_EQ(lost_of({kIntent, kIntent, kRolledBack}), 0);
    EXPECT_EQ(lost_of({kIntent, kRolledBack, kIntent}), 0);
    EXPECT_EQ(lost_of({kIntent, kRolledBack, JournalState::kCommitted}), 0);
}

TEST(Verify, AnAttemptThatWasRolledBackIsNotWhatARepeatIsOf) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    verifier.begin_received("here").or_throw();
    JournalLine attempt = line("a", "k", 1, false);
    attempt.applied.reset();
    for (const JournalState state : {JournalState::kIntent, JournalState::kRolledBack}) {
        attempt.state = state;
        verifier.received(attempt).or_throw();
    }
    verifier.received(line("a", "k", 1, false)).or_throw();
    EXPECT_EQ(verifier.finish().value_or_throw().never_applied, 1);
}

// The event's first attempt came to nothing, and the next one of its key went before the second.
TEST(Verify, AnIntentThatWasRolledBackIsNoPlaceInTheOrder) {
    for (const bool rolled_back : {true, false}) {
        Verifier verifier;
        for (const char* id : {"a", "b"}) {
            verifier.produced(line(id, "k", id[0] - 'a', false)).or_throw();
        }
        verifier.begin_received("consumer").or_throw();
        const auto attempt = [&](const char* id, JournalState state) {
            JournalLine tried = line(id, "k", id[0] - 'a', true);
            tried.state = state;
            if (state != JournalState::kCommitted) tried.applied.reset();
            verifier.received(tried).or_throw();
        };
        attempt("a", JournalState::kIntent);
        if (rolled_back) attempt("a", JournalState::kRolledBack);
        for (const char* id : {"b", "a"}) {
            attempt(id, JournalState::kIntent);
            attempt(id, JournalState::kCommitted);
        }
        // Else it may have been applied then, by a member that died behind its commit.
        EXPECT_EQ(verifier.finish().value_or_throw().out_of_order, rolled_back ? 1 : 0);
    }
}

TEST(Verify, AConsumerWithIntentsAloneIsNamed) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    JournalLine intent = line("a", "k", 1, false);
    intent.applied.reset();
    intent.state = JournalState::kIntent;
    verifier.begin_received("intends").or_throw();
    verifier.received(intent).or_throw();
    verifier.begin_received("does").or_throw();
    verifier.received(intent).or_throw();
    verifier.received(line("a", "k", 1, true)).or_throw();
    EXPECT_TRUE(verifier.finish().value_or_throw().ok());
    EXPECT_EQ(verifier.with_intents_alone(), std::vector<std::string>{"intends"});
}

/// A member's line about event `id`, whose n is its last character.
JournalLine at(std::string id, std::optional<std::int64_t> at) {
    JournalLine seen = line(id, "k", id.back() - '0', true);
    seen.consumer = "stock";
    seen.at = at;
    return seen;
}

/// Two members' lines, in the order in which they are fed: file and line.
Outcome over_files(const std::vector<std::pair<std::string, JournalLine>>& received,
                   std::vector<UnprovedOrder>& unproved) {
    Verifier verifier;
    for (const char* id : {"e1", "e2", "e3"}) {
        verifier.produced(line(id, "k", id[1] - '0', false)).or_throw();
    }
    for (const auto& [file, seen] : received) {
        verifier.begin_received(file).or_throw();
        verifier.received(seen).or_throw();
    }
    Outcome out;
    out.verdict = verifier.finish().value_or_throw();
    out.faults = verifier.faults();
    unproved = verifier.unproved_orders();
    return out;
}

TEST(Verify, OrderBetweenTheJournalsOfAConsumersMembersIsJudgedByTheirTimes) {
    std::vector<UnprovedOrder> unproved;
    const Outcome good =
        over_files({{"A", at("e1", 1)}, {"B", at("e2", 2)}, {"A", at("e3", 3)}}, unproved);
    EXPECT_TRUE(good.verdict.ok());
    EXPECT_EQ(good.verdict.unordered_keys, 0);
    const Outcome bad =
        over_files({{"A", at("e1", 1)}, {"B", at("e3", 2)}, {"A", at("e2", 3)}}, unproved);
    EXPECT_EQ(bad.verdict.out_of_order, 1);
    ASSERT_EQ(bad.faults.size(), 1U);
    EXPECT_EQ(bad.faults[0].id, "e2");
}

TEST(Verify, OrderBetweenJournalsWithoutTimesIsNeitherProvedNorAFault) {
    std::vector<UnprovedOrder> unproved;
    for (const auto& times : {std::pair<std::optional<std::int64_t>, std::optional<std::int64_t>>{},
                              {1, std::nullopt},
                              {std::nullopt, 1},
                              {1, 1}}) {
        const Outcome outcome = over_files({{"A", at("e2", times.first)},
                                            {"A", at("e3", times.first)},
                                            {"B", at("e1", times.second)}},
                                           unproved);
        EXPECT_TRUE(outcome.verdict.ok());
        EXPECT_EQ(outcome.verdict.unordered_keys, 1);
        ASSERT_EQ(unproved.size(), 1U);
        EXPECT_EQ(unproved[0].why, UnprovedOrder::Why::kSeveralJournals);
        EXPECT_EQ(unproved[0].key, "k");
        EXPECT_EQ(unproved[0].consumer, "stock");
    }
    // In one of them it is known.
    EXPECT_EQ(over_files({{"A", at("e3", {})}, {"B", at("e2", {})}, {"B", at("e1", {})}}, unproved)
                  .verdict.out_of_order,
              1);
}

// It came first to another member, whose line of it is read later.
TEST(Verify, WhereARepeatWasDroppedSaysNothingOfTheOrder) {
    std::vector<UnprovedOrder> unproved;
    JournalLine repeat = at("e1", 4);
    repeat.applied = false;
    const Outcome outcome = over_files(
        {{"A", at("e2", 2)}, {"A", at("e3", 3)}, {"A", repeat}, {"B", at("e1", {})}}, unproved);
    EXPECT_TRUE(outcome.verdict.ok());
    EXPECT_EQ(outcome.verdict.unordered_keys, 1);
}

TEST(Verify, TwoEventsOfAKeyWithOneNAreInNoProvedOrder) {
    for (const bool swapped : {false, true}) {
        Verifier verifier;
        for (const char* id : {"a", "b"}) verifier.produced(line(id, "k", 1, false)).or_throw();
        verifier.produced(line("c", "other", 1, false)).or_throw();
        verifier.begin_received("here").or_throw();
        for (const char* id : {swapped ? "b" : "a", swapped ? "a" : "b"})
            verifier.received(line(id, "k", 1, true)).or_throw();
        verifier.received(line("c", "other", 1, true)).or_throw();
        const Verdict verdict = verifier.finish().value_or_throw();
        EXPECT_TRUE(verdict.ok());
        EXPECT_EQ(verdict.unordered_keys, 1);
        ASSERT_EQ(verifier.unproved_orders().size(), 1U);
        EXPECT_EQ(verifier.unproved_orders()[0].why, UnprovedOrder::Why::kSameN);
        EXPECT_EQ(verifier.unproved_orders()[0].key, "k");
    }
}

TEST(Verify, AnEmptyReceivedFileIsAConsumerThatLostEverything) {
    for (const bool empty_file_is_last : {true, false}) {
        Verifier verifier;
        verifier.produced(line("a", "k", 1, false)).or_throw();
        if (!empty_file_is_last) verifier.begin_received("empty").or_throw();
        verifier.begin_received("full").or_throw();
        verifier.received(line("a", "k", 1, true)).or_throw();
        if (empty_file_is_last) verifier.begin_received("empty").or_throw();
        EXPECT_EQ(verifier.finish().value_or_throw().lost, 1);
        ASSERT_EQ(verifier.faults().size(), 1U);
        EXPECT_EQ(verifier.faults()[0].consumer, "empty");
    }
}

TEST(Verify, WithoutAnyReceivedFileEveryCommittedEventIsLost) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    EXPECT_EQ(verifier.finish().value_or_throw().lost, 1);
}

TEST(Verify, RefusesAnEventProducedUnderTwoKeys) {
    Verifier verifier;
    verifier.produced(line("a", "k", 1, false)).or_throw();
    EXPECT_FALSE(verifier.produced(line("a", "other", 1, false)).ok());
    EXPECT_FALSE(verifier.produced(line("a", "k", 2, false)).ok());
}

TEST(Verify, KeepsEventsApartWhenThereAreVeryMany) {
    constexpr int kEvents = 200'000;
    const auto event = [](int i) {
        return line("id-" + std::to_string(i), std::to_string(i % 97), i + 1, true);
    };
    Verifier verifier;
    for (int i = 0; i < kEvents; ++i) verifier.produced(event(i)).or_throw();
    verifier.begin_received("all but one").or_throw();
    for (int i = 0; i < kEvents; ++i) {
        if (i != 123'456) verifier.received(event(i)).or_throw();
    }
    const Verdict verdict = verifier.finish().value_or_throw();
    EXPECT_EQ(verdict.produced, kEvents);
    EXPECT_EQ(verdict.lost, 1);
    EXPECT_EQ(verdict.ghosts + verdict.out_of_order + verdict.repeats_applied, 0);
    EXPECT_EQ(verifier.faults()[0].id, "id-123456");
}

TEST(JournalLine, ReadsAllFields) {
    const auto parsed = parse_journal_line(
        R"({"id":"i","key":"k","n":7,"applied":true,"consumer":"c","at":9,"state":"intent","more":[1]})");
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->id, "i");
    EXPECT_EQ(parsed->key, "k");
    EXPECT_EQ(parsed->n, 7);
    EXPECT_EQ(parsed->applied, true);
    EXPECT_EQ(parsed->consumer, "c");
    EXPECT_EQ(parsed->at, 9);
    EXPECT_EQ(parsed->state, JournalState::kIntent);
}

TEST(JournalLine, ALineWithOnlyAnIdIsACommittedEvent) {
    const auto parsed = parse_journal_line(R"({"id":"i"})");
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(parsed->state, JournalState::kCommitted);
    EXPECT_EQ(parsed->applied, std::nullopt);
    EXPECT_EQ(parsed->n, std::nullopt);
}

TEST(JournalLine, RefusesWhatIsNotAnEvent) {
    for (const char* text :
         {"", "{", "[]", "7", "{}", R"({"id":""})", R"({"id":7})", R"({"id":"i","n":"1"})",
          R"({"id":"i","at":-1})", R"({"id":"i","at":"12:00"})", R"({"id":"i","n":1.5})",
          R"({"id":"i","n":-1})", R"({"id":"i","n":18446744073709551615})",
          R"({"id":"i","applied":"yes"})", R"({"id":"i","key":[]})", R"({"id":"i","state":"x"})",
          "{\"id\":\"\xff\"}"}) {
        EXPECT_FALSE(parse_journal_line(text).ok()) << text;
    }
}

}  // namespace
}  // namespace outbox::core
