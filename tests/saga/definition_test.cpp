#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/error.h>
#include <outbox/saga/saga.h>

#include "tests/saga/steps.h"

namespace outbox::test {
namespace {

using testing::HasSubstr;

void expect_refused(const std::vector<SagaStep>& steps, const std::string& why,
                    const std::string& name = "order", int version = 1) {
    try {
        const SagaDefinition definition(name, version, steps);
        FAIL() << "accepted; expected: " << why;
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kConfigInvalid);
        EXPECT_EQ(error.advice(), Advice::kStop);
        EXPECT_THAT(error.info().message, HasSubstr(why));
        EXPECT_THAT(error.info().message, HasSubstr("saga '" + name + "'"));
    }
}

TEST(SagaDefinition, GoesFromStepToStepAndByTheAnswer) {
    SagaStep check = step("check");
    check.done.push_back({.event_type = "AlreadyPaid", .next = "ship"});
    check.done.push_back({.event_type = "NothingToDo", .next = std::string(kSagaEnd)});
    const SagaDefinition definition("order", 3, {check, step("pay"), final_step("ship")});
    const SagaStep& first = *definition.find("check");
    EXPECT_EQ(definition.following(first, first.done[0])->name, "pay");
    EXPECT_EQ(definition.following(first, first.done[1])->name, "ship");
    EXPECT_EQ(definition.following(first, first.done[2]), nullptr);
    const SagaStep& last = *definition.find("ship");
    EXPECT_EQ(definition.following(last, last.done[0]), nullptr);
    EXPECT_EQ(definition.find("other"), nullptr);
}

TEST(SagaDefinition, RefusesACycleAndNamesIt) {
    std::vector<SagaStep> steps{step("a"), step("b"), step("c")};
    steps[2].done.push_back({.event_type = "Again", .next = "b"});
    expect_refused(steps, "its steps are a cycle: b -> c -> b");
    steps[2].done.back().next = "c";
    expect_refused(steps, "c -> c");
}

TEST(SagaDefinition, RefusesAStepThatALaterRefusalWouldHaveToUndo) {
    std::vector<SagaStep> steps{final_step("reserve"), step("pay")};
    expect_refused(steps,
                   "step 'reserve' needs a compensation, because step 'pay' after it may be "
                   "refused (payRefused)");
    steps[0].nothing_to_undo = true;
    EXPECT_NO_THROW(SagaDefinition("order", 1, steps));
    steps[0].nothing_to_undo = false;
    steps[1].refused.clear();
    EXPECT_NO_THROW(SagaDefinition("order", 1, steps));
}

TEST(SagaDefinition, RefusesWhatCouldNotBeRun) {
    const auto with = [](auto change) {
        std::vector<SagaStep> steps{step("a"), step("b")};
        change(steps);
        return steps;
    };
    expect_refused({}, "it has no steps");
    expect_refused(with([](auto& s) { s[1].name = "a"; }), "two steps have the name 'a'");
    expect_refused(with([](auto& s) { s[1].name = ""; }), "a step's name has");
    expect_refused(with([](auto& s) { s[1].name = "a b"; }), "a step's name has");
    expect_refused(with([](auto& s) { s[0].timeout_ms = -1; }), "step 'a' has a timeout of -1 ms");
    expect_refused(with([](auto& s) { s[0].timeout_ms = 0, s[0].retries = 1; }), "need a timeout");
    expect_refused(with([](auto& s) { s[0].retries = 1'001; }), "the limit is 1000");
    expect_refused(with([](auto& s) { s[0].command = nullptr; }), "has no command");
    expect_refused(with([](auto& s) { s[0].done.clear(); }), "has no answer");
    expect_refused(with([](auto& s) { s[0].compensated.clear(); }), "needs both a compensation");
    expect_refused(with([](auto& s) { s[0].compensation = nullptr; }), "needs both");
    expect_refused(with([](auto& s) { s[0].nothing_to_undo = true; }), "nothing to undo");
    expect_refused(with([](auto& s) { s[0].refused = {"aDone"}; }), "the answer 'aDone' twice");
    expect_refused(with([](auto& s) { s[0].done[0].event_type = ""; }), "without an event type");
    expect_refused(with([](auto& s) { s[0].done[0].next = "x"; }), "'x' on the answer 'aDone'");
    expect_refused(with([](auto& s) { s[0].done[0].next = std::string(kSagaEnd); }),
                   "step 'b' is never reached");
    expect_refused({step("a")}, "the version must be at least 1", "order", 0);
    expect_refused({step("a")}, "a saga's name has", "or der");
    expect_refused(std::vector<SagaStep>(kMaxSagaSteps + 1), "the limit is 64");
}

TEST(Sagas, StartWithTheHighestVersionAndFindTheOthers) {
    const Sagas sagas("order-saga", {SagaDefinition("order", 2, {step("a")}),
                                     SagaDefinition("order", 1, {step("a")})});
    EXPECT_EQ(sagas.latest("order")->version(), 2);
    EXPECT_EQ(sagas.find("order", 1)->version(), 1);
    EXPECT_EQ(sagas.find("order", 3), nullptr);
    EXPECT_EQ(sagas.latest("other"), nullptr);
    EXPECT_EQ(sagas.versions("order"), "2, 1");
    EXPECT_EQ(sagas.versions("other"), "none");
    EXPECT_THROW(Sagas("", {SagaDefinition("order", 1, {step("a")})}), Error);
    EXPECT_THROW(Sagas("t", {}), Error);
    EXPECT_THROW(Sagas("t", {SagaDefinition("order", 1, {step("a")}),
                             SagaDefinition("order", 1, {step("b")})}),
                 Error);
}

TEST(Sagas, MetricsNameSagaAndState) {
    const std::vector<SagaCount> counts{
        {.name = "or\"der", .state = SagaState::kStuck, .count = 3, .oldest_s = 1.5}};
    EXPECT_THAT(saga_metrics(counts),
                HasSubstr("outbox_sagas{saga=\"or\\\"der\",state=\"stuck\"} 3\n"));
    EXPECT_THAT(saga_metrics(counts), HasSubstr("outbox_saga_waiting_seconds{"));
}

}  // namespace
}  // namespace outbox::test
