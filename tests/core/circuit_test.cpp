#include "core/circuit.h"

#include <gtest/gtest.h>

namespace outbox::core {
namespace {

using State = Circuit::State;

class CircuitTest : public testing::Test {
  protected:
    void half_open() { circuit.tick(now_us = circuit.opens_until_us()); }
    void probe_ok(spi::Position position) {
        half_open();
        circuit.probing(position);
        circuit.answered(position, true);
    }

    std::int64_t now_us = 1'000'000;
    Circuit circuit{RetryPolicy{200, 60'000, 0}};
};

TEST_F(CircuitTest, OpensOnAFailureAndClosesOnAProbe) {
    EXPECT_FALSE(circuit.failed(1, now_us, 0));
    EXPECT_EQ(circuit.state(), State::kOpen);
    circuit.tick(circuit.opens_until_us() - 1);
    EXPECT_EQ(circuit.state(), State::kOpen);
    half_open();
    EXPECT_EQ(circuit.state(), State::kHalfOpen);
    circuit.probing(2);
    circuit.answered(2, true);
    EXPECT_EQ(circuit.state(), State::kClosed);
}

TEST_F(CircuitTest, WaitsLongerAfterEachFailedProbeUpToTheLimit) {
    std::int64_t last_wait = 0;
    circuit.failed(1, now_us, 0);
    for (int i = 0; i < 20; ++i) {
        const std::int64_t wait = circuit.opens_until_us() - now_us;
        EXPECT_GE(wait, last_wait);
        EXPECT_LE(wait, 60'000'000);
        last_wait = wait;
        half_open();
        circuit.probing(1);
        circuit.failed(1, now_us, 0);
        EXPECT_EQ(circuit.state(), State::kOpen);
    }
    EXPECT_GE(last_wait, 30'000'000);
}

TEST_F(CircuitTest, OutcomesOfRecordsSentBeforeItOpenedDecideNothing) {
    circuit.failed(1, now_us, 0);
    circuit.answered(2, true);
    EXPECT_EQ(circuit.state(), State::kOpen);
    half_open();
    circuit.answered(3, true);
    EXPECT_EQ(circuit.state(), State::kHalfOpen);
    circuit.probing(4);
    EXPECT_FALSE(circuit.failed(5, now_us, 0));
    EXPECT_EQ(circuit.state(), State::kHalfOpen);
    circuit.answered(4, true);
    EXPECT_EQ(circuit.state(), State::kClosed);
}

TEST_F(CircuitTest, AFailureThatFollowsOneEventWhileOthersSucceedIsItsOwn) {
    EXPECT_FALSE(circuit.failed(1, now_us, 0));
    probe_ok(2);
    EXPECT_TRUE(circuit.failed(1, now_us, 0));
    EXPECT_EQ(circuit.state(), State::kClosed);
}

TEST_F(CircuitTest, TheNextFailureOfTheSameEventNeedsNewEvidence) {
    circuit.failed(1, now_us, 0);
    probe_ok(2);
    EXPECT_TRUE(circuit.failed(1, now_us, 0));
    EXPECT_FALSE(circuit.failed(1, now_us, 0));  // nothing has succeeded since: an outage
    EXPECT_EQ(circuit.state(), State::kOpen);
}

TEST_F(CircuitTest, TellsSeveralEventsAtFaultFromTheDestination) {
    for (int round = 0; round < 3; ++round) {
        circuit.failed(1, now_us, 0);
        if (circuit.state() == State::kOpen) probe_ok(10);
        circuit.failed(2, now_us, 0);
        if (circuit.state() == State::kOpen) probe_ok(11);
    }
    circuit.answered(12, true);
    EXPECT_TRUE(circuit.failed(1, now_us, 0));
    EXPECT_TRUE(circuit.failed(2, now_us, 0));
    EXPECT_TRUE(circuit.is_culprit(1));
    EXPECT_FALSE(circuit.is_culprit(10));
}

TEST_F(CircuitTest, AnOutageIsNobodysFault) {
    for (spi::Position p = 1; p < 10; ++p) EXPECT_FALSE(circuit.failed(p, now_us, 0));
    for (int i = 0; i < 10; ++i) {
        half_open();
        circuit.probing(1);
        EXPECT_FALSE(circuit.failed(1, now_us, 0));
    }
}

TEST_F(CircuitTest, ASuspectOpensItAndIsTheNextProbe) {
    circuit.failed(1, now_us, 0);
    probe_ok(2);
    circuit.suspected(1, now_us, 0);  // even though others succeed
    EXPECT_EQ(circuit.state(), State::kOpen);
    EXPECT_EQ(circuit.suspect(), 1);
    half_open();
    circuit.probing(1);
    circuit.answered(1, false);
    EXPECT_EQ(circuit.suspect(), 0);
    EXPECT_EQ(circuit.state(), State::kClosed);
}

TEST_F(CircuitTest, AskingTheDestinationItselfCountsAsAProbe) {
    circuit.failed(1, now_us, 0);
    probe_ok(2);
    circuit.failed(3, now_us, 0);
    half_open();
    circuit.probing(0);
    EXPECT_FALSE(circuit.failed(0, now_us, 0));
    EXPECT_EQ(circuit.state(), State::kOpen);
    half_open();
    circuit.probing(0);
    circuit.answered(0, false);
    EXPECT_EQ(circuit.state(), State::kClosed);
}

}  // namespace
}  // namespace outbox::core
