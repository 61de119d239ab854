// What waits, for how long, and what the next relay knows of it.
#include "tests/webhook/dispatcher_fixture.h"

namespace outbox::test {
namespace {

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

}  // namespace
}  // namespace outbox::test
