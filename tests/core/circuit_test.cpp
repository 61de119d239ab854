#include "core/circuit.h"

#include <gtest/gtest.h>

namespace outbox::core {
namespace {

using State = Circuit::State;

class CircuitTest : public testing::Test {
  protected:
    void half_open() { circuit_.tick(now_us_ = circuit_.opens_until_us()); }
    void probe_ok(spi::Position position) {
        half_open();
        circuit_.probing(position);
        circuit_.answered(position, true);
    }

    std::int64_t now_us_ = 1'000'000;
    Circuit circuit_{RetryPolicy{200, 60'000, 0}};
};

TEST_F(CircuitTest, OpensOnAFailureAndClosesOnAProbe) {
    EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
    EXPECT_EQ(circuit_.state(), State::kOpen);
    circuit_.tick(circuit_.opens_until_us() - 1);
    EXPECT_EQ(circuit_.state(), State::kOpen);
    half_open();
    EXPECT_EQ(circuit_.state(), State::kHalfOpen);
    circuit_.probing(2);
    circuit_.answered(2, true);
    EXPECT_EQ(circuit_.state(), State::kClosed);
}

TEST_F(CircuitTest, WaitsLongerAfterEachFailedProbeUpToTheLimit) {
    std::int64_t last_wait = 0;
    circuit_.failed(1, now_us_, 0);
    for (int i = 0; i < 20; ++i) {
        const std::int64_t wait = circuit_.opens_until_us() - now_us_;
        EXPECT_GE(wait, last_wait);
        EXPECT_LE(wait, 60'000'000);
        last_wait = wait;
        half_open();
        circuit_.probing(1);
        circuit_.failed(1, now_us_, 0);
        EXPECT_EQ(circuit_.state(), State::kOpen);
    }
    EXPECT_GE(last_wait, 30'000'000);
}

TEST_F(CircuitTest, OutcomesOfRecordsSentBeforeItOpenedDecideNothing) {
    circuit_.failed(1, now_us_, 0);
    circuit_.answered(2, true);
    EXPECT_EQ(circuit_.state(), State::kOpen);
    half_open();
    circuit_.answered(3, true);
    EXPECT_EQ(circuit_.state(), State::kHalfOpen);
    circuit_.probing(4);
    EXPECT_FALSE(circuit_.failed(5, now_us_, 0));
    EXPECT_EQ(circuit_.state(), State::kHalfOpen);
    circuit_.answered(4, true);
    EXPECT_EQ(circuit_.state(), State::kClosed);
}

TEST_F(CircuitTest, AFailureThatFollowsOneEventWhileOthersSucceedIsItsOwn) {
    for (int round = 0; round < 2; ++round) {
        EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
        probe_ok(2 + round);
    }
    EXPECT_TRUE(circuit_.failed(1, now_us_, 0));
    EXPECT_EQ(circuit_.state(), State::kClosed);
}

TEST_F(CircuitTest, OneSuccessBetweenTwoFailuresIsNoProof) {
    EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
    probe_ok(2);
    EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
    EXPECT_EQ(circuit_.state(), State::kOpen);
}

TEST_F(CircuitTest, ADestinationThatComesAndGoesBlamesNoEvent) {
    for (int outage = 0; outage < 5; ++outage) {
        EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
        half_open();
        circuit_.probing(20 + outage);
        EXPECT_FALSE(circuit_.failed(20 + outage, now_us_, 0));
        probe_ok(10 + outage);
    }
}

// With few others to probe with, each that is at fault is probed again before another passes.
TEST_F(CircuitTest, EventsAtFaultDoNotExcuseEachOther) {
    const auto round = [this](spi::Position passes) {
        EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
        for (const spi::Position bad : {2, 3, 1}) {
            half_open();
            circuit_.probing(bad);
            EXPECT_FALSE(circuit_.failed(bad, now_us_, 0));
        }
        probe_ok(passes);
    };
    round(10);  // which may have been an outage
    round(11);
    round(12);
    for (const spi::Position bad : {1, 2, 3}) EXPECT_TRUE(circuit_.failed(bad, now_us_, 0));
    EXPECT_EQ(circuit_.state(), State::kClosed);
}

TEST_F(CircuitTest, AnOutageIsNoEvidenceAndTakesBackWhatThereWas) {
    for (int i = 0; i < 2; ++i) {
        EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
        probe_ok(10 + i);
    }
    EXPECT_FALSE(circuit_.failed(2, now_us_, 0));
    for (const spi::Position probe : {3, 4}) {
        half_open();
        circuit_.probing(probe);
        EXPECT_FALSE(circuit_.failed(probe, now_us_, 0));
    }
    half_open();
    circuit_.probing(1);
    EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
    probe_ok(12);
    for (const spi::Position position : {1, 2, 3, 4}) {
        EXPECT_FALSE(circuit_.failed(position, now_us_, 0));
        probe_ok(20 + position);
    }
}

// What failed in an outage and passes after it was not at fault: its next failure is its first.
TEST_F(CircuitTest, WhatPassesAfterAnOutageIsAsIfItHadNotFailed) {
    for (int outage = 0; outage < 5; ++outage) {
        for (const spi::Position position : {1, 2, 3}) {
            if (position != 1) half_open();
            circuit_.probing(position);
            EXPECT_FALSE(circuit_.failed(position, now_us_, 0));
        }
        probe_ok(10 + outage);
        for (const spi::Position position : {1, 2, 3}) circuit_.answered(position, true);
    }
}

TEST_F(CircuitTest, AnEventThatFailsWhileThereIsNoOtherIsBlamedWhenOthersCome) {
    for (int round = 0; round < 2; ++round) {
        EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
        for (int i = 0; i < 3; ++i) {
            half_open();
            circuit_.probing(1);
            EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
        }
        probe_ok(2 + round);
    }
    EXPECT_TRUE(circuit_.failed(1, now_us_, 0));
}

TEST_F(CircuitTest, TheNextFailureOfTheSameEventNeedsNewEvidence) {
    for (int round = 0; round < 2; ++round) {
        circuit_.failed(1, now_us_, 0);
        probe_ok(2 + round);
    }
    EXPECT_TRUE(circuit_.failed(1, now_us_, 0));
    EXPECT_FALSE(circuit_.failed(1, now_us_, 0));  // nothing has succeeded since: an outage
    EXPECT_EQ(circuit_.state(), State::kOpen);
    probe_ok(4);
    EXPECT_TRUE(circuit_.failed(1, now_us_, 0));
}

TEST_F(CircuitTest, TellsSeveralEventsAtFaultFromTheDestination) {
    for (int round = 0; round < 2; ++round) {
        for (const spi::Position bad : {1, 2}) {
            EXPECT_FALSE(circuit_.failed(bad, now_us_, 0));
            probe_ok(10 + bad);
        }
    }
    EXPECT_TRUE(circuit_.failed(1, now_us_, 0));
    EXPECT_TRUE(circuit_.failed(2, now_us_, 0));
    EXPECT_TRUE(circuit_.is_culprit(1));
    EXPECT_FALSE(circuit_.is_culprit(11));
}

TEST_F(CircuitTest, AnOutageIsNobodysFault) {
    for (spi::Position p = 1; p < 10; ++p) EXPECT_FALSE(circuit_.failed(p, now_us_, 0));
    for (int i = 0; i < 10; ++i) {
        half_open();
        circuit_.probing(1);
        EXPECT_FALSE(circuit_.failed(1, now_us_, 0));
    }
}

TEST_F(CircuitTest, ASuspectOpensItAndIsTheNextProbe) {
    circuit_.failed(1, now_us_, 0);
    probe_ok(2);
    circuit_.suspected(1, now_us_, 0);  // even though others succeed
    EXPECT_EQ(circuit_.state(), State::kOpen);
    EXPECT_EQ(circuit_.suspect(), 1);
    half_open();
    circuit_.probing(1);
    circuit_.answered(1, false);
    EXPECT_EQ(circuit_.suspect(), 0);
    EXPECT_EQ(circuit_.state(), State::kClosed);
}

TEST_F(CircuitTest, WhatFailedBesideTheOpenerIsABadProbeAndNotBlamed) {
    circuit_.failed(1, now_us_, 0);
    for (const spi::Position position : {1, 2, 2}) circuit_.avoid(position);
    EXPECT_EQ(circuit_.culprits().size(), 2U);
    EXPECT_TRUE(circuit_.is_culprit(2));
    for (int round = 0; round < 5; ++round) probe_ok(10);
    EXPECT_FALSE(circuit_.failed(2, now_us_, 0));
}

// It died at a position that is another event's by now, or at none.
TEST_F(CircuitTest, ALetterIsToldFromTheEventAtItsPosition) {
    const EventRef letter = EventRef::letter(1);
    circuit_.failed(letter, now_us_, 0);
    EXPECT_TRUE(circuit_.is_culprit(letter));
    EXPECT_FALSE(circuit_.is_culprit(1));
    EXPECT_FALSE(letter.is_none());
    half_open();
    circuit_.probing(1);
    circuit_.answered(letter, true);
    EXPECT_EQ(circuit_.state(), State::kHalfOpen) << "it is not the probe";
    circuit_.answered(1, true);
    EXPECT_EQ(circuit_.state(), State::kClosed);
}

TEST_F(CircuitTest, AskingTheDestinationItselfCountsAsAProbe) {
    circuit_.failed(1, now_us_, 0);
    probe_ok(2);
    circuit_.failed(3, now_us_, 0);
    half_open();
    circuit_.probing(0);
    EXPECT_FALSE(circuit_.failed(0, now_us_, 0));
    EXPECT_EQ(circuit_.state(), State::kOpen);
    half_open();
    circuit_.probing(0);
    circuit_.answered(0, false);
    EXPECT_EQ(circuit_.state(), State::kClosed);
}

}  // namespace
}  // namespace outbox::core
