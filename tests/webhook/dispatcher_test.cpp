#include "webhook/dispatcher.h"

#include <algorithm>
#include <atomic>
#include <gmock/gmock.h>
#include <mutex>
#include <thread>
#include <utility>

#include <outbox/producer/migrate.h>

#include "databases/postgres/schema_objects.h"
#include "tests/support/eventually.h"
#include "tests/webhook/rig.h"

// The dispatcher over both databases, with receivers and clocks that the test moves.

namespace outbox::test {
namespace {

using Answer = ScriptedReceivers::Answer;
using Events = std::vector<Rig::Written>;

constexpr std::int64_t kHourMs = 3'600'000;

webhook::DispatchOptions with_a_long_lease() {
    webhook::DispatchOptions options;
    options.lease_ttl_ms = 30 * 24 * kHourMs;
    options.lease_renew_ms = kHourMs;
    return options;
}

class DispatcherTest : public testing::TestWithParam<Backend> {
  protected:
    void SetUp() override {
        database_ = make_database(GetParam());
        url_ = database_->url();
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(url_, options);
        db_ = database_->connect();
    }
    long long left(const std::string& endpoint = {}) {
        return db_->number("SELECT count(*) FROM outbox_webhook_deliveries" +
                           (endpoint.empty() ? "" : " WHERE endpoint_id = '" + endpoint + "'"));
    }
    std::string state(const std::string& endpoint) {
        return db_->value("SELECT state FROM outbox_webhook_endpoints WHERE endpoint_id = '" +
                          endpoint + "'");
    }
    long long missed(const std::string& endpoint) {
        return db_->number(
            "SELECT missed_total FROM outbox_webhook_endpoints WHERE endpoint_id = '" + endpoint +
            "'");
    }
    static Events keyed(int from, int to, int keys) {
        Events events;
        for (int i = from; i < to; ++i) {
            events.push_back(
                {.id = "e" + std::to_string(i), .key = "k" + std::to_string(i % keys)});
        }
        return events;
    }
    // First occurrences of what an endpoint took, by key, rise.
    static testing::AssertionResult in_order(const ScriptedReceivers& receivers,
                                             const std::string& endpoint) {
        std::map<std::string, int> last;
        std::set<std::string> seen;
        for (const auto& request : receivers.requests) {
            if (!request.taken || request.endpoint != endpoint || !request.key) continue;
            if (!seen.insert(request.event).second) continue;
            const int number = std::stoi(request.event.substr(1));
            const auto [at, fresh] = last.emplace(*request.key, number);
            if (!fresh && at->second > number) {
                return testing::AssertionFailure()
                       << request.event << " came behind e" << at->second << " of its key";
            }
            at->second = number;
        }
        return testing::AssertionSuccess();
    }

    std::unique_ptr<Database> database_;
    std::string url_;
    std::unique_ptr<Database::Connection> db_;
};

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

TEST_P(DispatcherTest, GoneDisablesAtOnceAndWhatWaitsIsKeptUntilItIsEnabled) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    bool gone = true;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return gone ? ScriptedReceivers::gone() : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 20, 3)), "");
    ASSERT_TRUE(rig.turn_until("it is disabled", [&] { return state("one") == "disabled"; }));
    EXPECT_TRUE(rig.said("webhook_disabled"));
    EXPECT_EQ(rig.receivers.attempts("one"), 1U);
    ASSERT_EQ(rig.write(keyed(20, 30, 3)), "");
    rig.turns(500, 100);
    EXPECT_EQ(rig.receivers.attempts("one"), 1U);
    EXPECT_EQ(left(), 30) << "what comes meanwhile is kept, too";
    gone = false;
    const auto registry = open_registry(url_);
    ASSERT_TRUE(registry->enable("one").value_or_throw());
    ASSERT_TRUE(rig.turn_until("it gets all", [&] { return left() == 0; }));
    EXPECT_EQ(rig.receivers.taken("one").size(), 30U);
    EXPECT_TRUE(in_order(rig.receivers, "one"));
}

TEST_P(DispatcherTest, RetryAfterIsHeededAlsoByTheNextRelay) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    bool busy = true;
    const auto answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return busy ? ScriptedReceivers::busy(std::chrono::seconds(600))
                    : ScriptedReceivers::done();
    };
    auto first = std::make_unique<Rig>(url_, with_a_long_lease());
    first->receivers.answer = answer;
    ASSERT_EQ(first->write(keyed(0, 5, 5)), "");
    ASSERT_TRUE(
        first->turn_until("it is asked", [&] { return first->receivers.attempts("one") > 0; }));
    first->turns(400, 1'000);  // 400 s
    EXPECT_EQ(first->receivers.attempts("one"), 1U);
    EXPECT_EQ(db_->number("SELECT max(attempts) FROM outbox_webhook_deliveries"), 0);
    busy = false;
    first->finish();
    Rig second(url_, with_a_long_lease());
    second.receivers.answer = answer;
    second.clock.advance_ms(400'000);
    second.turns(190, 1'000);  // until 590 s
    EXPECT_EQ(second.receivers.attempts("one"), 0U);
    ASSERT_TRUE(second.turn_until("it gets all", [&] { return left() == 0; }, 1'000));
}

TEST_P(DispatcherTest, ARetryAfterOfNothingIsStillBackOff) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto&, const auto&) -> std::optional<Answer> {
        return ScriptedReceivers::busy(std::chrono::seconds(0));
    };
    ASSERT_EQ(rig.write(keyed(0, 5, 5)), "");
    rig.turns(400, 100);
    EXPECT_GE(rig.receivers.attempts("one"), 3U);
    EXPECT_LT(rig.receivers.attempts("one"), 12U);
}

TEST_P(DispatcherTest, AfterThreeDaysWithoutSuccessItIsDisabledAndKeepsWhatWaits) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_, with_a_long_lease());
    bool fails = true;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return fails ? ScriptedReceivers::refused(404) : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 50, 10)), "");
    const std::int64_t begun_us = rig.clock.wall_us();
    ASSERT_TRUE(
        rig.turn_until("it is disabled", [&] { return state("one") == "disabled"; }, 600'000));
    const std::int64_t hours = (rig.clock.wall_us() - begun_us) / 1'000 / kHourMs;
    EXPECT_GE(hours, 72);
    EXPECT_LE(hours, 74);
    EXPECT_EQ(left(), 50);
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_webhook_deliveries WHERE dead"), 0);
    EXPECT_EQ(rig.times_said("webhook_failing"), 1U);
    // Enabled alone it has not recovered.
    ASSERT_TRUE(open_registry(url_)->enable("one").value_or_throw());
    ASSERT_TRUE(
        rig.turn_until("it fails anew", [&] { return rig.times_said("webhook_failing") == 2; }));
    EXPECT_EQ(rig.times_said("webhook_recovered"), 0U);
    fails = false;
    ASSERT_TRUE(rig.turn_until("it gets all", [&] { return left() == 0; }, 30'000));
    EXPECT_EQ(rig.times_said("webhook_recovered"), 1U);
    EXPECT_TRUE(in_order(rig.receivers, "one"));
    EXPECT_EQ(rig.receivers.taken("one").size(), 50U);
}

TEST_P(DispatcherTest, ADeployOfAnHourIsNoDeadLetter) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_, with_a_long_lease());
    bool deploying = true;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return deploying ? ScriptedReceivers::refused(404) : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 50, 10)), "");
    rig.turns(720, 5'000);
    deploying = false;
    ASSERT_TRUE(rig.turn_until("it gets all", [&] { return left() == 0; }, 30'000));
    EXPECT_EQ(state("one"), "enabled");
    EXPECT_TRUE(in_order(rig.receivers, "one"));
}

TEST_P(DispatcherTest, AnEventRefusedForThreeDaysWhileOthersPassIsADeadLetterAndItsKeyGoesOn) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_, with_a_long_lease());
    bool fails = true;
    rig.receivers.answer = [&](const auto&, const auto& delivery) -> std::optional<Answer> {
        return fails && delivery.event_id == "e3" ? ScriptedReceivers::refused(400)
                                                  : ScriptedReceivers::done();
    };
    int next = 20;
    ASSERT_EQ(rig.write(keyed(0, next, 4)), "");
    ASSERT_TRUE(rig.turn_until(
        "it is given up on",
        [&] {
            // Others keep passing.
            EXPECT_EQ(rig.write({{.id = "e" + std::to_string(next), .key = "other"}}), "");
            ++next;
            return rig.said("webhook_dead");
        },
        600'000));
    ASSERT_TRUE(rig.turn_until("its key goes on", [&] { return left() == 1; }, 1'000));
    EXPECT_EQ(state("one"), "enabled");
    EXPECT_EQ(db_->value("SELECT event_id FROM outbox_webhook_deliveries WHERE dead"), "e3");
    EXPECT_GE(rig.receivers.attempts("one", "e3"), 50U);
    const auto report = open_registry(url_)->get("one").value_or_throw();
    ASSERT_TRUE(report.has_value());
    EXPECT_EQ(report->dead, 1);
    EXPECT_EQ(report->waiting, 0);
    fails = false;
    ASSERT_TRUE(open_registry(url_)->enable("one").value_or_throw());
    ASSERT_TRUE(rig.turn_until("it comes after all", [&] { return left() == 0; }));
}

// As a receiver says it that fails on this event behind a load balancer of its own.
TEST_P(DispatcherTest, AnEventThatAloneIsAskedToComeLaterIsGivenUpOn) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_, with_a_long_lease());
    rig.receivers.answer = [&](const auto&, const auto& delivery) -> std::optional<Answer> {
        return delivery.event_id == "e3" ? ScriptedReceivers::busy(std::chrono::seconds(10))
                                         : ScriptedReceivers::done();
    };
    int next = 20;
    ASSERT_EQ(rig.write(keyed(0, next, 4)), "");
    const auto others_pass = [&] {
        EXPECT_EQ(rig.write({{.id = "e" + std::to_string(next), .key = "other"}}), "");
        ++next;
    };
    const auto attempts = [&] {
        return db_->number("SELECT coalesce(max(attempts), 0) FROM outbox_webhook_deliveries");
    };
    // The cause of a pause can be read while others pass.
    long long told = 0;
    for (int i = 0; i < 300 && (attempts() == 0 || told == 0); ++i) {
        others_pass();
        rig.turn(2'000);
        told = std::max(told, db_->number("SELECT count(*) FROM outbox_webhook_endpoints "
                                          "WHERE last_error <> '' AND failing_since IS NULL"));
    }
    ASSERT_GT(attempts(), 0);
    EXPECT_EQ(told, 1);
    ASSERT_TRUE(rig.turn_until(
        "it is given up on",
        [&] {
            others_pass();
            return rig.said("webhook_dead");
        },
        600'000));
    EXPECT_EQ(state("one"), "enabled");
    EXPECT_EQ(db_->value("SELECT event_id FROM outbox_webhook_deliveries WHERE dead"), "e3");
    ASSERT_TRUE(rig.turn_until("its key goes on", [&] { return left() == 1; }, 1'000));
}

TEST_P(DispatcherTest, TimeInWhichNobodyTriedIsNoFailing) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    const auto answer = [](const auto&, const auto&) -> std::optional<Answer> {
        return ScriptedReceivers::down();
    };
    {
        Rig rig(url_, with_a_long_lease());
        rig.receivers.answer = answer;
        ASSERT_EQ(rig.write(keyed(0, 5, 5)), "");
        rig.turns(400, 10'000);
        ASSERT_GE(db_->number("SELECT failures FROM outbox_webhook_endpoints"), 10);
        rig.finish();
    }
    Rig later(url_, with_a_long_lease());
    later.clock.advance_ms(10 * 24 * kHourMs);
    later.receivers.answer = answer;
    ASSERT_TRUE(later.turn_until(
        "it is tried", [&] { return later.receivers.attempts("one") > 2; }, 60'000));
    later.turns(30, 1'000);
    EXPECT_EQ(state("one"), "enabled");
}

TEST_P(DispatcherTest, TimeInWhichNobodyTriedIsNoFailingOfAnEventEither) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    const auto answer = [](const auto&, const auto& delivery) -> std::optional<Answer> {
        return delivery.event_id == "e0" ? ScriptedReceivers::refused(400)
                                         : ScriptedReceivers::done();
    };
    const auto attempts = [&] {
        return db_->number(
            "SELECT coalesce(max(attempts), 0) FROM outbox_webhook_deliveries WHERE event_id = "
            "'e0'");
    };
    int next = 1;
    const auto others_pass_until = [&](Rig& rig, const std::function<bool()>& holds) {
        return rig.turn_until(
            "it failed so often",
            [&] {
                EXPECT_EQ(rig.write({{.id = "e" + std::to_string(next++), .key = "other"}}), "");
                return holds();
            },
            600'000);
    };
    {
        Rig rig(url_, with_a_long_lease());
        rig.receivers.answer = answer;
        ASSERT_EQ(rig.write({{.id = "e0", .key = "k"}}), "");
        ASSERT_TRUE(others_pass_until(rig, [&] { return attempts() >= 12; }));
        rig.finish();
    }
    const auto before = attempts();
    Rig later(url_, with_a_long_lease());
    later.clock.advance_ms(10 * 24 * kHourMs);
    later.receivers.answer = answer;
    ASSERT_TRUE(others_pass_until(later, [&] { return attempts() > before; }));
    EXPECT_FALSE(later.said("webhook_dead"));
    // What it had failed for is not forgotten.
    const auto at_us = later.clock.wall_us();
    ASSERT_TRUE(others_pass_until(later, [&] { return later.said("webhook_dead"); }));
    EXPECT_LT(later.clock.wall_us() - at_us, 3 * 24 * kHourMs * 1'000);
}

TEST_P(DispatcherTest, AClockThatIsSetBackHasNothingWaitLongerThanTheLongestWait) {
    for (const std::string id : {"failing", "pausing"}) ASSERT_EQ(add_endpoint(url_, id), "");
    constexpr std::int64_t kMonthMs = 30 * 24 * kHourMs;
    bool fails = true;
    const auto answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (!fails) return ScriptedReceivers::done();
        return endpoint.id == "failing" ? ScriptedReceivers::refused()
                                        : ScriptedReceivers::busy(std::chrono::seconds(600));
    };
    for (const bool another : {false, true}) {  // relay, from then on
        fails = true;
        auto rig = std::make_unique<Rig>(url_, with_a_long_lease());
        rig->receivers.answer = answer;
        ASSERT_EQ(rig->write({{.id = "e0", .key = "k"}, {.id = "e1", .key = "k"}}), "");
        ASSERT_TRUE(rig->turn_until("both have failed", [&] {
            return rig->receivers.attempts("failing") > 0 && rig->receivers.attempts("pausing") > 0;
        }));
        rig->turns(3, 1'000);
        if (another) {
            rig->finish();
            rig = std::make_unique<Rig>(url_, with_a_long_lease());
            rig->receivers.answer = answer;
        }
        rig->clock.set_back_ms(kMonthMs);
        fails = false;
        rig->turns(13, 600'000);  // 130 min
        EXPECT_EQ(left("failing"), 0);
        rig->turns(140, 600'000);  // beyond 24 h
        EXPECT_EQ(left("pausing"), 0);
        EXPECT_TRUE(in_order(rig->receivers, "failing"));
        rig->finish();
    }
}

TEST_P(DispatcherTest, ASecondRelayStandsByAndTakesOverAtOnceFromOneThatIsKilled) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    // Who had to wait for the end of its lease would wait for a month.
    Rig first(url_, with_a_long_lease());
    first.receivers.answer = [](const auto&, const auto& delivery) -> std::optional<Answer> {
        if (delivery.event_id == "e5") return std::nullopt;
        return ScriptedReceivers::done();
    };
    Rig second(url_);
    ASSERT_EQ(first.write(keyed(0, 40, 4)), "");
    ASSERT_TRUE(first.turn_until("some came", [&] { return left() < 35; }));
    second.turns(100, 100);
    EXPECT_TRUE(second.said("webhooks_standby"));
    EXPECT_TRUE(second.receivers.requests.empty());
    first.kill();
    ASSERT_TRUE(second.turn_until("the rest come", [&] { return left() == 0; }));
    std::set<std::string> all;
    for (const auto& event : first.receivers.taken("one")) all.insert(event);
    for (const auto& event : second.receivers.taken("one")) all.insert(event);
    EXPECT_EQ(all.size(), 40U);
    EXPECT_TRUE(in_order(second.receivers, "one"));
}

TEST_P(DispatcherTest, AZombieRecordsNothing) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    ASSERT_TRUE(rig.turn_until("it leads", [&] { return left() == 0; }));
    ASSERT_EQ(rig.write(keyed(1, 2, 1)), "");
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        db_->exec("UPDATE outbox_webhook_lease SET epoch = epoch + 1, owner = 'another'");
        return ScriptedReceivers::done();
    };
    ASSERT_TRUE(rig.turn_until(
        "it was sent",
        [&] { return !rig.receivers.taken("one").empty() && rig.said("webhooks_lease_lost"); }, 5));
    EXPECT_EQ(left(), 1) << "the row is the new owner's";
}

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

TEST_P(DispatcherTest, AFaultOfOursCountsForNobodyAndIsSaidOnce) {
    for (int i = 0; i < 5; ++i) ASSERT_EQ(add_endpoint(url_, "p" + std::to_string(i)), "");
    Rig rig(url_, with_a_long_lease());
    bool ours = true;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return ours ? ScriptedReceivers::own_fault() : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 20, 4)), "");
    rig.turns(5 * 24 * 6, 600'000);  // five days
    EXPECT_EQ(db_->number("SELECT count(*) FROM outbox_webhook_endpoints WHERE failures = 0 AND "
                          "failing_since IS NULL AND state = 'enabled'"),
              5);
    EXPECT_EQ(db_->number("SELECT max(attempts) FROM outbox_webhook_deliveries"), 0);
    EXPECT_EQ(rig.stats().failed_total, 0);
    EXPECT_EQ(rig.times_said("webhooks_own_fault"), 1U) << rig.remarks();
    EXPECT_EQ(
        db_->value("SELECT last_error FROM outbox_webhook_endpoints WHERE endpoint_id = 'p0'"),
        "as scripted");
    ours = false;
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }, 1'000));
    EXPECT_EQ(rig.times_said("webhooks_own_fault_over"), 1U);
    EXPECT_FALSE(rig.said("webhook_failing"));
    EXPECT_TRUE(in_order(rig.receivers, "p0"));
}

TEST_P(DispatcherTest, EndpointsOfOneHostThatHangLeavePlacesForOthers) {
    webhook::DispatchOptions options;
    options.max_connections = 40;
    static_cast<void>(open_inlet(url_)->prepare());
    for (int i = 0; i < 30; ++i) {
        db_->exec("INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) VALUES ('hang" +
                  std::to_string(i) + "', 'https://one.example/" + std::to_string(i) +
                  "', 'sealed')");
    }
    ASSERT_EQ(add_endpoint(url_, "well"), "");
    Rig rig(url_, options);
    bool hangs = false;
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (hangs && endpoint.id != "well") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 8, 8)), "");
    ASSERT_TRUE(rig.turn_until("all are known", [&] { return left() == 0; }));
    hangs = true;
    ASSERT_EQ(rig.write(keyed(8, 100, 8)), "");
    ASSERT_TRUE(rig.turn_until("it gets all", [&] { return left("well") == 0; }));
    EXPECT_EQ(rig.receivers.hanging.size(), options.max_per_host());
    hangs = false;
    rig.receivers.end_hanging();
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }, 1'000));
}

TEST_P(DispatcherTest, AnEndpointThatFailsAgainAndAgainHasALineAMinute) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_, with_a_long_lease());
    int attempts = 0;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return ++attempts % 2 == 0 ? ScriptedReceivers::refused() : ScriptedReceivers::done();
    };
    const std::int64_t since_us = rig.clock.boot_us();
    for (int i = 0; i < 120; ++i) {
        ASSERT_EQ(rig.write(keyed(2 * i, 2 * i + 2, 1'000)), "");
        rig.turns(10, 200);
    }
    const auto minutes =
        static_cast<std::size_t>((rig.clock.boot_us() - since_us) / webhook::kQuietUs);
    ASSERT_GT(attempts, 200);
    EXPECT_GE(rig.times_said("webhook_failing"), 2U);
    EXPECT_LE(rig.times_said("webhook_failing"), minutes + 1);
    EXPECT_LE(rig.times_said("webhook_recovered"), rig.times_said("webhook_failing"));
    EXPECT_GT(rig.sum_said("webhook_failing", "failures"), 20);
}

TEST_P(DispatcherTest, WhatIsCountedOfAnEndpointGoesWithIt) {
    ASSERT_EQ(add_endpoint(url_, "gone"), "");
    Rig rig(url_, with_a_long_lease());
    rig.receivers.answer = [](const auto&, const auto&) { return ScriptedReceivers::down(); };
    ASSERT_EQ(rig.write(keyed(0, 30, 3)), "");
    ASSERT_TRUE(rig.turn_until("they are counted", [&] { return rig.stats().waiting == 30; }));
    ASSERT_TRUE(open_registry(url_)->remove("gone").value_or_throw().has_value());
    rig.turns(5, 1'000);
    EXPECT_EQ(rig.stats().waiting, 0);
    EXPECT_EQ(rig.stats().paused, 0);
    EXPECT_EQ(rig.stats().enabled, 0);
}

// Endpoints come and go while a relay writes and one delivers, in which each meets the others'
// rows.
TEST_P(DispatcherTest, WhoAddsRemovesWritesAndDeliversAtOnceDoesNotBlockTheOthers) {
    constexpr int kRounds = 150;
    for (int i = 0; i < 8; ++i) ASSERT_EQ(add_endpoint(url_, "p" + std::to_string(i)), "");
    std::vector<std::string> faults;
    std::mutex mutex;
    const auto fault = [&](const std::string& text) {
        const std::lock_guard lock(mutex);
        if (!text.empty()) faults.push_back(text);
    };
    std::atomic<int> busy{0};
    std::vector<std::thread> threads;
    for (int operators = 0; operators < 2; ++operators) {
        ++busy;
        threads.emplace_back([&, operators] {
            const auto registry = open_registry(url_);
            for (int i = 0; i < kRounds; ++i) {
                const std::string id = "p" + std::to_string((i * 5 + operators) % 8);
                if (i % 3 == 0) {
                    fault(Rig::text(registry->remove(id).status()));
                    webhook::Endpoint endpoint;
                    endpoint.id = id;
                    endpoint.url = "https://" + id + ".example/";
                    endpoint.secrets = "sealed";
                    const Status added = registry->add(endpoint);
                    if (!added.ok() && added.error().code != ErrorCode::kConflict) {
                        fault(Rig::text(added));
                    }
                } else {
                    fault(Rig::text(registry->enable(id).status()));
                }
            }
            --busy;
        });
    }
    for (int writers = 0; writers < 2; ++writers) {
        ++busy;
        threads.emplace_back([&, writers] {
            Rig writer(url_);
            for (int i = 0; i < kRounds; ++i) {
                Events events;
                for (int n = 0; n < 10; ++n) {
                    events.push_back(
                        {.id = "w" + std::to_string(writers) + "-" + std::to_string(i * 10 + n),
                         .key = std::to_string(n % 3)});
                }
                writer.fill("p3", webhook::kMaxQueuePerEndpoint);
                fault(writer.write(events));
            }
            --busy;
        });
    }
    Rig rig(url_);
    int attempts = 0;
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        return ++attempts % 3 == 0 ? ScriptedReceivers::refused() : ScriptedReceivers::done();
    };
    while (busy > 0) rig.turn(100);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(faults, std::vector<std::string>());
    // SQLite's writers are not served in turn: one may wait longer than a renewal does.
    if (GetParam() == Backend::kPostgres) {
        EXPECT_FALSE(rig.said("webhooks_database_away")) << rig.remarks();
        EXPECT_EQ(db_->number("SELECT pg_stat_get_db_deadlocks(oid) FROM pg_database WHERE datname "
                              "= current_database()"),
                  0);
    }
    rig.receivers.answer = [](const auto&, const auto&) { return ScriptedReceivers::done(); };
    ASSERT_TRUE(rig.turn_until("the rest comes", [&] { return left() == 0; }, 1'000));
}

TEST_P(DispatcherTest, AnEndpointDeletedUnderWayIsBrokenOffAndLeavesNothing) {
    ASSERT_EQ(add_endpoint(url_, "gone"), "");
    ASSERT_EQ(add_endpoint(url_, "stays"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto& endpoint, const auto&) -> std::optional<Answer> {
        if (endpoint.id == "gone") return std::nullopt;
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 50, 3)), "");
    ASSERT_TRUE(rig.turn_until("the other gets all", [&] { return left("stays") == 0; }));
    ASSERT_EQ(rig.receivers.hanging.size(), 1U);
    const auto removed = open_registry(url_)->remove("gone").value_or_throw();
    EXPECT_EQ(removed, std::optional<std::int64_t>(50));
    ASSERT_TRUE(
        rig.turn_until("it is broken off", [&] { return rig.receivers.hanging.empty(); }, 100));
    EXPECT_EQ(left(), 0);
    // A hand that knows only the one table leaves deliveries behind.
    ASSERT_EQ(rig.write(keyed(50, 60, 3)), "");
    ASSERT_EQ(add_endpoint(url_, "by_hand"), "");
    rig.turns(200);
    rig.receivers.answer = [](const auto&, const auto&) { return std::optional<Answer>(); };
    ASSERT_EQ(rig.write(keyed(60, 70, 3)), "");
    db_->exec("DELETE FROM outbox_webhook_endpoints WHERE endpoint_id = 'by_hand'");
    ASSERT_TRUE(rig.turn_until("they are swept", [&] { return left("by_hand") == 0; }, 100));
}

// Of which it is read for before the relay has seen that it is gone.
TEST_P(DispatcherTest, AnEndpointDeletedUnderWayIsNotTakenForATableThatBeganAnew) {
    ASSERT_EQ(add_endpoint(url_, "gone"), "");
    ASSERT_EQ(add_endpoint(url_, "stays"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    ASSERT_TRUE(rig.turn_until("both are proven", [&] { return left() == 0; }));
    rig.receivers.answer = [](const auto&, const auto&) { return std::optional<Answer>(); };
    ASSERT_EQ(rig.write({{.id = "e1"}}), "");
    ASSERT_TRUE(rig.turn_until("both hang", [&] { return rig.receivers.hanging.size() == 2; }));
    rig.turn(1'000);
    ASSERT_EQ(rig.write({{.id = "e2"}}), "");
    ASSERT_TRUE(open_registry(url_)->remove("gone").value_or_throw().has_value());
    const auto asked = rig.outlet().asked.size();
    ASSERT_TRUE(
        rig.turn_until("it is read for", [&] { return rig.outlet().asked.size() > asked; }, 1));
    rig.turns(20, 100);
    EXPECT_FALSE(rig.said("webhooks_table_anew"));
    EXPECT_EQ(rig.receivers.attempts("stays", "e1"), 1U);
    EXPECT_EQ(rig.receivers.attempts("stays", "e2"), 1U);
}

TEST_P(DispatcherTest, AChangedSecretAndAnAddedEndpointAreSeenWithinASecondOrSo) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    std::vector<std::string> secrets;
    rig.receivers.answer = [&](const auto& endpoint, const auto&) -> std::optional<Answer> {
        secrets.push_back(endpoint.secrets);
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    ASSERT_TRUE(rig.turn_until("it came", [&] { return left() == 0; }));
    const auto registry = open_registry(url_);
    ASSERT_EQ(Rig::text(registry->set_secrets("one", 1, "other")), "");
    EXPECT_EQ(registry->set_secrets("one", 1, "third").error().code, ErrorCode::kConflict);
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    rig.turns(13, 100);
    ASSERT_EQ(rig.write(keyed(1, 2, 1)), "");
    ASSERT_TRUE(rig.turn_until("both came", [&] { return left() == 0; }));
    EXPECT_EQ(secrets, (std::vector<std::string>{"sealed", "other", "sealed"}));
    EXPECT_EQ(rig.receivers.taken("two"), (std::vector<std::string>{"e1"}));
}

TEST_P(DispatcherTest, AnEventWrittenRightBehindAnAddedEndpointIsItsToo) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    ASSERT_EQ(rig.write(keyed(1, 2, 1)), "");
    EXPECT_EQ(left("two"), 1);
    const auto registry = open_registry(url_);
    // As many as before, and none has another revision.
    ASSERT_TRUE(registry->remove("one").value_or_throw().has_value());
    ASSERT_EQ(add_endpoint(url_, "three"), "");
    ASSERT_EQ(rig.write(keyed(2, 3, 1)), "");
    EXPECT_EQ(left("three"), 1);
    ASSERT_TRUE(registry->disable("two", "for now").value_or_throw());
    ASSERT_TRUE(registry->enable("two").value_or_throw());
    ASSERT_EQ(rig.write(keyed(3, 4, 1)), "");
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }));
    EXPECT_EQ(rig.receivers.taken("two"), (std::vector<std::string>{"e1", "e2", "e3"}));
    EXPECT_EQ(rig.receivers.taken("three"), (std::vector<std::string>{"e2", "e3"}));
}

// What comes again after a crash is for the endpoints of then: it must not be for one that has
// later events already.
TEST_P(DispatcherTest, ANewEndpointIsTakenInOnceWhatWasWrittenBeforeIsRecorded) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.records = false;
    ASSERT_EQ(rig.write(keyed(0, 1, 1)), "");
    ASSERT_EQ(rig.write(keyed(1, 2, 1)), "") << "with no new endpoint nobody waits";
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    EXPECT_EQ(rig.write(keyed(2, 3, 1)), "it waits");
    EXPECT_EQ(rig.write(keyed(2, 3, 1)), "it waits");
    EXPECT_EQ(left("two"), 0);
    rig.fan_out().all_recorded();
    ASSERT_EQ(rig.write(keyed(2, 3, 1)), "");
    EXPECT_EQ(left("two"), 1);
    // One that is deleted meanwhile, and one that is made anew under the id of another.
    ASSERT_EQ(add_endpoint(url_, "three"), "");
    EXPECT_EQ(rig.write(keyed(3, 4, 1)), "it waits");
    const auto registry = open_registry(url_);
    ASSERT_TRUE(registry->remove("three").value_or_throw().has_value());
    ASSERT_EQ(rig.write(keyed(3, 4, 1)), "");
    ASSERT_TRUE(registry->remove("two").value_or_throw().has_value());
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    EXPECT_EQ(rig.write(keyed(4, 5, 1)), "it waits");
    rig.fan_out().all_recorded();
    ASSERT_EQ(rig.write(keyed(4, 5, 1)), "");
    ASSERT_TRUE(rig.turn_until("all come", [&] { return left() == 0; }));
    EXPECT_EQ(rig.receivers.taken("two"), std::vector<std::string>{"e4"});
    // However long that takes.
    ASSERT_EQ(add_endpoint(url_, "five"), "");
    rig.records = false;
    EXPECT_EQ(rig.write(keyed(4, 5, 1)), "it waits");
    rig.clock.advance_ms(600'000);
    EXPECT_EQ(rig.write(keyed(4, 5, 1)), "it waits");
    rig.fan_out().all_recorded();
    EXPECT_EQ(rig.write(keyed(4, 5, 1)), "");
    EXPECT_EQ(left("five"), 1);
    ASSERT_TRUE(registry->remove("five").value_or_throw().has_value());
    // Another process takes in all that there are at its first look.
    Rig next(url_);
    next.records = false;
    ASSERT_EQ(add_endpoint(url_, "four"), "");
    ASSERT_EQ(next.write(keyed(4, 6, 1)), "");
    EXPECT_EQ(left("four"), 2);
}

// A slow receiver answers after its endpoint was changed.
TEST_P(DispatcherTest, ALateAnswerSaysNothingOfTheEndpointAsItIsNow) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto&, const auto&) { return std::optional<Answer>(); };
    ASSERT_EQ(rig.write(keyed(0, 2, 1)), "");
    const auto begin = [&] {
        ASSERT_TRUE(
            rig.turn_until("it is under way", [&] { return !rig.receivers.hanging.empty(); }));
    };
    const auto seen = [&] { rig.turns(12, 100); };
    const auto number = [&](const std::string& column) {
        return db_->number("SELECT coalesce(" + column +
                           ", 0) FROM outbox_webhook_endpoints WHERE endpoint_id = 'one'");
    };
    const auto registry = open_registry(url_);
    for (const Answer& late :
         {ScriptedReceivers::gone(), ScriptedReceivers::down(), ScriptedReceivers::refused(),
          ScriptedReceivers::busy(std::chrono::seconds(600))}) {
        begin();
        ASSERT_TRUE(registry->enable("one").value_or_throw());
        seen();
        rig.receivers.end_hanging(late);
        seen();
        EXPECT_EQ(state("one"), "enabled") << late.status;
        EXPECT_EQ(number("failures"), 0) << late.status;
        EXPECT_EQ(rig.stats().paused, 0) << late.status;
        EXPECT_EQ(db_->number("SELECT max(attempts) FROM outbox_webhook_deliveries"), 0);
    }
    // One that comes while it is disabled has the row go, and nothing more be sent.
    begin();
    ASSERT_TRUE(registry->disable("one", "no more").value_or_throw());
    seen();
    const auto sent = rig.receivers.requests.size();
    rig.receivers.end_hanging(ScriptedReceivers::done());
    seen();
    EXPECT_EQ(left(), 1);
    EXPECT_EQ(number("delivered_total"), 1);
    EXPECT_EQ(state("one"), "disabled");
    EXPECT_EQ(rig.receivers.requests.size(), sent);
}

// The relay sees within a second that an operator changed something: what comes until then.
TEST_P(DispatcherTest, AFailureRightBehindAChangeDelaysNothingAndOrderIsKept) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_, with_a_long_lease());
    const auto registry = open_registry(url_);
    const auto attempts = [&](const std::string& event) {
        return db_->number("SELECT attempts FROM outbox_webhook_deliveries WHERE event_id = '" +
                           event + "'");
    };
    int next = 0;
    for (const bool rotated : {false, true}) {
        const std::string first = "e" + std::to_string(next++);
        const std::string second = "e" + std::to_string(next++);
        const std::string third = "e" + std::to_string(next++);
        bool hangs = false;
        rig.receivers.answer = [&](const auto&, const auto& delivery) -> std::optional<Answer> {
            if (delivery.event_id != first) return ScriptedReceivers::done();
            return hangs ? std::nullopt : std::optional(ScriptedReceivers::refused());
        };
        ASSERT_EQ(rig.write({{.id = first, .key = "k"}, {.id = second, .key = "k"}}), "");
        ASSERT_TRUE(rig.turn_until(
            "it failed often",
            [&] {
                EXPECT_EQ(rig.write({{.id = "e" + std::to_string(next++), .key = "other"}}), "");
                return attempts(first) >= 12;
            },
            300'000));
        hangs = true;
        ASSERT_TRUE(rig.turn_until(
            "it is under way", [&] { return !rig.receivers.hanging.empty(); }, 60'000));
        rig.turns(3, 1'000);
        if (rotated) {
            ASSERT_EQ(Rig::text(registry->set_secrets("one", 2, "other")), "");
        } else {
            ASSERT_TRUE(registry->enable("one").value_or_throw());
        }
        const auto before = attempts(first);
        EXPECT_EQ(before == 0, !rotated);
        rig.receivers.end_hanging(ScriptedReceivers::refused());
        ASSERT_EQ(rig.write({{.id = third, .key = "k"}}), "");
        rig.turns(50, 10);
        EXPECT_EQ(attempts(first), before);
        EXPECT_EQ(rig.receivers.attempts("one", third), 0U) << "the key waits";
        rig.receivers.answer = [](const auto&, const auto&) { return ScriptedReceivers::done(); };
        rig.turns(20, 100);
        EXPECT_EQ(left(), 0);
        EXPECT_TRUE(in_order(rig.receivers, "one"));
    }
}

TEST_P(DispatcherTest, AnAnswerToAnEndpointThatWasMadeAnewIsNotTheNewOnes) {
    const auto registry = open_registry(url_);
    const auto make_anew = [&](const std::string& event) {
        ASSERT_TRUE(registry->remove("one").value_or_throw().has_value());
        ASSERT_EQ(add_endpoint(url_, "one"), "");
        // A time of SQLite has milliseconds.
        if (GetParam() == Backend::kSqlite) {
            db_->exec("UPDATE outbox_webhook_endpoints SET created_at = created_at + 1000");
        }
        db_->exec("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('one', '" +
                  event + "')");
    };
    const auto number = [&](const std::string& column) {
        return db_->number("SELECT coalesce(" + column +
                           ", 0) FROM outbox_webhook_endpoints WHERE endpoint_id = 'one'");
    };
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.receivers.answer = [](const auto&, const auto&) { return std::optional<Answer>(); };
    ASSERT_EQ(rig.write({{.id = "e1"}}), "");
    ASSERT_TRUE(rig.turn_until("it is under way", [&] { return !rig.receivers.hanging.empty(); }));
    // Between the answer and its record.
    bool once = true;
    rig.outlet().records = [&] {
        if (std::exchange(once, false)) make_anew("e1");
    };
    rig.receivers.end_hanging(ScriptedReceivers::done());
    ASSERT_TRUE(rig.turn_until("it is recorded", [&] { return !once; }));
    EXPECT_EQ(left(), 1) << "the row is another's";
    EXPECT_EQ(number("delivered_total"), 0);
    for (const Answer& answer : {ScriptedReceivers::gone(), ScriptedReceivers::down()}) {
        once = false;
        ASSERT_TRUE(
            rig.turn_until("it is asked", [&] { return !rig.receivers.hanging.empty(); }, 100));
        once = true;
        rig.receivers.end_hanging(answer);
        ASSERT_TRUE(rig.turn_until("it is recorded", [&] { return !once; }, 100));
        EXPECT_EQ(state("one"), "enabled");
        EXPECT_EQ(number("failures"), 0);
        EXPECT_EQ(db_->number("SELECT count(paused_until) FROM outbox_webhook_endpoints"), 0);
        EXPECT_EQ(left(), 1);
    }
    // What is under way when that is seen is broken off.
    once = false;
    ASSERT_TRUE(rig.turn_until("it is asked", [&] { return !rig.receivers.hanging.empty(); }, 100));
    const auto asked = rig.receivers.requests.size();
    make_anew("e1");
    rig.receivers.answer = [](const auto&, const auto&) { return ScriptedReceivers::done(); };
    ASSERT_TRUE(rig.turn_until("the new one gets it", [&] { return left() == 0; }, 100));
    EXPECT_EQ(rig.receivers.requests.size(), asked + 1);
    EXPECT_TRUE(rig.receivers.hanging.empty());
}

// An operator enables an endpoint between the attempt that has it disabled and its record.
TEST_P(DispatcherTest, WhatAnOperatorChangedMeanwhileStays) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    Rig rig(url_);
    rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
        if (rig.receivers.requests.empty()) {
            EXPECT_TRUE(open_registry(url_)->enable("one").value_or_throw());
            return ScriptedReceivers::gone();
        }
        return ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 3, 1)), "");
    ASSERT_TRUE(rig.turn_until("it gets all", [&] { return left() == 0; }, 100));
    EXPECT_EQ(state("one"), "enabled");
}

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

INSTANTIATE_TEST_SUITE_P(Both, DispatcherTest,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });
INSTANTIATE_TEST_SUITE_P(Both, NextDispatcher,
                         testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });

// Events that an endpoint hangs on, each of a key of its own, beside others that it takes at once.
class HangingEvents : public DispatcherTest {
  protected:
    static constexpr std::int64_t kTimeoutUs = 20 * webhook::kSecondUs;
    static constexpr std::int64_t kStepMs = 100;

    void begin(std::size_t max_per_endpoint) {
        ASSERT_EQ(add_endpoint(url_, "one"), "");
        options_.max_per_endpoint = max_per_endpoint;
        start();
        ASSERT_EQ(rig_->write({{.id = "e0", .key = "k0"}}), "");
        ASSERT_TRUE(rig_->turn_until("it is known to answer", [&] { return left() == 0; }));
        written_.clear();
        begun_us_ = rig_->clock.boot_us();
    }
    void start() {
        rig_ = std::make_unique<Rig>(url_, options_);
        rig_->receivers.answer = [this](const auto&, const auto& delivery) {
            return answer(delivery);
        };
    }
    // Another relay, an hour later.
    void start_anew() {
        const std::int64_t now_us = rig_->clock.boot_us();
        rig_->finish();
        start();
        rig_->clock.advance_us(now_us - rig_->clock.boot_us() + 3'600 * webhook::kSecondUs);
        hangs_since_.clear();
        longest_us_.clear();
        written_.clear();
    }
    // In these seconds, two events a second that the endpoint takes.
    void go_on(int seconds) {
        for (int i = 0; i < seconds * 10; ++i) {
            if (i % 5 == 0) {
                const std::string number = std::to_string(next_++);
                write("e" + number, "k" + std::to_string(next_ % 15));
            }
            turn();
        }
    }
    void poison() {
        const std::string number = std::to_string(next_++);
        write("p" + number, "p" + number);
    }
    void write(const std::string& id, const std::string& key) {
        ASSERT_EQ(rig_->write({{.id = id, .key = key}}), "");
        written_[id] = rig_->clock.boot_us();
    }
    // Attempts end when their time is over.
    void turn() {
        rig_->turn(kStepMs);
        const std::int64_t now_us = rig_->clock.boot_us();
        std::vector<std::uint64_t> over;
        for (const auto& [token, endpoint] : rig_->receivers.hanging) {
            if (now_us - hangs_since_.emplace(token, now_us).first->second >= kTimeoutUs) {
                over.push_back(token);
            }
        }
        for (const std::uint64_t token : over) {
            rig_->receivers.end_hanging(token, ScriptedReceivers::down());
        }
    }
    std::optional<Answer> answer(const webhook::Delivery& delivery) {
        if (all_hang_ || (hangs_ && delivery.event_id.starts_with('p'))) return std::nullopt;
        const std::int64_t now_us = rig_->clock.boot_us();
        const auto written = written_.find(delivery.event_id);
        if (written != written_.end() && delivery.event_id.starts_with('e')) {
            const std::int64_t s = (now_us - begun_us_) / webhook::kSecondUs;
            longest_us_[s / 30] = std::max(longest_us_[s / 30], now_us - written->second);
        }
        return ScriptedReceivers::done();
    }
    // How long one that came from then on, in seconds, waited.
    std::int64_t longest_s(std::int64_t from_s) const {
        std::int64_t most = 0;
        for (const auto& [part, us] : longest_us_) {
            if (part * 30 >= from_s) most = std::max(most, us);
        }
        return most / webhook::kSecondUs;
    }
    std::string waits() const {
        std::string out;
        for (const auto& [part, us] : longest_us_) {
            out += " " + std::to_string(part * 30) + ":" + std::to_string(us / 1000) + "ms";
        }
        return out;
    }
    long long healthy_left() {
        return db_->number(
            "SELECT count(*) FROM outbox_webhook_deliveries WHERE event_id LIKE 'e%'");
    }

    webhook::DispatchOptions options_ = with_a_long_lease();
    std::unique_ptr<Rig> rig_;
    bool hangs_ = true;
    bool all_hang_ = false;
    int next_ = 1;
    std::int64_t begun_us_ = 0;
    std::map<std::string, std::int64_t> written_;
    std::map<std::uint64_t, std::int64_t> hangs_since_;
    std::map<std::int64_t, std::int64_t> longest_us_;  // by half minutes
};

TEST_P(HangingEvents, LeavePlacesForThoseOfOtherKeys) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    for (int i = 0; i < 8; ++i) {
        poison();
        go_on(5);
    }
    for (int i = 0; i < 30; ++i) {  // and one more each ten seconds
        poison();
        go_on(10);
    }
    EXPECT_LE(longest_s(0), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
    // Each is blamed, and can be seen to be.
    EXPECT_GT(db_->number("SELECT max(attempts) FROM outbox_webhook_deliveries"), 2);
    EXPECT_GE(db_->number("SELECT count(*) FROM outbox_webhook_deliveries WHERE attempts > 0 AND "
                          "last_error = 'as scripted'"),
              10);
    EXPECT_EQ(state("one"), "enabled");
    hangs_ = false;
    ASSERT_TRUE(rig_->turn_until(
        "all come",
        [&] {
            turn();
            return left() == 0;
        },
        10'000));
    EXPECT_TRUE(in_order(rig_->receivers, "one"));
}

TEST_P(HangingEvents, ThatBeginTogetherDelayThoseOfOtherKeysOnce) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    for (int i = 0; i < 8; ++i) poison();
    for (int i = 0; i < 8; ++i) {
        go_on(5);
        poison();
    }
    go_on(560);
    EXPECT_LE(longest_s(120), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
}

// Where each place hangs that is not known: one after the other is found out.
TEST_P(HangingEvents, LeaveOneOfTwoPlaces) {
    begin(2);
    for (int i = 0; i < 8; ++i) {
        poison();
        go_on(5);
    }
    go_on(560);
    EXPECT_LE(longest_s(120), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
}

TEST_P(HangingEvents, LeaveASinglePlaceForMostOfTheTime) {
    begin(1);
    for (int i = 0; i < 8; ++i) {
        poison();
        go_on(5);
    }
    go_on(560);
    EXPECT_LE(longest_s(270), 21) << waits();
}

TEST_P(HangingEvents, ThatWereBlamedAreKnownToTheNextRelay) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    for (int i = 0; i < 20; ++i) {
        poison();
        go_on(10);
    }
    go_on(100);
    ASSERT_GE(db_->number("SELECT count(*) FROM outbox_webhook_deliveries WHERE attempts > 0"), 16);
    start_anew();
    go_on(120);
    EXPECT_LE(longest_s(0), 1) << waits();
    EXPECT_LE(healthy_left(), 15);
}

TEST_P(HangingEvents, AreNotAtFaultWhereAllHang) {
    begin(webhook::DispatchOptions().max_per_endpoint);
    go_on(5);
    all_hang_ = true;
    go_on(30 * 60);
    EXPECT_EQ(db_->number("SELECT coalesce(max(attempts), 0) FROM outbox_webhook_deliveries"), 0);
    EXPECT_LT(rig_->receivers.attempts("one"), 40U) << "it is asked with back-off";
    all_hang_ = false;
    ASSERT_TRUE(rig_->turn_until(
        "it gets all",
        [&] {
            turn();
            return left() == 0;
        },
        1'000));
    EXPECT_TRUE(in_order(rig_->receivers, "one"));
    EXPECT_EQ(db_->number("SELECT coalesce(max(attempts), 0) FROM outbox_webhook_deliveries"), 0);
}

INSTANTIATE_TEST_SUITE_P(Both, HangingEvents, testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });

// Who deletes holds the endpoint, and waits for one who holds a delivery of it; who records waits
// for neither.
TEST(WebhookLocks, WhoRecordsWaitsNeitherForWhoHoldsADeliveryNorForWhoDeletesItsEndpoint) {
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    for (const char* id : {"one", "two", "three"}) {
        ASSERT_EQ(add_endpoint(database.url(), id), "");
    }
    Pg holder(database.url());
    holder.exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) SELECT id, event FROM "
        "unnest(ARRAY['one', 'two', 'three']) id, unnest(ARRAY['e1', 'e2']) event ORDER BY id, "
        "event");
    const auto outlet = open_outlet(database.url());
    const auto epoch = outlet->acquire("tester", std::chrono::hours(1)).value_or_throw();
    ASSERT_TRUE(epoch.has_value());
    std::vector<webhook::EndpointChange> changes;
    std::vector<webhook::Outcome> outcomes;
    for (const auto& endpoint : outlet->endpoints().value_or_throw()) {
        webhook::EndpointChange& change = changes.emplace_back();
        change.endpoint_id = endpoint.id;
        change.created_at_us = endpoint.created_at_us;
        change.revision = 1;
        change.delivered = 2;
        for (int event = 1; event <= 2; ++event) {
            webhook::Outcome& outcome = outcomes.emplace_back();
            outcome.endpoint_id = endpoint.id;
            outcome.event_id = "e" + std::to_string(event);
            outcome.created_at_us = endpoint.created_at_us;
            outcome.revision = 1;
        }
    }
    Pg watcher(database.url());
    for (webhook::Outcome& outcome : outcomes) {
        outcome.position =
            watcher.number("SELECT position FROM outbox_webhook_deliveries WHERE endpoint_id = '" +
                           outcome.endpoint_id + "' AND event_id = '" + outcome.event_id + "'");
    }
    // One of "two" failed, which is held, too.
    for (webhook::Outcome& outcome : outcomes) {
        if (outcome.endpoint_id != "two" || outcome.event_id != "e1") continue;
        outcome.kind = webhook::Outcome::Kind::kFailed;
        outcome.attempts = 1;
    }
    holder.exec("BEGIN");
    holder.exec(
        "SELECT FROM outbox_webhook_deliveries WHERE (endpoint_id, event_id) IN (('two', 'e1'), "
        "('three', 'e2')) FOR UPDATE");
    const auto held = [&] {
        auto recorded = outlet->record(*epoch, outcomes, changes).value_or_throw();
        std::sort(recorded.begin(), recorded.end());
        return recorded;
    };
    EXPECT_EQ(held(), (std::vector<std::string>{"three", "two"}));
    EXPECT_EQ(watcher.number("SELECT count(*) FROM outbox_webhook_deliveries WHERE endpoint_id = "
                             "'one'"),
              0);
    Status removed;
    std::thread removes([&] { removed = open_registry(database.url())->remove("three").status(); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "who deletes waits", [&] {
        return watcher.number(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                   "current_database() AND wait_event_type = 'Lock'") == 1;
    }));
    EXPECT_EQ(held(), (std::vector<std::string>{"three", "two"}));
    holder.exec("COMMIT");
    removes.join();
    EXPECT_EQ(Rig::text(removed), "");
    EXPECT_EQ(held(), std::vector<std::string>{});
    EXPECT_EQ(watcher.value("SELECT endpoint_id || event_id || attempts FROM "
                            "outbox_webhook_deliveries"),
              "twoe11");
}

// Held by an operator, in a transaction that is open for however long.
class HeldRow : public DispatcherTest {
  protected:
    void SetUp() override {
        DispatcherTest::SetUp();
        ASSERT_EQ(add_endpoint(url_, "one"), "");
        ASSERT_EQ(add_endpoint(url_, "two"), "");
        holder_ = database_->connect();
    }
    void hold(const std::string& rows) {
        holder_->exec("BEGIN");
        holder_->exec("SELECT FROM outbox_webhook_" + rows);
    }
    void let_go() { holder_->exec("COMMIT"); }
    // Each event to both, while a row of "two" is held, and afterwards.
    void expect_that_two_alone_waits(Rig& rig) {
        for (int i = 1; i <= 5; ++i) {
            ASSERT_EQ(rig.write(keyed(20 * i, 20 * i + 20, 3)), "");
            ASSERT_TRUE(rig.turn_until("the other's go", [&] { return left("one") == 0; }));
            rig.turns(150, 20);  // it looks back meanwhile
        }
        EXPECT_GT(left("two"), 0);
        EXPECT_EQ(rig.times_said("webhook_not_recorded"), 1U) << rig.remarks();
        let_go();
        rig.turns(250);
        EXPECT_EQ(left(), 0) << "all is recorded and sent soon";
        for (int i = 20; i < 120; ++i) {
            EXPECT_EQ(rig.receivers.attempts("two", "e" + std::to_string(i)), 1U) << i;
        }
        EXPECT_TRUE(in_order(rig.receivers, "two"));
        EXPECT_EQ(rig.times_said("webhooks_dispatching"), 1U) << rig.remarks();
        rig.turns(200);
        EXPECT_EQ(db_->number("SELECT sum(delivered_total) FROM outbox_webhook_endpoints"),
                  static_cast<long long>(rig.receivers.requests.size()));
    }

    std::unique_ptr<Database::Connection> holder_;
};

INSTANTIATE_TEST_SUITE_P(Postgres, HeldRow, testing::Values(Backend::kPostgres),
                         [](const auto& info) { return backend_name(info.param); });

TEST_P(HeldRow, OfAnEndpointDelaysNoOther) {
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 20, 3)), "");
    ASSERT_TRUE(rig.turn_until("both are known", [&] { return left() == 0; }));
    hold("endpoints WHERE endpoint_id = 'two' FOR SHARE");
    expect_that_two_alone_waits(rig);
}

// It is known of an endpoint that it waits before more of it is read.
TEST_P(HeldRow, OfAFailedDeliveryKeepsTheOrderOfItsKey) {
    Rig rig(url_);
    rig.receivers.answer = [&rig](const webhook::Endpoint& endpoint,
                                  const webhook::Delivery& delivery) -> std::optional<Answer> {
        const bool fails = endpoint.id == "two" && delivery.event_id == "e50" &&
                           rig.receivers.attempts("two", "e50") == 0;
        return fails ? ScriptedReceivers::refused() : ScriptedReceivers::done();
    };
    ASSERT_EQ(rig.write(keyed(0, 300, 1)), "");
    ASSERT_EQ(rig.write(keyed(300, 600, 1)), "");
    hold("deliveries WHERE endpoint_id = 'two' AND event_id = 'e50' FOR UPDATE");
    rig.turns(700);
    EXPECT_EQ(rig.receivers.attempts("two", "e50"), 1U);
    EXPECT_EQ(left("one"), 0);
    let_go();
    ASSERT_TRUE(rig.turn_until("all goes", [&] { return left() == 0; }));
    EXPECT_TRUE(in_order(rig.receivers, "two"));
    EXPECT_EQ(rig.receivers.attempts("two", "e49"), 1U);
}

TEST_P(HeldRow, OfADeliveryDelaysNoOtherEndpoint) {
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(20, 40, 3)), "");
    hold("deliveries WHERE endpoint_id = 'two' AND event_id = 'e25' FOR UPDATE");
    expect_that_two_alone_waits(rig);
}

TEST_P(HeldRow, OfAFullQueueDelaysNoEvent) {
    Rig rig(url_);
    rig.fill("two", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    hold("endpoints WHERE endpoint_id = 'two' FOR NO KEY UPDATE");
    ASSERT_EQ(rig.write(keyed(10, 20, 1)), "");
    ASSERT_EQ(rig.write(keyed(20, 30, 1)), "");
    EXPECT_EQ(left("one"), 30);
    let_go();
    // What was missed meanwhile is counted soon, also where no event comes.
    rig.fan_out().count_missed();
    EXPECT_EQ(missed("two"), 30);
    rig.fan_out().count_missed();
    ASSERT_EQ(rig.write(keyed(30, 40, 1)), "");
    EXPECT_EQ(missed("two"), 40);
    EXPECT_EQ(rig.fan_out().missed_total(), 40);
}

TEST_P(HeldRow, OfAnotherEndpointHoldsNoFullOneWithIt) {
    Rig rig(url_);
    rig.fill("one", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    hold("endpoints WHERE endpoint_id = 'two' FOR UPDATE");
    std::string written;
    std::thread writes([&] { written = rig.write(keyed(10, 20, 1)); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "the route waits", [&] {
        return db_->number(
                   "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND "
                   "wait_event_type = 'Lock'") == 1;
    }));
    EXPECT_EQ(db_->number("SELECT count(*) FROM (SELECT FROM outbox_webhook_endpoints WHERE "
                          "endpoint_id = 'one' FOR NO KEY UPDATE SKIP LOCKED) one"),
              1);
    let_go();
    writes.join();
    EXPECT_EQ(written, "");
    EXPECT_EQ(missed("one"), 20);
}

// As long as a transaction that counts what was missed may be met.
TEST_P(HeldRow, ForAMomentDelaysForAMomentAndAccusesNobody) {
    Rig rig(url_);
    ASSERT_EQ(rig.write(keyed(0, 20, 1)), "");
    for (int i = 0; i < 10; ++i) {
        bool met = false;
        rig.outlet().records = [&] { met = true; };
        hold("endpoints WHERE endpoint_id = 'two' FOR NO KEY UPDATE");
        ASSERT_EQ(rig.write(keyed(20 * i, 20 * i + 20, 1)), "");
        ASSERT_TRUE(rig.turn_until("it is met", [&] { return met; }));
        rig.turns(15);
        let_go();
        rig.turns(40);
        EXPECT_EQ(left("two"), 0) << "after a moment";
    }
    EXPECT_FALSE(rig.said("webhook_not_recorded")) << rig.remarks();
}

// Who counts holds the row for no longer than the statement takes: its commit waits for no disk.
TEST_P(HeldRow, ByWhoCountsWaitsForNoDisk) {
    db_->exec("CREATE TABLE seen AS SELECT ''::text AS how");
    db_->exec(
        "CREATE FUNCTION look() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN UPDATE public.seen "
        "SET how = current_setting('synchronous_commit'); RETURN NULL; END $$");
    db_->exec(
        "CREATE CONSTRAINT TRIGGER look AFTER UPDATE ON outbox_webhook_endpoints DEFERRABLE "
        "INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION look()");
    Rig rig(url_);
    rig.fill("two", webhook::kMaxQueuePerEndpoint);
    ASSERT_EQ(rig.write(keyed(0, 10, 1)), "");
    EXPECT_EQ(missed("two"), 10);
    EXPECT_EQ(db_->value("SELECT how FROM seen"), "off");
}

// By who writes to SQLite, or has PostgreSQL make an index.
class HeldTable : public DispatcherTest {};

INSTANTIATE_TEST_SUITE_P(Both, HeldTable, testing::Values(Backend::kPostgres, Backend::kSqlite),
                         [](const auto& info) { return backend_name(info.param); });

TEST_P(HeldTable, IsNoEndpointsMatter) {
    ASSERT_EQ(add_endpoint(url_, "one"), "");
    ASSERT_EQ(add_endpoint(url_, "two"), "");
    webhook::DispatchOptions options = with_a_long_lease();
    options.lease_renew_ms = 100;  // which goes on meanwhile
    Rig rig(url_, options, 1);
    ASSERT_EQ(rig.write(keyed(0, 20, 20)), "");
    ASSERT_TRUE(rig.turn_until("some are sent", [&] { return !rig.receivers.requests.empty(); }));
    ASSERT_GT(left(), 0);
    if (GetParam() == Backend::kSqlite) {
        db_->exec("BEGIN IMMEDIATE");
    } else {
        db_->exec("BEGIN");
        db_->exec("LOCK TABLE outbox_webhook_deliveries IN SHARE MODE");
    }
    ASSERT_TRUE(rig.turn_until("it finds the table held",
                               [&] { return rig.said("webhooks_database_away"); }));
    rig.turns(4, 400);  // in vain
    EXPECT_FALSE(rig.said("webhooks_database_back")) << rig.remarks();
    db_->exec("COMMIT");
    rig.turns(20, 100);
    EXPECT_EQ(left(), 0) << "nobody waits once it is free";
    EXPECT_EQ(rig.receivers.requests.size(), 40U);
    EXPECT_FALSE(rig.said("webhook_not_recorded")) << rig.remarks();
    EXPECT_EQ(rig.times_said("webhooks_database_away"), 1U) << rig.remarks();
    EXPECT_EQ(rig.times_said("webhooks_database_back"), 1U) << rig.remarks();
}

// Whatever an endpoint left behind.
TEST(WebhookLocks, WhatSomebodyHoldsOfAnEndpointThatIsGoneIsSweptLater) {
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    Pg holder(database.url());
    holder.exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('one', 'e1'), "
        "('one', 'e2')");
    const auto outlet = open_outlet(database.url());
    ASSERT_TRUE(outlet->acquire("tester", std::chrono::hours(1)).value_or_throw().has_value());
    holder.exec("BEGIN");
    holder.exec("SELECT FROM outbox_webhook_deliveries WHERE event_id = 'e1' FOR UPDATE");
    EXPECT_EQ(outlet->sweep("one").value_or_throw(), 1);
    EXPECT_EQ(outlet->sweep("one").value_or_throw(), 0);
    holder.exec("COMMIT");
    EXPECT_EQ(outlet->sweep("one").value_or_throw(), 1);
}

// A table of which no statistics were taken is small for the planner.
TEST(WebhookReads, TakeNoMoreOfALongQueueThanASlice) {
    constexpr int kReads = 20;
    constexpr int kQueued = 10'000;
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    Pg pg(database.url());
    pg.exec("ALTER TABLE outbox_webhook_deliveries SET (autovacuum_enabled = off)");
    pg.exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, payload) SELECT 'one', 'e' "
        "|| n, repeat('x', 200)::bytea FROM generate_series(1, " +
        std::to_string(kQueued) + ") n");
    {
        const auto outlet = open_outlet(database.url());
        const auto endpoints = outlet->endpoints().value_or_throw();
        webhook::Slice slice;
        slice.endpoint_id = "one";
        slice.created_at_us = endpoints.at(0).created_at_us;
        slice.revision = endpoints.at(0).revision;
        slice.max_rows = 32;
        for (int read = 0; read < kReads; ++read) {
            std::vector<webhook::Delivery> found;
            ASSERT_TRUE(outlet->fetch({&slice, 1}, {}, {1'000'000, 1'000'000}, found).ok());
            ASSERT_EQ(found.size(), slice.max_rows);
            slice.after = found.back().position;
        }
    }
    // The counters of a session arrive when it ends.
    const std::string fetched =
        "SELECT idx_tup_fetch + seq_tup_read FROM pg_stat_user_tables WHERE relname = "
        "'outbox_webhook_deliveries'";
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "the reads are counted",
                           [&] { return pg.number(fetched) >= kReads * 32; }));
    EXPECT_LT(pg.number(fetched), kQueued);
}

// As `statement_timeout` does, of 8 s, where a delivery takes 80 ms.
TEST(WebhookWrites, AnEventForWhichTheServerEndsTheStatementIsWrittenInParts) {
    constexpr int kEndpoints = 250;
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    Pg pg(database.url());
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    pg.exec(
        "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) SELECT 'more-' || n, "
        "url, secrets FROM outbox_webhook_endpoints, generate_series(2, " +
        std::to_string(kEndpoints) +
        ") n; CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF (SELECT "
        "count(*) FROM fresh) > 100 THEN RAISE 'slow' USING ERRCODE = '57014'; END IF; RETURN "
        "NULL; END $$; CREATE TRIGGER slow AFTER INSERT ON outbox_webhook_deliveries "
        "REFERENCING NEW TABLE AS fresh FOR EACH STATEMENT EXECUTE FUNCTION slow()");
    Rig rig(database.url());
    const std::string deliveries = "SELECT count(*) FROM outbox_webhook_deliveries";
    for (const char* id : {"e1", "e2"}) {
        for (int tries = 0; !rig.write({{.id = id, .key = "k"}}).empty(); ++tries) {
            ASSERT_LT(tries, 3);
        }
    }
    EXPECT_EQ(pg.number(deliveries), 2 * kEndpoints);
    EXPECT_EQ(pg.number("SELECT count(DISTINCT endpoint_id) FROM outbox_webhook_deliveries WHERE "
                        "event_id = 'e2' AND position > ALL (SELECT position FROM "
                        "outbox_webhook_deliveries WHERE event_id = 'e1')"),
              kEndpoints);
}

TEST(WebhookWrites, NothingThatWentIntoAFileThatWasReplacedMeanwhileIsWritten) {
    SqliteDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    const ReplacedInTransaction replaced(database.path(), "outbox_webhook_deliveries");
    Rig rig(database.url());
    rig.prepare();
    EXPECT_THAT(rig.write({{.id = "e0"}}), testing::HasSubstr("replaced"));
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    EXPECT_EQ(Sqlite(database.path()).value("SELECT event_id FROM outbox_webhook_deliveries"),
              "e0");
}

// As after a failover that lost the last transactions, or in a copy that was put in its place.
TEST(WebhookLease, OfAnotherOwnerWithTheSameEpochIsNotRenewed) {
    constexpr std::chrono::minutes kTtl{10};
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    const auto first = open_outlet(database.url());
    const auto second = open_outlet(database.url());
    ASSERT_EQ(first->acquire("first", kTtl).value_or_throw(), 1U);
    Pg pg(database.url());
    pg.exec(
        "UPDATE outbox_webhook_lease SET epoch = 0, owner = NULL, expires_at = NULL, "
        "backend_pid = NULL, backend_start = NULL; SELECT pg_terminate_backend(pid, 60000) FROM "
        "pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()");
    ASSERT_EQ(second->acquire("second", kTtl).value_or_throw(), 1U);
    static_cast<void>(first->renew(1, kTtl).ok());  // its session is gone
    EXPECT_FALSE(first->renew(1, kTtl).value_or_throw());
    EXPECT_TRUE(second->renew(1, kTtl).value_or_throw());
}

// Who cannot reach the database has not lost the lease, and does not say that it is back.
TEST(WebhookAway, ADatabaseThatIsAwayIsSaidToBeBackOnceItIs) {
    PostgresDatabase database;
    MigrateOptions options;
    options.side = MigrationSide::kConsumer;
    migrate(database.url(), options);
    ASSERT_EQ(add_endpoint(database.url(), "one"), "");
    const auto slash = database.url().rfind('/');
    const std::string name = database.url().substr(slash + 1);
    Pg admin(database.url().substr(0, slash) + "/postgres");
    Rig rig(database.url(), with_a_long_lease());
    ASSERT_EQ(rig.write({{.id = "e0"}}), "");
    const auto taken = [&] { return rig.receivers.taken("one").size(); };
    ASSERT_TRUE(rig.turn_until("it leads", [&] { return taken() == 1; }));
    rig.turns(3, 1'000);
    admin.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS false");
    admin.exec("SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE datname = '" +
               name + "'");
    rig.clock.advance_ms(kHourMs);  // to renew
    rig.turns(20, 250);
    EXPECT_EQ(rig.times_said("webhooks_database_away"), 1U);
    EXPECT_EQ(rig.times_said("webhooks_database_back"), 0U);
    admin.exec("ALTER DATABASE " + name + " ALLOW_CONNECTIONS true");
    ASSERT_TRUE(
        rig.turn_until("it is back", [&] { return rig.said("webhooks_database_back"); }, 250));
    ASSERT_TRUE(rig.turn_until(
        "the route writes again", [&] { return rig.write({{.id = "e1"}}).empty(); }, 250));
    ASSERT_TRUE(rig.turn_until("it delivers", [&] { return taken() == 2; }));
    EXPECT_EQ(rig.times_said("webhooks_database_away"), 1U);
    EXPECT_EQ(rig.times_said("webhooks_dispatching"), 1U) << "the lease was kept";
}

class WebhookRights : public testing::Test {
  protected:
    WebhookRights() {
        MigrateOptions options;
        options.side = MigrationSide::kConsumer;
        migrate(database_.url(), options);
        EXPECT_EQ(add_endpoint(database_.url(), "one"), "");
        owner_.exec(
            "DROP ROLE IF EXISTS webhook_relay; CREATE ROLE webhook_relay LOGIN "
            "PASSWORD 'test'");
        const auto at = url_.find("//") + 2;
        const auto host = url_.find('@');
        url_ = url_.substr(0, at) + "webhook_relay:test@" +
               url_.substr(host == std::string::npos ? at : host + 1);
    }
    ~WebhookRights() override {
        owner_.exec("DROP OWNED BY webhook_relay; DROP ROLE webhook_relay");
    }

    PostgresDatabase database_;
    Pg owner_{database_.url()};
    std::string url_ = database_.url();  // as that role
};

TEST_F(WebhookRights, TheDocumentedRightsOfARelayAreEnoughAndAllAreNeeded) {
    std::vector<std::pair<std::string, std::string>> rights;
    for (const postgres::SchemaObject& object : postgres::schema_objects()) {
        if (!object.name.starts_with("outbox_webhook") || object.relay.empty()) continue;
        owner_.exec("GRANT " + std::string(object.relay) + " ON " + std::string(object.name) +
                    " TO webhook_relay");
        std::string_view rest = object.relay;
        while (!rest.empty()) {
            const auto end = std::min(rest.find(", "), rest.size());
            rights.emplace_back(rest.substr(0, end), object.name);
            rest.remove_prefix(std::min(end + 2, rest.size()));
        }
    }
    {
        Rig rig(url_);
        int failures = 1;
        rig.receivers.answer = [&](const auto&, const auto&) -> std::optional<Answer> {
            return failures-- > 0 ? ScriptedReceivers::refused() : ScriptedReceivers::done();
        };
        ASSERT_EQ(rig.write({{.id = "e1"}, {.id = "e2"}}), "");
        ASSERT_TRUE(rig.turn_until(
            "all is delivered",
            [&] { return owner_.number("SELECT count(*) FROM outbox_webhook_deliveries") == 0; },
            500));
        rig.finish();
    }
    for (const auto& [right, table] : rights) {
        owner_.exec("REVOKE " + right + " ON " + table + " FROM webhook_relay");
        const auto status = open_inlet(url_)->prepare();
        ASSERT_FALSE(status.ok()) << right << " on " << table;
        EXPECT_NE(status.error().message.find(right + " ON "), std::string::npos)
            << status.error().message;
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        owner_.exec("GRANT " + right + " ON " + table + " TO webhook_relay");
    }
}

// Its endpoints would get nothing, and the events would be finished.
TEST_F(WebhookRights, ATableOfWhichRowSecurityHidesRowsIsAnError) {
    owner_.exec("GRANT ALL ON ALL TABLES IN SCHEMA public TO webhook_relay");
    for (const std::string table :
         {"outbox_webhook_deliveries", "outbox_webhook_endpoints", "outbox_webhook_lease"}) {
        Rig rig(url_);
        ASSERT_EQ(rig.write({{.id = table}}), "");
        ASSERT_TRUE(rig.turn_until(
            "it is delivered", [&] { return rig.receivers.taken("one").size() == 1; }, 500));
        rig.finish();
        owner_.exec("ALTER TABLE " + table + " ENABLE ROW LEVEL SECURITY");
        const auto status = open_inlet(url_)->prepare();
        ASSERT_FALSE(status.ok()) << table;
        EXPECT_NE(status.error().message.find("row security of"), std::string::npos)
            << status.error().message;
        EXPECT_EQ(status.error().advice, Advice::kRetryDestination);
        owner_.exec("CREATE POLICY outbox ON " + table + " TO webhook_relay USING (true)");
        EXPECT_TRUE(open_inlet(url_)->prepare().ok()) << table;
        owner_.exec("DROP POLICY outbox ON " + table + "; ALTER TABLE " + table +
                    " DISABLE ROW LEVEL SECURITY");
    }
    Rig rig(url_);
    ASSERT_EQ(rig.write({{.id = "before"}}), "");
    owner_.exec("ALTER TABLE outbox_webhook_endpoints ENABLE ROW LEVEL SECURITY");
    EXPECT_NE(rig.write({{.id = "hidden"}}).find("row-level security"), std::string::npos);
    owner_.exec("ALTER TABLE outbox_webhook_endpoints DISABLE ROW LEVEL SECURITY");
    rig.finish();
}

}  // namespace
}  // namespace outbox::test
