// Queues that are full, and what their endpoints miss.
#include <gmock/gmock.h>

#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

TEST_P(DispatcherTest, AFullQueueMissesEventsAndSaysSo) {
    ASSERT_EQ(add_endpoint(url_, "full"), "");
    ASSERT_EQ(add_endpoint(url_, "other"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto&, const auto&) { return std::optional<Answer>(); };
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    rig.turns(20);
    rig.fill("full", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(1, 11, 1)), "");
    EXPECT_EQ(left("full"), 1);
    EXPECT_EQ(left("other"), 11);
    ASSERT_TRUE(rig.turn_until(
        "it is told",
        [&] {
            return db_->value(
                       "SELECT missed_total FROM outbox_webhook_endpoints WHERE endpoint_id = "
                       "'full'") == "10";
        },
        100));
    rig.turn();
    EXPECT_TRUE(rig.said("webhook_queue_full"));
    EXPECT_EQ(rig.fan_out().missed_total(), 10);
}

// What it missed would otherwise, read again after a crash, find room and stand behind later
// events.
TEST_P(DispatcherTest, AQueueThatWasFullTakesNothingUntilWhatItMissedIsRecorded) {
    ASSERT_EQ(add_endpoint(url_, "full"), "");
    ASSERT_EQ(add_endpoint(url_, "other"), "");
    Rig rig(url_);
    rig.records = false;
    const auto rows_of_full = [&](std::int64_t rows) { rig.fill("full", rows); };
    rows_of_full(webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    rows_of_full(webhook::kMaxQueuePerEndpoint - 1'999);
    ASSERT_EQ(rig.write(keyed(1, 2, 1)), "") << "with little room nobody waits";
    EXPECT_EQ(left("full"), 0);
    rows_of_full(webhook::kMaxQueuePerEndpoint - 2'000);
    EXPECT_EQ(rig.write(keyed(2, 3, 1)), "it waits");
    EXPECT_EQ(rig.write(keyed(2, 3, 1)), "it waits");
    EXPECT_EQ(left("other"), 2);
    rig.fan_out().all_recorded();
    ASSERT_EQ(rig.write(keyed(2, 3, 1)), "");
    EXPECT_EQ(left("full"), 1);
    // Also where the endpoints are read anew.
    rows_of_full(webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(3, 5, 1)), "");
    rig.clock.advance_ms(60'000);
    rows_of_full(webhook::kMaxQueuePerEndpoint - 1);
    ASSERT_EQ(rig.write(keyed(5, 6, 1)), "");
    EXPECT_EQ(left("full"), 1);
    EXPECT_EQ(rig.fan_out().missed_total(), 5);
    // However long that takes.
    rows_of_full(0);
    EXPECT_EQ(rig.write(keyed(6, 7, 1)), "it waits");
    rig.clock.advance_ms(600'000);
    EXPECT_EQ(rig.write(keyed(6, 7, 1)), "it waits");
    rig.fan_out().all_recorded();
    ASSERT_EQ(rig.write(keyed(6, 7, 1)), "");
    EXPECT_EQ(left("full"), 2);
}

TEST_P(DispatcherTest, WhatIsThereAlreadyTakesNoPlaceInAQueue) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    ASSERT_EQ(add_endpoint(url_, "full"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    for (const char* endpoint : {"one", "full"}) {
        rig.fill(endpoint, webhook::kMaxQueuePerEndpoint);
        rig.queues.count({{endpoint, webhook::kMaxQueuePerEndpoint - 10, 0}});
    }
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    ASSERT_EQ(rig.write(keyed(10, 20, 1)), "");
    EXPECT_EQ(left(), 40);
    EXPECT_EQ(rig.fan_out().missed_total(), 0);
    // Also beside some that are missed.
    rig.queues.count({{"one", webhook::kMaxQueuePerEndpoint - 10, 0}});
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    ASSERT_EQ(rig.write(keyed(20, 30, 1)), "");
    EXPECT_EQ(left("one"), 30);
    EXPECT_EQ(left("full"), 20);
}

// Whoever writes counts, whether it delivers or not, and what comes again after an error once.
TEST_P(DispatcherTest, WhatAFullQueueMissesIsCountedOnceByWhoWrites) {
    ASSERT_EQ(add_endpoint(url_, "full"), "");
    ASSERT_EQ(add_endpoint(url_, "other"), "");
    Rig leads(url_, with_a_long_lease());
    ASSERT_EQ(leads.write({{.id = "x"}}), "");
    ASSERT_TRUE(leads.turn_until("it delivers", [&] { return left() == 0; }));
    Rig rig(url_);
    rig.turns(5);
    ASSERT_TRUE(rig.said("webhooks_standby"));
    rig.fill("full", webhook::kMaxQueuePerEndpoint);
    // An event that the database does not take.
    Events events = keyed(0, 10, 1);
    events.push_back({.id = std::string(300, 'x')});
    EXPECT_NE(rig.write(events), "");
    events.pop_back();
    ASSERT_EQ(rig.write(events), "");
    EXPECT_EQ(missed("full"), 10);
    EXPECT_EQ(missed("other"), 0);
    EXPECT_EQ(rig.fan_out().missed_total(), 10);
    rig.turns(10, 100);
    EXPECT_EQ(rig.times_said("webhook_queue_full"), 1U);
    // While it goes on there is a line a minute, which says how many.
    for (int i = 10; i < 130; ++i) {
        rig.fill("full", webhook::kMaxQueuePerEndpoint);
        ASSERT_EQ(rig.write(keyed(i, i + 1, 1)), "");
        rig.turn(1'000);
    }
    rig.turns(2, 70'000);
    EXPECT_EQ(missed("full"), 130);
    EXPECT_EQ(rig.sum_said("webhook_queue_full", "missed"), 130);
    EXPECT_LE(rig.times_said("webhook_queue_full"), 4U);
    EXPECT_EQ(leads.times_said("webhook_queue_full"), 0U);
    // At the end nothing waits for the next line.
    rig.fill("full", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(130, 140, 1)), "");
    EXPECT_EQ(rig.fan_out().take_remarks().size(), 1U);
    ASSERT_EQ(rig.write(keyed(140, 147, 1)), "");
    EXPECT_THAT(rig.fan_out().take_remarks(), testing::IsEmpty());
    const auto told = rig.fan_out().take_remarks(true);
    ASSERT_EQ(told.size(), 1U);
    EXPECT_EQ(told[0].fields[1], std::pair(std::string("missed"), std::string("7")));
}

// Its rows go with it, and what it missed is nobody's.
TEST_P(DispatcherTest, AnEndpointMadeAnewHasMissedNothing) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.fill("one", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    rig.turn();
    EXPECT_EQ(rig.sum_said("webhook_queue_full", "missed"), 10);
    rig.fill("one", webhook::kMaxQueuePerEndpoint);
    rig.inlet().count_fails = {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, {}, "no"};
    ASSERT_EQ(rig.write(keyed(10, 20, 1)), "");
    EXPECT_EQ(missed("one"), 10);
    EXPECT_EQ(rig.fan_out().missed_total(), 20);
    ASSERT_TRUE(open_registry(url_)->remove("one").value_or_throw().has_value());
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    // A time of SQLite has milliseconds.
    if (GetParam() == Backend::kSqlite) {
        db_->exec("UPDATE outbox_webhook_endpoints SET created_at = created_at + 1000");
    }
    rig.inlet().count_fails = {};
    rig.fan_out().count_missed();
    EXPECT_EQ(missed("one"), 0) << "before it is known that it is another";
    rig.fill("one", 0);
    ASSERT_EQ(rig.write(keyed(20, 30, 1)), "");
    EXPECT_EQ(left("one"), 10);
    EXPECT_EQ(missed("one"), 0);
    rig.turn(70'000);
    EXPECT_EQ(rig.sum_said("webhook_queue_full", "missed"), 10) << "of the former one";
}

// Relays of two outboxes write into one table, and one of them delivers.
TEST_P(DispatcherTest, AQueueThatAnotherRelayEmptiesIsNotTakenForFull) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig first(url_, with_a_long_lease());
    ASSERT_EQ(first.write(keyed(0, 3, 1)), "");
    ASSERT_TRUE(first.turn_until("it delivers", [&] { return left() == 0; }));
    Rig second(url_);
    ASSERT_EQ(second.write(keyed(3, 6, 1)), "");
    second.turns(50);
    ASSERT_TRUE(second.said("webhooks_standby"));
    // As many as it may have written since.
    second.queues.count({{"one", webhook::kMaxQueuePerEndpoint, 0}});
    ASSERT_TRUE(first.turn_until("they come", [&] { return left() == 0; }));
    ASSERT_EQ(second.write(keyed(6, 9, 1)), "");
    EXPECT_EQ(left(), 3);
    EXPECT_EQ(second.inlet().looks, 2) << "the first was at its start";
    ASSERT_EQ(second.write(keyed(9, 12, 1)), "");
    EXPECT_EQ(second.inlet().looks, 2) << "what was seen is known now";
}

TEST_P(DispatcherTest, WhatWasAnsweredIsNotSentAgainBecauseTheDatabaseWasAwayForLong) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 20, 20)), "");
    ASSERT_TRUE(rig.turn_until("some are sent", [&] { return !rig.receivers.requests.empty(); }));
    ASSERT_GT(left(), 0);
    rig.outlet().away = {ErrorCode::kQueryFailed, Advice::kRetryDestination, {}, "away"};
    rig.turns(100, 100);
    EXPECT_FALSE(rig.stats().dispatching);
    rig.outlet().away = {};
    ASSERT_TRUE(rig.turn_until("all is recorded", [&] { return left() == 0; }));
    EXPECT_EQ(rig.receivers.requests.size(), 20U);
    EXPECT_EQ(rig.times_said("webhooks_dispatching"), 1U) << rig.remarks();
}

// Whoever starts knows nothing of it, and may start often.
TEST_P(DispatcherTest, AQueueThatIsFullAtTheStartIsFull) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    Rig rig(url_);
    rig.inlet().lengths["one"] = webhook::kMaxQueuePerEndpoint;
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    EXPECT_EQ(left("one"), 0);
    EXPECT_EQ(left("two"), 10);
    EXPECT_EQ(rig.fan_out().missed_total(), 10);
}

TEST_P(DispatcherTest, NobodyMissesAnEventBecauseItsQueueCannotBeLookedAt) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    Rig rig(url_);
    rig.inlet().look_fails = {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, {}, "no"};
    rig.queues.count({{"one", webhook::kMaxQueuePerEndpoint, 0}});
    for (int i = 0; i < 20; ++i) {
        ASSERT_EQ(rig.write(keyed(i, i + 1, 1)), "");
        rig.clock.advance_ms(50);
    }
    EXPECT_EQ(left("one"), 20);
    EXPECT_EQ(rig.inlet().looks, 4) << "one of each in half a second";
    // One that is full is looked at again, as another relay may empty it.
    rig.inlet().look_fails = {};
    rig.fill("one", webhook::kMaxQueuePerEndpoint);
    rig.inlet().looks = 0;
    for (int i = 20; i < 50; ++i) {
        rig.clock.advance_ms(50);
        ASSERT_EQ(rig.write(keyed(i, i + 1, 1)), "");
    }
    EXPECT_EQ(left("one"), 20);
    EXPECT_EQ(rig.inlet().looks, 4) << "three, and one of the other's that was never looked at";
    rig.inlet().lengths.clear();
    rig.clock.advance_ms(500);
    ASSERT_EQ(rig.write(keyed(50, 51, 1)), "");
    EXPECT_EQ(left("one"), 21);
    EXPECT_EQ(left("two"), 51);
}

// Endpoints that were given up leave full queues behind.
TEST_P(DispatcherTest, ACountThatTakesLongOrFailsDelaysNobody) {
    ASSERT_EQ(add_endpoint(url_, "abandoned"), "");
    ASSERT_EQ(add_endpoint(url_, "healthy"), "");
    ASSERT_TRUE(open_registry(url_)->disable("abandoned", "no more").value_or_throw());
    db_->exec(
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 12000) INSERT "
        "INTO outbox_webhook_deliveries (endpoint_id, event_id) SELECT 'abandoned', 'x' || i "
        "FROM s");
    Rig rig(url_);
    bool fails = false;
    rig.outlet().counts = [&](std::size_t rows) -> Status {
        rig.clock.advance_ms(static_cast<std::int64_t>(rows));  // 10 s for 10,000
        if (!fails) return {};
        return {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, {}, "statement timeout"};
    };
    int written = 0;
    std::int64_t longest_us = 0;
    const auto deliver = [&] {
        rig.fill("abandoned", webhook::kMaxQueuePerEndpoint);
        ASSERT_EQ(rig.write(keyed(written, written + 1, 1)), "");
        ++written;
        const std::int64_t since_us = rig.clock.boot_us();
        ASSERT_TRUE(rig.turn_until("it comes", [&] { return left("healthy") == 0; }));
        longest_us = std::max(longest_us, rig.clock.boot_us() - since_us);
        rig.turns(20, 25);
    };
    while (rig.stats().waiting < 12'000) deliver();
    EXPECT_LT(longest_us, 2'000'000);
    fails = true;
    for (int i = 0; i < 140; ++i) deliver();
    EXPECT_LT(longest_us, 2'000'000);
    EXPECT_TRUE(rig.said("webhooks_not_counted"));
    EXPECT_FALSE(rig.said("webhooks_database_away"));
    EXPECT_FALSE(rig.said("webhooks_lease_lost"));
    EXPECT_EQ(db_->number("SELECT max(epoch) FROM outbox_webhook_lease"), 1);
}

}  // namespace
}  // namespace outbox::test
