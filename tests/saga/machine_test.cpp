#include "saga/machine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <outbox/error.h>

#include "tests/saga/steps.h"

namespace outbox::saga {
namespace {

using test::final_step;
using test::step;
using testing::HasSubstr;
using What = SagaChange::What;

/// A saga reserve, pay, ship, of which the last cannot be undone, and what it sent last.
class SagaMachine : public testing::Test {
  protected:
    SagaMachine() { take(begin(definition_, saga_)); }

    void take(const Reaction& reaction) {
        what_ = reaction.what;
        sent_ = reaction.send ? (reaction.send->undo ? "undo " : "") + reaction.send->step->name
                              : std::string();
    }
    void answer(const std::string& name, const std::string& type) {
        take(react(definition_, saga_, Answer{name, type}));
    }
    void timer() { take(react(definition_, saga_, Timer{saga_.timer})); }
    void ask(Request request) { take(react(definition_, saga_, request)); }
    void expect(SagaState state, const std::string& sent, What what = What::kAdvanced) const {
        EXPECT_EQ(saga_state_name(saga_.state), saga_state_name(state));
        EXPECT_EQ(sent_, sent);
        EXPECT_EQ(what_, what);
    }
    ErrorInfo error_of(const Input& input) {
        const Instance before = saga_;
        try {
            react(definition_, saga_, input);
        } catch (const Error& error) {
            EXPECT_EQ(saga_, before);
            EXPECT_EQ(error.advice(), Advice::kDeadLetter);
            return error.info();
        }
        ADD_FAILURE() << "no error";
        return {};
    }

    SagaDefinition definition_{"order", 1, {step("reserve"), pay(), final_step("ship")}};
    Instance saga_{.id = "s", .name = "order", .version = 1};
    std::string sent_;
    What what_ = What::kAdvanced;

  private:
    static SagaStep pay() {
        SagaStep pay = step("pay");
        pay.retries = 1;
        return pay;
    }
};

TEST_F(SagaMachine, GoesThroughItsStepsToTheEnd) {
    expect(SagaState::kRunning, "reserve");
    answer("reserve", "reserveDone");
    expect(SagaState::kRunning, "pay");
    answer("pay", "payDone");
    expect(SagaState::kRunning, "ship");
    answer("ship", "shipDone");
    expect(SagaState::kCompleted, "");
}

TEST_F(SagaMachine, ARefusedStepHasTheEarlierOnesUndoneLastFirst) {
    answer("reserve", "reserveDone");
    answer("pay", "payRefused");
    expect(SagaState::kCompensating, "undo reserve");
    EXPECT_EQ(saga_.cause, "step 'pay' was refused: payRefused");
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensated, "");
}

TEST_F(SagaMachine, AStepWithoutAnAnswerIsSentAgainAndThenUndoneAsWell) {
    answer("reserve", "reserveDone");
    timer();
    expect(SagaState::kRunning, "pay");
    timer();
    expect(SagaState::kCompensating, "undo pay");
    EXPECT_EQ(saga_.cause, "step 'pay': no answer within 1000 ms, asked 2 times");
    answer("pay", "payDone");
    expect(SagaState::kCompensating, "", What::kLate);
    answer("pay", "payUndone");
    expect(SagaState::kCompensating, "undo reserve");
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensated, "");
}

TEST_F(SagaMachine, ACompensationWithoutAnAnswerIsSentAgainAndThenNeedsAnOperator) {
    answer("reserve", "reserveDone");
    answer("pay", "payRefused");
    timer();
    expect(SagaState::kStuck, "");
    EXPECT_THAT(saga_.trouble, HasSubstr("compensation of step 'reserve': no answer"));
    ask(Request::kAbort);
    expect(SagaState::kStuck, "", What::kStale);
    ask(Request::kResume);
    expect(SagaState::kCompensating, "undo reserve");
    EXPECT_EQ(saga_.trouble, "");
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensated, "");
    EXPECT_EQ(saga_.cause, "step 'pay' was refused: payRefused");
}

TEST_F(SagaMachine, BeyondThePointOfNoReturnItIsStuckInsteadOfTurningBack) {
    answer("reserve", "reserveDone");
    answer("pay", "payDone");
    timer();
    expect(SagaState::kStuck, "");
    EXPECT_THAT(saga_.trouble, HasSubstr("step 'ship' cannot be undone"));
    ask(Request::kAbort);
    expect(SagaState::kStuck, "", What::kRefused);
    EXPECT_THAT(saga_.trouble, HasSubstr("cannot be aborted"));
    ask(Request::kResume);
    expect(SagaState::kRunning, "ship");
    timer();
    answer("ship", "shipDone");
    expect(SagaState::kCompleted, "");
    EXPECT_EQ(saga_.trouble, "");
}

TEST_F(SagaMachine, TheSameAnswerAgainChangesNothing) {
    answer("reserve", "reserveDone");
    answer("reserve", "reserveDone");
    expect(SagaState::kRunning, "", What::kRepeat);
    EXPECT_EQ(saga_.steps[0].late, 1U);
    answer("reserve", "reserveRefused");
    expect(SagaState::kRunning, "", What::kLate);
}

TEST_F(SagaMachine, ATimerOfSomethingThatIsOverIsStale) {
    const std::int64_t old = saga_.timer;
    answer("reserve", "reserveDone");
    take(react(definition_, saga_, Timer{old}));
    expect(SagaState::kRunning, "", What::kStale);
    answer("pay", "payRefused");
    answer("reserve", "reserveUndone");
    timer();
    expect(SagaState::kCompensated, "", What::kStale);
}

TEST_F(SagaMachine, AnAbortedSagaUndoesWhatIsUnderWay) {
    answer("reserve", "reserveDone");
    ask(Request::kAbort);
    expect(SagaState::kCompensating, "undo pay");
    EXPECT_EQ(saga_.cause, "aborted by an operator");
    ask(Request::kAbort);
    expect(SagaState::kCompensating, "", What::kStale);
}

TEST_F(SagaMachine, AnAnswerForAnAbortedSagaHasItsStepUndoneAgain) {
    ask(Request::kAbort);
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensated, "");
    answer("reserve", "reserveDone");
    expect(SagaState::kCompensating, "undo reserve", What::kLate);
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensated, "");
    EXPECT_EQ(saga_.steps[0].late, 1U);
}

TEST_F(SagaMachine, AParticipantThatRefusesAndThenDoesItAfterAllIsUndone) {
    answer("reserve", "reserveDone");
    answer("pay", "payRefused");
    answer("pay", "payDone");
    expect(SagaState::kCompensating, "", What::kLate);
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensating, "undo pay");
    answer("pay", "payUndone");
    expect(SagaState::kCompensated, "");
}

TEST_F(SagaMachine, WhatWasDoneAfterItsRefusalAndCannotBeUndoneNeedsAnOperator) {
    SagaStep charge = final_step("charge");
    charge.refused = {"chargeRefused"};
    definition_ = SagaDefinition("order", 1, {step("reserve"), charge});
    answer("reserve", "reserveDone");
    answer("charge", "chargeRefused");
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensated, "");
    answer("charge", "chargeDone");
    expect(SagaState::kStuck, "", What::kLate);
    EXPECT_THAT(saga_.trouble, HasSubstr("undo it by hand, then resume"));
    ask(Request::kResume);
    expect(SagaState::kCompensated, "");
}

TEST_F(SagaMachine, RefusesAnswersThatItCannotHave) {
    EXPECT_THAT(error_of(Answer{"pay", "payDone"}).message, HasSubstr("which it has not sent"));
    EXPECT_THAT(error_of(Answer{"other", "payDone"}).message, HasSubstr("does not have"));
    EXPECT_THAT(error_of(Answer{"reserve", "payDone"}).message,
                HasSubstr("step 'reserve' is not declared to have the answer 'payDone'"));
}

TEST_F(SagaMachine, RefusesADefinitionThatWasChangedUnderItsVersion) {
    definition_ = SagaDefinition("order", 1, {step("pay")});
    const ErrorInfo error = error_of(Timer{1});
    EXPECT_EQ(error.code, ErrorCode::kUnsupported);
    EXPECT_THAT(error.message, HasSubstr("a definition must not change"));
}

TEST_F(SagaMachine, AStepWithNothingToUndoIsPassedOver) {
    SagaStep look = final_step("look");
    look.nothing_to_undo = true;
    definition_ = SagaDefinition("order", 1, {step("reserve"), look, step("pay")});
    answer("reserve", "reserveDone");
    answer("look", "lookDone");
    answer("pay", "payRefused");
    expect(SagaState::kCompensating, "undo reserve");
    answer("look", "lookDone");
    answer("reserve", "reserveUndone");
    expect(SagaState::kCompensated, "");
    answer("look", "lookDone");
    expect(SagaState::kCompensated, "", What::kLate);
}

TEST_F(SagaMachine, RecordsSurviveTheirWayThroughTheTable) {
    answer("reserve", "reserveDone");
    answer("reserve", "reserveDone");
    timer();
    EXPECT_EQ(steps_of_json("s", to_json(saga_.steps)), saga_.steps);
    for (const char* text : {"[{}]", "no",
                             R"([{"step":"a","state":"x","attempts":1,"late":0,)"
                             R"("can_undo":true}])"}) {
        EXPECT_THROW(static_cast<void>(steps_of_json("s", text)), Error) << text;
    }
}

}  // namespace
}  // namespace outbox::saga
