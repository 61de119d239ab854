// How deliveries go out, and what one that fails or hangs takes from others.
#include <algorithm>

#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

TEST_P(DispatcherTest, EachEndpointGetsWhatItWantsAndTheRowsGo) {
    ASSERT_EQ(add_endpoint(url_, "all"), "");
    ASSERT_EQ(add_endpoint(url_, "orders", "order.*"), "");
    ASSERT_EQ(add_endpoint(url_, "acme", "*", "acme"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write({{.id = "e1", .type = "order.paid", .tenant = "acme"},
                         {.id = "e2", .type = "user.added", .tenant = "other"},
                         {.id = "e3", .type = "order.sent"}}),
              "");
    ASSERT_TRUE(rig.turn_until("all is delivered", [&] { return left() == 0; }));
    const auto sorted = [&](const std::string& endpoint) {
        auto events = rig.receivers.taken(endpoint);
        std::sort(events.begin(), events.end());
        return events;
    };
    EXPECT_EQ(sorted("all"), (std::vector<std::string>{"e1", "e2", "e3"}));
    EXPECT_EQ(sorted("orders"), (std::vector<std::string>{"e1", "e3"}));
    EXPECT_EQ(sorted("acme"), (std::vector<std::string>{"e1"}));
    rig.turns(200);
    EXPECT_EQ(db_->value("SELECT delivered_total FROM outbox_webhook_endpoints WHERE endpoint_id = "
                         "'all'"),
              "3");
}

TEST_P(DispatcherTest, ADeliveryThatWaitsIsNotWrittenTwice) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 10, 2)), "");
    ASSERT_EQ(rig.write(keyed(0, 12, 2)), "");
    EXPECT_EQ(left(), 12);
}

TEST_P(DispatcherTest, AnEventThatFailsDelaysItsKeyAlone) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    int failures = 3;
    rig.receivers.answer = [&](const auto&, const auto& delivery) -> std::optional<Answer> {
        if (delivery.event_id != "e1" || failures == 0) return ScriptedReceivers::done();
        --failures;
        return ScriptedReceivers::refused();
    };
    ASSERT_EQ(rig.write(keyed(0, 200, 5)), "");
    // All but those of its key come while it waits: no time passes that would have it go again.
    ASSERT_TRUE(rig.turn_until("the others come", [&] { return left() == 40; }, 1));
    EXPECT_EQ(failures, 2);
    EXPECT_EQ(rig.receivers.taken("one").size(), 160U);
    ASSERT_TRUE(rig.turn_until("its key goes on", [&] { return left() == 0; }, 500));
    EXPECT_EQ(failures, 0);
    EXPECT_EQ(rig.receivers.attempts("one", "e1"), 4U);
    EXPECT_TRUE(in_order(rig.receivers, "one"));
}

TEST_P(DispatcherTest, AnEventThatHangsDelaysItsKeyAlone) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    bool hangs = false;
    rig.receivers.answer = [&](const auto&, const auto& delivery) -> std::optional<Answer> {
        if (hangs && delivery.event_id == "e100") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    ASSERT_TRUE(rig.turn_until("it is known to answer", [&] { return left() == 0; }));
    hangs = true;
    // A long queue of its own key lies before the others.
    Events events;
    for (int i = 100; i < 300; ++i) events.push_back({.id = "e" + std::to_string(i), .key = "a"});
    for (int i = 300; i < 320; ++i) {
        events.push_back({.id = "e" + std::to_string(i), .key = "b" + std::to_string(i % 7)});
    }
    ASSERT_EQ(rig.write(events), "");
    ASSERT_TRUE(rig.turn_until(
        "the others come", [&] { return rig.receivers.taken("one").size() == 21; }, 1));
    EXPECT_EQ(rig.receivers.hanging.size(), 1U);
    hangs = false;
    rig.receivers.end_hanging();
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }, 100));
    EXPECT_TRUE(in_order(rig.receivers, "one"));
}

TEST_P(DispatcherTest, AnOutageCountsNoAttemptAndKeepsOrder) {
    ASSERT_EQ(add_endpoint(url_, "down"), "");
    ASSERT_EQ(add_endpoint(url_, "up"), "");
    Rig rig(url_);
    bool is_down = true;
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        return is_down && endpoint.id == "down" ? ScriptedReceivers::down()
                                                : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 300, 10)), "");
    ASSERT_TRUE(rig.turn_until("the other one gets all", [&] { return left("up") == 0; }));
    rig.turns(300, 1'000);
    EXPECT_EQ(left("down"), 300);
    EXPECT_EQ(db_->number("SELECT coalesce(max(attempts), 0) FROM outbox_webhook_deliveries"), 0);
    EXPECT_LT(rig.receivers.attempts("down"), 40U) << "it is asked with back-off";
    EXPECT_EQ(rig.stats().paused, 1);
    ASSERT_EQ(rig.write(keyed(300, 400, 10)), "");
    is_down = false;
    ASSERT_TRUE(rig.turn_until("it gets all", [&] { return left() == 0; }, 1'000));
    EXPECT_TRUE(in_order(rig.receivers, "down"));
    EXPECT_EQ(rig.receivers.taken("down").size(), 400U);
}

TEST_P(DispatcherTest, AnEndpointThatRefusesEverythingIsPausedAndOneThatComesBackGetsAllInOrder) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    bool fails = true;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return fails ? ScriptedReceivers::refused(404) : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 200, 40)), "");
    rig.turns(1'000, 20);
    EXPECT_EQ(rig.stats().paused, 1);
    EXPECT_LT(rig.receivers.attempts("one"), 30U);
    EXPECT_EQ(left(), 200);
    fails = false;
    ASSERT_TRUE(rig.turn_until("it gets all", [&] { return left() == 0; }, 1'000));
    EXPECT_TRUE(in_order(rig.receivers, "one"));
}

TEST_P(DispatcherTest, AHundredThatHangDelayNoneOfTheOtherNineHundred) {
    constexpr int kEndpoints = 1'000;
    constexpr int kHanging = 100;
    constexpr int kEvents = 8;
    static_cast<void>(open_inlet(url_)->prepare());
    std::string sql = "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) VALUES ";
    for (int i = 0; i < kEndpoints; ++i) {
        sql += (i == 0 ? "('" : ", ('") + std::string(i < kHanging ? "hang" : "well") +
               std::to_string(i) + "', 'https://example.com', 'sealed')";
    }
    db_->exec(sql);
    Rig rig(url_);
    bool hangs = false;  // they were well before
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (hangs && endpoint.id.starts_with("hang")) return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, kEvents, 8)), "");
    ASSERT_TRUE(rig.turn_until("all get the first", [&] { return left() == 0; }));
    hangs = true;
    ASSERT_EQ(rig.write(keyed(kEvents, 2 * kEvents, 8)), "");
    const auto well = [&] {
        return db_->number(
            "SELECT count(*) FROM outbox_webhook_deliveries WHERE endpoint_id LIKE 'well%'");
    };
    ASSERT_TRUE(rig.turn_until("the 900 get all", [&] { return well() == 0; }));
    // Each of the others still hangs in its first attempt, in its own share of connections.
    EXPECT_EQ(left(), kHanging * kEvents);
    std::set<std::string> hanging;
    for (const auto& [token, endpoint] : rig.receivers.hanging) hanging.insert(endpoint);
    EXPECT_EQ(hanging.size(), static_cast<std::size_t>(kHanging));
    EXPECT_LE(rig.receivers.most, webhook::DispatchOptions().max_connections);
    for (int i = kHanging; i < kEndpoints; ++i) {
        ASSERT_TRUE(in_order(rig.receivers, "well" + std::to_string(i)));
    }
    hangs = false;
    rig.receivers.end_hanging();
    ASSERT_TRUE(rig.turn_until("the rest come", [&] { return left() == 0; }, 100));
    EXPECT_TRUE(in_order(rig.receivers, "hang7"));
}

TEST_P(DispatcherTest, ThoseThatHangLeaveAnotherOfTheirHostItsShare) {
    webhook::DispatchOptions options;
    options.max_connections = 80;
    constexpr int kHanging = 12;  // of the host's 20 connections
    static_cast<void>(open_inlet(url_)->prepare());
    std::string sql = "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) VALUES ";
    for (int i = 0; i < kHanging; ++i) {
        sql += "('hang" + std::to_string(i) + "', 'https://example.com', 'sealed'), ";
    }
    db_->exec(sql + "('well', 'https://example.com', 'sealed')");
    Rig rig(url_, options);
    bool hangs = false;  // they were well before
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (hangs && endpoint.id != "well") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    ASSERT_TRUE(rig.turn_until("all get the first", [&] { return left() == 0; }));
    hangs = true;
    ASSERT_EQ(rig.write(keyed(1, 101, 100)), "");
    rig.turns(300);
    EXPECT_EQ(left("well"), 0);
    EXPECT_EQ(rig.receivers.hanging.size(), std::size_t{kHanging});
}

// Also one that has something to deliver only when the others hang already.
TEST_P(DispatcherTest, ManyThatBeginToHangLeavePlacesForAnother) {
    webhook::DispatchOptions options;
    options.max_connections = 64;
    constexpr int kHanging = 8;  // which might have 8 connections each
    for (int i = 0; i < kHanging; ++i) {
        ASSERT_EQ(add_endpoint(url_, "hang" + std::to_string(i), "order.*"), "");
    }
    ASSERT_EQ(add_endpoint(url_, "well", "user.*"), "");
    Rig rig(url_, options);
    bool hangs = false;
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (hangs && endpoint.id != "well") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write({{.id = "e0"}, {.id = "e1", .type = "user.added"}}), "");
    ASSERT_TRUE(rig.turn_until("all get the first", [&] { return left() == 0; }));
    hangs = true;
    ASSERT_EQ(rig.write(keyed(2, 102, 100)), "");
    rig.turns(200);
    EXPECT_EQ(rig.receivers.hanging.size(), 48U);
    ASSERT_EQ(rig.write({{.id = "e102", .type = "user.added"}}), "");
    rig.turns(200);
    EXPECT_EQ(left("well"), 0);
}

TEST_P(DispatcherTest, EndpointsThatHangFromTheStartTakeNoMoreThanHalfOfTheConnections) {
    webhook::DispatchOptions options;
    options.max_connections = 20;
    for (int i = 0; i < 30; ++i) {
        ASSERT_EQ(add_endpoint(url_, "hang" + std::to_string(i)), "");
    }
    ASSERT_EQ(add_endpoint(url_, "well", "order.*"), "");
    Rig rig(url_, options);
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (endpoint.id != "well") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    // One of them is the first to be tried: none of those ten ends before it is known to answer.
    rig.turns(50);
    EXPECT_LE(rig.receivers.hanging.size(), 10U);
    rig.receivers.end_hanging();
    ASSERT_TRUE(rig.turn_until("it is known", [&] {
        rig.receivers.end_hanging();
        return left("well") == 0;
    }));
    ASSERT_EQ(rig.write(keyed(1, 100, 3)), "");
    ASSERT_TRUE(rig.turn_until("it gets all while they hang", [&] { return left("well") == 0; }));
    EXPECT_LE(rig.receivers.hanging.size(), 10U);
    EXPECT_TRUE(in_order(rig.receivers, "well"));
}

TEST_P(DispatcherTest, EndpointsThatHangFromTheStartTakeNoMoreThanHalfOfTheirHostsConnections) {
    webhook::DispatchOptions options;
    options.max_connections = 40;  // of which a host has ten
    static_cast<void>(open_inlet(url_)->prepare());
    std::string sql = "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) VALUES ";
    for (int i = 0; i < 12; ++i) {
        sql += "('hang" + std::to_string(i) + "', 'https://example.com', 'sealed'), ";
    }
    db_->exec(sql + "('well', 'https://example.com', 'sealed')");
    Rig rig(url_, options);
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (endpoint.id != "well") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    rig.turns(50);
    EXPECT_EQ(rig.receivers.hanging.size(), options.max_per_host() / 2);
    ASSERT_TRUE(rig.turn_until("it is known", [&] {
        rig.receivers.end_hanging();
        return left("well") == 0;
    }));
    ASSERT_EQ(rig.write(keyed(1, 100, 20)), "");
    ASSERT_TRUE(rig.turn_until("it gets all while they hang", [&] { return left("well") == 0; }));
    EXPECT_LE(rig.receivers.hanging.size(), options.max_per_host() / 2);
    EXPECT_TRUE(in_order(rig.receivers, "well"));
}

// What the last relay found is known at the next start, and to the next relay.
class NextDispatcher : public DispatcherTest {
  protected:
    static constexpr int kEach = 20;
    // Endpoints between those of other places.
    void add(int place, const char* what) {
        for (int i = 0; i < kEach; ++i) {
            const std::string id = "e" + std::to_string(1'000 + 10 * i + place) + what;
            ASSERT_EQ(add_endpoint(url_, id), "");
        }
    }
    // Has a relay try those that are there, which end well or not, and go.
    void try_all(std::int64_t failing) {
        Rig last(url_, options_);
        last.receivers.answer = [](const auto& endpoint, const auto&) {
            return std::optional(is_well(endpoint) ? Answer() : ScriptedReceivers::down());
        };
        ASSERT_EQ(last.write({{.id = "e0"}}), "");
        ASSERT_TRUE(last.turn_until("all are known", [&] {
            return db_->number(
                       "SELECT count(*) FROM outbox_webhook_endpoints WHERE failing_since "
                       "IS NOT NULL") == failing &&
                   left() == failing;
        }));
        last.finish();
    }
    // Those that are well get an event while the others hang, and these are tried, too.
    void expect_none_waits() {
        Rig next(url_, options_);
        next.clock.advance_ms(kHourMs);
        next.receivers.answer = [](const auto& endpoint, const auto&) -> std::optional<Answer> {
            if (!is_well(endpoint)) return std::nullopt;
            return ScriptedReceivers::done();
        };
        ASSERT_EQ(next.write({{.id = "e1"}}), "");
        ASSERT_TRUE(next.turn_until("those that are well have it", [&] {
            return db_->number(
                       "SELECT count(*) FROM outbox_webhook_deliveries WHERE endpoint_id "
                       "LIKE '%well'") == 0;
        }));
        ASSERT_TRUE(next.turn_until("the others are tried",
                                    [&] { return next.receivers.hanging.size() == 10U; }));
    }

  private:
    static bool is_well(const webhook::Endpoint& endpoint) { return endpoint.id.ends_with("well"); }
    static webhook::DispatchOptions with_20_connections() {
        webhook::DispatchOptions options;
        options.max_connections = 20;
        return options;
    }
    const webhook::DispatchOptions options_ = with_20_connections();
};

TEST_P(NextDispatcher, WhomTheLastOneFoundWellWaitsForNobody) {
    add(0, "well");
    try_all(0);
    add(1, "hangs");
    expect_none_waits();
}

TEST_P(NextDispatcher, WhomNobodyKnowsWaitsForNoneThatFailed) {
    add(1, "hangs");
    try_all(kEach);
    add(0, "well");
    expect_none_waits();
}

INSTANTIATE_TEST_SUITE_P(Both, DispatcherTest,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Both, NextDispatcher,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });

}  // namespace
}  // namespace outbox::test
