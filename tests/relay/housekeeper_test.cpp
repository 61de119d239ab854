// What an owner does beside the path of events, turn by turn.
#include "relay/housekeeper.h"

#include <algorithm>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>

#include "tests/relay/options.h"

namespace outbox::test {
namespace {

using namespace relay;

class ManualClock final : public core::Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override { return now_us; }
    [[nodiscard]] std::int64_t wall_us() const override { return now_us; }
    std::int64_t now_us = 1'000'000;
};

// Holds dead letters to be sent again, and counts what it is asked.
class Chores : public spi::Recorder {
  public:
    Result<spi::Beginning> begin(std::uint64_t, std::span<const spi::RouteName>) override {
        return spi::Beginning{};
    }
    Result<std::vector<std::string>> destinations(std::span<const std::string> routes) override {
        return std::vector<std::string>(routes.size());
    }
    Status record(const spi::RecordBatch&) override { return {}; }
    Result<spi::Removed> remove(std::uint64_t, std::span<const spi::Position>) override {
        return spi::Removed{};
    }
    Result<std::size_t> move_due(std::uint64_t, std::size_t) override { return std::size_t{0}; }
    Result<std::size_t> prune(std::chrono::seconds, std::size_t) override {
        ++prunes;
        if (prune_error) return *prune_error;
        return std::size_t{0};
    }
    Result<std::int64_t> prunable(std::chrono::seconds) override { return std::int64_t{0}; }
    Result<std::vector<spi::Delivery>> load_deliveries(std::string_view) override {
        return std::vector<spi::Delivery>{};
    }
    Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view, std::int64_t after,
                                                           std::size_t limit) override {
        ++looks;
        std::vector<spi::DeadLetter> out;
        for (auto it = letters.upper_bound(after);
             it != letters.end() && out.size() < std::min(limit, most_at_once); ++it) {
            out.emplace_back().dead_id = it->first;
        }
        return out;
    }
    Result<std::vector<spi::DeadKey>> load_dead_keys(std::string_view) override {
        ++key_looks;
        return std::vector<spi::DeadKey>{};
    }
    Status save_stats(std::uint64_t, std::span<const spi::SavedStats>) override { return {}; }
    Result<Stats> stats() override {
        if (stats_error) return *stats_error;
        return figures;
    }

    std::map<std::int64_t, int> letters;  // to how often each was handed over
    std::size_t most_at_once = SIZE_MAX;  // as though they were large
    std::optional<ErrorInfo> prune_error;
    std::optional<ErrorInfo> stats_error;
    Stats figures;
    std::size_t prunes = 0;
    std::size_t looks = 0;
    std::size_t key_looks = 0;
};

class HousekeeperTest : public testing::Test {
  protected:
    static constexpr std::int64_t kTurnUs = 20'000;

    void turn(std::int64_t pause_us = kTurnUs) {
        clock_.now_us += pause_us;
        ASSERT_TRUE(housekeeper_.turn().ok());
    }

    ManualClock clock_;
    Chores chores_;
    OutcomeQueue queue_{1};
    std::vector<Note> notes_;
    Notify notify_ = [this](const Note& note) { notes_.push_back(note); };
    std::vector<RouteSpec> routes_{1};
    RouteStats route_stats_;
    std::vector<RouteStats*> stats_{&route_stats_};
    RelayOptions options_ = usual_options();
    Housekeeper housekeeper_{{chores_, queue_, clock_, notify_}, routes_, stats_, options_, 1};
};

TEST_F(HousekeeperTest, PruningThatFailsIsToldOnceAndTriedLaterAndLater) {
    constexpr std::int64_t kDayUs = 86'400'000'000;
    chores_.prune_error = ErrorInfo{ErrorCode::kNoRights, Advice::kStop, "42501", "may not"};
    const std::int64_t until_us = clock_.now_us + kDayUs;
    while (clock_.now_us < until_us) turn(1'000'000);
    // After 1, 2, 4 ... 32 minutes, then hourly.
    EXPECT_LE(chores_.prunes, 32U);
    EXPECT_GE(chores_.prunes, 24U);
    ASSERT_EQ(notes_.size(), 1U);
    EXPECT_EQ(notes_[0].what, "prune_failed");
    EXPECT_EQ(notes_[0].level, Note::Level::kWarning);
    // The next failure, after one that passed, is news again.
    chores_.prune_error.reset();
    for (int i = 0; i < 61; ++i) turn(60'000'000);
    chores_.prune_error = ErrorInfo{ErrorCode::kNoRights, Advice::kStop, "42501", "may not"};
    for (int i = 0; i < 3; ++i) turn(60'000'000);
    EXPECT_EQ(notes_.size(), 2U);
}

TEST_F(HousekeeperTest, WhatTheDatabaseRefusesBesideEventsIsToldAndEndsNothing) {
    chores_.stats_error = ErrorInfo{ErrorCode::kQueryFailed, Advice::kStop, "22008", "no figure"};
    for (int i = 0; i < 10; ++i) turn(60'000'000);
    ASSERT_EQ(notes_.size(), 1U);
    EXPECT_EQ(notes_[0].what, "housekeeping_failed");
    chores_.stats_error = ErrorInfo{ErrorCode::kNoRights, Advice::kStop, "42501", "no right"};
    for (int i = 0; i < 10; ++i) turn(60'000'000);
    ASSERT_EQ(notes_.size(), 2U);
    // That the database is away or another's concerns the term.
    chores_.stats_error = ErrorInfo{ErrorCode::kConnectFailed, Advice::kRetryDestination, "", ""};
    clock_.now_us += 60'000'000;
    EXPECT_FALSE(housekeeper_.turn().ok());
}

TEST_F(HousekeeperTest, OfDelayedEventsThatTheTableRefusesItSaysThatTheyAreNotDelivered) {
    chores_.figures.due_refusal = "not this one";
    for (int i = 0; i < 3; ++i) turn(60'000'000);
    ASSERT_EQ(notes_.size(), 1U);
    EXPECT_EQ(notes_[0].what, "delayed_refused");
    EXPECT_EQ(notes_[0].fields[0].second, "not this one");
    EXPECT_NE(notes_[0].fields[1].second.find("are not delivered"), std::string::npos);
    chores_.figures.due_refusal.clear();
    turn(60'000'000);
    ASSERT_EQ(notes_.size(), 2U);
    EXPECT_EQ(notes_[1].what, "delayed_refused_no_more");
}

// Ten times as fast as a hundred a second, and each once.
TEST_F(HousekeeperTest, AHundredThousandDeadLettersAreHandedOverInHundredSecondsOfTurns) {
    constexpr std::int64_t kLetters = 100'000;
    for (std::int64_t id = 1; id <= kLetters; ++id) chores_.letters.emplace(id, 0);
    routes_[0].on_dead_letter = OnDeadLetter::kBlockKey;
    std::size_t turns = 0;
    std::size_t handed_over = 0;
    Feedback feedback;
    while (!chores_.letters.empty() && turns < 5'000) {
        ++turns;
        turn();
        if (!queue_.take_feedback(0, feedback)) continue;
        // The route delivers them at once.
        for (const spi::DeadLetter& letter : feedback.redeliver) {
            handed_over += chores_.letters.erase(letter.dead_id);
        }
        feedback = Feedback{};
    }
    EXPECT_EQ(handed_over, static_cast<std::size_t>(kLetters));
    EXPECT_LE(turns, 5'000U);
    EXPECT_LE(chores_.looks, 1'100U) << "a statement for each hundred";
    EXPECT_LE(chores_.key_looks, turns * kTurnUs / 1'000'000 + 2) << "once a second";
}

// A route that is slow, or down, holds no more than a bounded number of them.
TEST_F(HousekeeperTest, ARouteThatDeliversNoneIsHandedABoundedNumberOfDeadLetters) {
    for (std::int64_t id = 1; id <= 10'000; ++id) chores_.letters.emplace(id, 0);
    Feedback feedback;
    std::map<std::int64_t, int> held;
    for (int i = 0; i < 1'000; ++i) {
        turn();
        if (!queue_.take_feedback(0, feedback)) continue;
        for (const spi::DeadLetter& letter : feedback.redeliver) ++held[letter.dead_id];
        feedback = Feedback{};
        route_stats_.redelivering.store(static_cast<std::int64_t>(held.size()));
    }
    EXPECT_LE(held.size(), 500U);
}

TEST_F(HousekeeperTest, LettersBehindLargeOnesThatWaitAreHandedOver) {
    for (std::int64_t id = 1; id <= 10; ++id) chores_.letters.emplace(id, 0);
    chores_.most_at_once = 4;
    Feedback feedback;
    std::map<std::int64_t, int> offered;
    for (int i = 0; i < 500; ++i) {
        turn();
        if (!queue_.take_feedback(0, feedback)) continue;
        for (const spi::DeadLetter& letter : feedback.redeliver) ++offered[letter.dead_id];
        feedback = Feedback{};
    }
    ASSERT_EQ(offered.size(), 10U);
    for (const auto& [id, times] : offered) EXPECT_GE(times, 3) << id;
    EXPECT_LE(chores_.looks, 16U) << "once a second, and once more for each lap";
}

TEST_F(HousekeeperTest, LettersThatAThreadHasNotTakenYetAreNeitherLostNorLoadedAgain) {
    for (std::int64_t id = 1; id <= 250; ++id) chores_.letters.emplace(id, 0);
    Feedback feedback;
    std::size_t offered = 0;
    for (int i = 0; i < 3; ++i) {
        for (int j = 0; j < 100; ++j) turn();
        ASSERT_TRUE(queue_.take_feedback(0, feedback));
        for (const spi::DeadLetter& letter : feedback.redeliver) {
            EXPECT_EQ(letter.dead_id, static_cast<std::int64_t>(++offered));
        }
        feedback = Feedback{};
    }
    EXPECT_EQ(offered, 250U);
    EXPECT_EQ(chores_.looks, 3U);
}

// Of two routes: one got what no route took, and the other takes it by now.
class ALetterThatNoRouteTook : public testing::TestWithParam<std::size_t> {
  protected:
    static constexpr std::int64_t kUnmatched = 1;
    static constexpr std::int64_t kOwn = 2;

    // What the database has for them: a letter of the taker's own that stays, and a key of it.
    class TwoRoutes final : public Chores {
      public:
        Result<std::vector<spi::DeadLetter>> load_redeliveries(std::string_view route,
                                                               std::int64_t after,
                                                               std::size_t) override {
            std::vector<spi::DeadLetter> out;
            const std::int64_t id = route == "taker" ? kOwn : kUnmatched;
            if (id <= after) return out;
            spi::DeadLetter& letter = out.emplace_back();
            letter.dead_id = id;
            letter.unmatched = id == kUnmatched;
            spi::EventView event;
            event.event_type = "wanted";
            letter.event.add(event);
            return out;
        }
        Result<std::vector<spi::DeadKey>> load_dead_keys(std::string_view) override {
            return std::vector<spi::DeadKey>{{"", "k"}};
        }
    };
};

TEST_P(ALetterThatNoRouteTook, IsHandedOverBesideAnothersOwnLettersAndKeys) {
    const std::size_t taker = GetParam();
    std::vector<RouteSpec> routes(2);
    routes[taker].name = "taker";
    routes[taker].predicate.event_types = {"wanted"};
    routes[taker].on_dead_letter = OnDeadLetter::kBlockKey;
    routes[1 - taker].predicate.event_types = {"other"};
    ManualClock clock;
    TwoRoutes chores;
    OutcomeQueue queue(2);
    const Notify notify = [](const Note&) {};
    RouteStats of_first;
    RouteStats of_second;
    const std::vector<RouteStats*> stats{&of_first, &of_second};
    const RelayOptions options = usual_options();
    Housekeeper housekeeper({chores, queue, clock, notify}, routes, stats, options, 1);
    for (int i = 0; i < 3; ++i) {
        clock.now_us += 1'000'000;
        ASSERT_TRUE(housekeeper.turn().ok());
        Feedback feedback;
        ASSERT_TRUE(queue.take_feedback(taker, feedback));
        std::vector<std::int64_t> offered;
        for (const spi::DeadLetter& letter : feedback.redeliver) offered.push_back(letter.dead_id);
        EXPECT_THAT(offered, testing::UnorderedElementsAre(kUnmatched, kOwn)) << i;
        EXPECT_TRUE(feedback.dead_keys) << i;
    }
}
INSTANTIATE_TEST_SUITE_P(OfARoute, ALetterThatNoRouteTook, testing::Values(0, 1),
                         [](const auto& chosen) {
                             return chosen.param == 0 ? std::string("BehindTheTaker")
                                                      : std::string("BeforeTheTaker");
                         });

}  // namespace
}  // namespace outbox::test
