// Endpoints that come, change and go meanwhile, and what is said of them.
#include <atomic>
#include <mutex>
#include <thread>

#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

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

}  // namespace
}  // namespace outbox::test
