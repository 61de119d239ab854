// What is read of the table, also where it begins anew or is slow.
#include <algorithm>

#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

TEST_P(DispatcherTest, ATableThatBeginsAnewLosesNothingOfWhatIsWrittenThen) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto&, const auto& delivery) -> std::optional<Answer> {
        if (delivery.event_id.starts_with("old")) return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write({{.id = "old0"}, {.id = "old1"}}), "");
    ASSERT_TRUE(rig.turn_until("one is under way", [&] { return !rig.receivers.hanging.empty(); }));
    db_->exec(GetParam() == Backend::kPostgres
                  ? "TRUNCATE outbox_webhook_deliveries RESTART IDENTITY"
                  : "DELETE FROM outbox_webhook_deliveries; DELETE FROM sqlite_sequence WHERE "
                    "name = 'outbox_webhook_deliveries'");
    ASSERT_EQ(rig.write({{.id = "new0", .key = "a"}, {.id = "new1", .key = "a"}, {.id = "new2"}}),
              "");
    rig.receivers.answer = [](const auto&, const auto&) { return ScriptedReceivers::done(); };
    rig.receivers.end_hanging();
    ASSERT_TRUE(rig.turn_until(
        "the new ones come",
        [&] {
            const auto taken = rig.receivers.taken("one");
            return std::count(taken.begin(), taken.end(), "new0") > 0 &&
                   std::count(taken.begin(), taken.end(), "new1") > 0 &&
                   std::count(taken.begin(), taken.end(), "new2") > 0 && left() == 0;
        },
        200));
}

// Of a key, also while positions that were read or are under way are given again.
TEST_P(DispatcherTest, ATableThatBeginsAnewKeepsTheOrderOfItsNewEvents) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    bool hangs = false;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        if (hangs) return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 60, 1)), "");
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }));
    for (const int held : {0, 40}) {  // in memory when the table begins anew
        if (held > 0) {
            hangs = true;
            Events old;
            for (int i = 0; i < held; ++i) {
                old.push_back({.id = "o" + std::to_string(i), .key = "old"});
            }
            ASSERT_EQ(rig.write(old), "");
            ASSERT_TRUE(rig.turn_until("some are under way",
                                       [&] { return !rig.receivers.hanging.empty(); }));
            rig.receivers.requests.clear();
            hangs = false;
        }
        // With one that is in memory, where some are.
        const auto first = std::max<long long>(
            1, db_->number("SELECT coalesce(min(position), 0) FROM outbox_webhook_deliveries"));
        db_->exec(GetParam() == Backend::kPostgres
                      ? "TRUNCATE outbox_webhook_deliveries; ALTER TABLE outbox_webhook_deliveries "
                        "ALTER COLUMN position RESTART WITH " +
                            std::to_string(first)
                      : "DELETE FROM outbox_webhook_deliveries; UPDATE sqlite_sequence SET seq = " +
                            std::to_string(first - 1) +
                            " WHERE name = 'outbox_webhook_deliveries'");
        // More than there were, so that some lie behind what was read.
        const int from = 1'000 * (held + 1);
        ASSERT_EQ(rig.write(keyed(from, from + 150, 1)), "");
        ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }));
        ASSERT_TRUE(in_order(rig.receivers, "one")) << held;
    }
}

// 5,000 of a key that waits, and others that come meanwhile.
TEST_P(DispatcherTest, WhatWaitsForAFailedEventIsNotReadAgainAndAgain) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto&, const auto& delivery) -> std::optional<Answer> {
        return delivery.event_id == "e0" ? ScriptedReceivers::refused() : ScriptedReceivers::done();
    };
    Events events;
    for (int i = 0; i < 5'000; ++i) events.push_back({.id = "e" + std::to_string(i), .key = "hot"});
    events.push_back({.id = "e5000", .key = "other"});
    ASSERT_EQ(rig.write(events), "");
    ASSERT_TRUE(rig.turn_until("the other comes", [&] { return left() == 5'000; }));
    rig.turns(30, 1'000);  // until it is looked back behind all of them
    const auto first = db_->number("SELECT min(position) FROM outbox_webhook_deliveries");
    rig.outlet().asked.clear();
    for (int i = 5'001; i < 5'100; ++i) {
        ASSERT_EQ(rig.write({{.id = "e" + std::to_string(i), .key = "other"}}), "");
        rig.turns(10, 100);
    }
    EXPECT_EQ(left(), 5'000);
    ASSERT_FALSE(rig.outlet().asked.empty());
    EXPECT_GE(*std::min_element(rig.outlet().asked.begin(), rig.outlet().asked.end()),
              first + 4'990);
}

TEST_P(DispatcherTest, AReadLooksAtABoundedPartOfWhatWaitsForAFailedEvent) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    db_->exec(
        "WITH RECURSIVE s(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM s WHERE i < 6000) INSERT "
        "INTO outbox_webhook_deliveries (endpoint_id, event_id, key, attempts, next_attempt_at) "
        "SELECT 'one', 'e' || i, CASE WHEN i < 6000 THEN 'hot' END, CASE WHEN i = 1 THEN 1 ELSE 0 "
        "END, NULL FROM s ORDER BY i");
    const auto outlet = open_outlet(url_);
    webhook::Slice slice;
    slice.endpoint_id = "one";
    const auto endpoints = outlet->endpoints().value_or_throw();
    slice.created_at_us = endpoints.at(0).created_at_us;
    slice.revision = endpoints.at(0).revision;
    slice.max_rows = 32;
    std::vector<webhook::Delivery> found;
    int reads = 0;
    while (found.empty()) {
        ASSERT_LT(++reads, 10);
        const auto read = outlet->fetch({&slice, 1}, {}, {1'000'000, 1'000'000}, found);
        ASSERT_TRUE(read.ok()) << Rig::text(read.status());
        const auto looked = read->looked.at(0);
        const auto rows = db_->number(
            "SELECT count(*) FROM outbox_webhook_deliveries WHERE attempts = 0 AND position > " +
            std::to_string(slice.after) + " AND position <= " + std::to_string(looked.position));
        EXPECT_LE(rows, static_cast<long long>(webhook::kMaxLookedAt));
        EXPECT_GE(rows, found.empty() ? static_cast<long long>(webhook::kMaxLookedAt) - 1 : 1);
        EXPECT_TRUE(looked.more || !found.empty());
        slice.after = looked.position;
    }
    EXPECT_EQ(found.at(0).event_id, "e6000");
    EXPECT_EQ(reads, 3);
}

// Whoever changed it may have changed which deliveries are fresh.
TEST_P(DispatcherTest, NothingIsReadForAnEndpointThatIsNotAsItWasKnown) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    db_->exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, attempts, next_attempt_at) "
        "SELECT 'one', 'failed', 1, created_at FROM outbox_webhook_endpoints");
    db_->exec("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('one', 'e')");
    const auto outlet = open_outlet(url_);
    const auto read = [&](const webhook::Endpoint& as) {
        webhook::Slice slice;
        slice.endpoint_id = as.id;
        slice.created_at_us = as.created_at_us;
        slice.revision = as.revision;
        slice.max_rows = 32;
        std::vector<webhook::Delivery> found;
        const auto now_us = as.created_at_us + webhook::kSecondUs;
        const auto done =
            outlet->fetch({&slice, 1}, {now_us, 2 * now_us}, {1'000'000, 1'000'000}, found);
        EXPECT_TRUE(done.ok()) << Rig::text(done.status());
        return found.size();
    };
    webhook::Endpoint known = outlet->endpoints().value_or_throw().at(0);
    EXPECT_EQ(read(known), 2U);
    ASSERT_TRUE(open_registry(url_)->disable("one", "changed").value_or_throw());
    EXPECT_EQ(read(known), 0U);
    known = outlet->endpoints().value_or_throw().at(0);
    EXPECT_EQ(read(known), 2U);
    known.created_at_us -= webhook::kSecondUs;  // another that had its id
    EXPECT_EQ(read(known), 0U);
}

TEST_P(DispatcherTest, WhatIsCommittedLateBehindWhatWasReadComesBeforeALaterOneOfItsKey) {
    if (GetParam() == Backend::kSqlite) GTEST_SKIP() << "one writer at a time";
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    ASSERT_TRUE(rig.turn_until("it comes", [&] { return left() == 0; }));
    const auto late = database_->connect();
    late->exec("BEGIN");
    late->exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, key) VALUES ('one', "
        "'late', 'k')");
    ASSERT_EQ(rig.write(keyed(1, 20, 1)), "");
    ASSERT_TRUE(rig.turn_until("the others come", [&] { return left() == 0; }));
    rig.turns(7, 1'000);
    late->exec("COMMIT");
    ASSERT_EQ(rig.write({{.id = "later", .key = "k"}}), "");
    ASSERT_TRUE(rig.turn_until("both come", [&] { return left() == 0; }));
    const auto taken = rig.receivers.taken("one");
    ASSERT_EQ(taken.size(), 22U);
    EXPECT_EQ(taken[20], "late");
    EXPECT_EQ(taken[21], "later");
}

// The snapshot of a read ends behind the last transaction that ended: this one is not in it.
TEST_P(DispatcherTest, WhatTheYoungestTransactionCommitsLateComesBeforeALaterOneOfItsKey) {
    if (GetParam() == Backend::kSqlite) GTEST_SKIP() << "one writer at a time";
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    ASSERT_TRUE(rig.turn_until("it comes", [&] { return left() == 0; }));
    const auto early = database_->connect();
    const auto late = database_->connect();
    for (const auto& writer : {early.get(), late.get()}) {
        writer->exec("BEGIN; SELECT pg_current_xact_id()");
    }
    const auto insert = [](const std::string& id) {
        return "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, key) VALUES ('one', "
               "'" +
               id + "', 'k')";
    };
    late->exec(insert("late"));
    early->exec(insert("early") + "; COMMIT");
    ASSERT_TRUE(rig.turn_until("the early one comes", [&] { return left() == 0; }));
    rig.turns(7, 1'000);
    late->exec("COMMIT");
    ASSERT_EQ(rig.write({{.id = "later", .key = "k"}}), "");
    ASSERT_TRUE(rig.turn_until("both come", [&] { return left() == 0; }));
    EXPECT_EQ(rig.receivers.taken("one"),
              (std::vector<std::string>{"e0", "early", "late", "later"}));
}

// Another server that lacks the last deliveries gives their positions again: it has the same
// sequence, as a standby that is promoted.
TEST_P(DispatcherTest, AnotherServerThatLacksTheLastDeliveriesIsReadFromTheBeginning) {
    if (GetParam() == Backend::kSqlite) GTEST_SKIP() << "its file tells";
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    bool hangs = false;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        if (hangs) return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 20, 1)), "");
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }));
    hangs = true;
    ASSERT_EQ(rig.write({{.id = "lost", .key = "other"}}), "");
    ASSERT_TRUE(rig.turn_until("it is under way", [&] { return !rig.receivers.hanging.empty(); }));
    hangs = false;
    db_->exec("DELETE FROM outbox_webhook_deliveries");
    db_->exec("SELECT setval(pg_get_serial_sequence('outbox_webhook_deliveries', 'position'), 4)");
    db_->exec(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = "
        "current_database() AND pid <> pg_backend_pid()");
    ASSERT_TRUE(rig.turn_until(
        "the route writes again, behind what was read",
        [&] { return rig.write(keyed(100, 110, 1)).empty(); }, 250));
    rig.turns(4, 500);
    ASSERT_EQ(rig.write(keyed(110, 130, 1)), "");  // one in the place of the lost one
    rig.turns(4, 500);
    ASSERT_EQ(rig.write(keyed(130, 140, 1)), "");
    rig.turns(4, 500);
    rig.receivers.end_hanging();
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }));
    EXPECT_TRUE(in_order(rig.receivers, "one"));
    EXPECT_FALSE(rig.said("webhooks_table_anew"));
}

// 200 KB a second, and an event of as much for each of 80 endpoints.
TEST_P(DispatcherTest, ReadsAreAsSmallAsASlowDatabaseNeeds) {
    constexpr int kEndpoints = 80;
    constexpr std::size_t kBytes = 200'000;
    for (int i = 0; i < kEndpoints; ++i) {
        ASSERT_EQ(add_endpoint(url_, "p" + std::to_string(i)), "");
    }
    Rig rig(url_);
    std::vector<std::size_t> reads;
    rig.outlet().has_read = [&](const auto& deliveries) {
        std::size_t bytes = 0;
        for (const webhook::Delivery& delivery : deliveries) bytes += delivery.payload.size();
        if (bytes > 0) reads.push_back(bytes);
        rig.clock.advance_ms(static_cast<std::int64_t>(bytes * 1'000 / kBytes));
    };
    ASSERT_EQ(rig.write({{.id = "e0", .payload = std::string(kBytes, 'x')}}), "");
    const std::int64_t since_us = rig.clock.boot_us();
    ASSERT_TRUE(rig.turn_until("all get it", [&] { return left() == 0; }));
    EXPECT_LT(rig.clock.boot_us() - since_us, (kEndpoints + 10) * 1'000'000) << "each read once";
    EXPECT_LE(reads.front(), (std::size_t{1} << 20) + kBytes);
    EXPECT_EQ(*std::max_element(reads.begin() + 1, reads.end()), kBytes);
    EXPECT_EQ(db_->number("SELECT max(epoch) FROM outbox_webhook_lease"), 1);
}

TEST_P(DispatcherTest, AReadLongerThanTheLeaseIsKeptIfNobodyTookTheLease) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.outlet().has_read = [&](const auto& deliveries) {
        if (!deliveries.empty()) rig.clock.advance_ms(6'000);
    };
    ASSERT_EQ(rig.write(keyed(0, 3, 1)), "");
    rig.turns(400);
    EXPECT_EQ(rig.receivers.requests.size(), 3U) << rig.remarks();
    // Another takes it meanwhile: what was read is its to send.
    rig.outlet().has_read = [&](const auto& deliveries) {
        if (deliveries.empty()) return;
        rig.clock.advance_ms(6'000);
        db_->exec("UPDATE outbox_webhook_lease SET epoch = epoch + 1, owner = 'another'");
    };
    ASSERT_EQ(rig.write(keyed(3, 6, 1)), "");
    rig.turns(10);
    EXPECT_EQ(rig.receivers.requests.size(), 3U);
}

// 70 that hang, with an event for each that is a hundredth of the memory.
TEST_P(DispatcherTest, EndpointsThatHangFromTheStartTakeNoMoreThanHalfOfTheMemory) {
    constexpr std::size_t kBytes = 10'000;
    constexpr std::int64_t kTimeoutUs = 20'000'000;
    webhook::DispatchOptions options;
    options.max_bytes = 64 * kBytes;
    ASSERT_EQ(add_endpoint(url_, "well"), "");
    Rig rig(url_, options);
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (endpoint.id != "well") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    ASSERT_TRUE(rig.turn_until("it is known", [&] { return left() == 0; }));
    for (int i = 0; i < 70; ++i) {
        ASSERT_EQ(add_endpoint(url_, "hang" + std::to_string(i)), "");
    }
    rig.turns(120);
    Events events;
    for (int i = 1; i < 5; ++i) {
        events.push_back({.id = "e" + std::to_string(i), .payload = std::string(kBytes, 'x')});
    }
    ASSERT_EQ(rig.write(events), "");
    std::int64_t timeout_us = rig.clock.boot_us() + kTimeoutUs;
    for (int i = 5; i < 60; ++i) {
        rig.turns(20, 50);
        EXPECT_LE(rig.receivers.hanging.size(), 33U) << "half of the memory";
        if (i == 5) EXPECT_GE(rig.receivers.hanging.size(), 30U);
        if (rig.clock.boot_us() > timeout_us) {
            rig.receivers.end_hanging();
            timeout_us += kTimeoutUs;
        }
        ASSERT_EQ(left("well"), 0) << "e" << i - 1 << " was a second ago";
        ASSERT_EQ(rig.write(keyed(i, i + 1, 1)), "");
    }
}

TEST_P(DispatcherTest, WhatAReceiverSaysCannotStopTheRecord) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto&, const auto& delivery) -> std::optional<Answer> {
        return delivery.event_id == "e0" ? ScriptedReceivers::refused() : ScriptedReceivers::done();
    };
    rig.receivers.text = std::string("\xff\0\xc3", 3) + std::string(499, 'x') + "\xc3\xa9";
    ASSERT_EQ(rig.write(keyed(0, 4, 4)), "");
    ASSERT_TRUE(rig.turn_until("the others come", [&] { return left() == 1; }));
    EXPECT_FALSE(rig.said("webhooks_database_away"));
}

}  // namespace
}  // namespace outbox::test
