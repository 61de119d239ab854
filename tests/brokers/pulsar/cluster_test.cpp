// Several brokers, and what one broker alone never says.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <thread>

#include "brokers/pulsar/sink.h"
#include "tests/brokers/pulsar/fake_broker.h"
#include "tests/brokers/troubles.h"
#include "tests/support/eventually.h"
#include "tests/support/files.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using pulsar::PulsarSink;
using Place = FakeBroker::Place;

pulsar::PulsarConfig config_of(const FakeBroker& broker) {
    auto config = pulsar::make_config("pulsar://127.0.0.1:" + std::to_string(broker.port()), {})
                      .value_or_throw();
    config.stuck_after = 30s;
    return config;
}

FakeBroker::Behaviour all_at(int port) {
    return {.lookup = [port](const std::string&, bool) { return Place{.port = port}; }};
}

// The topic "away" is at one port, others at another.
FakeBroker::Behaviour away_at(int away, int others) {
    return {.lookup = [away, others](const std::string& topic, bool) {
        return Place{.port = topic.ends_with("/away") ? away : others};
    }};
}

bool is_bad(const std::string& frame, std::size_t) {
    return frame.find(kEndsConnections) != std::string::npos;
}

std::vector<Letter> here_and_away() {
    auto sent = letters("here", 20, 4);
    for (std::size_t i = 1; i < sent.size(); i += 4) sent[i].topic = "away";
    return sent;
}

TEST(PulsarCluster, ARedirectLeadsToTheBrokerWithTheWordOfTheOneBefore) {
    FakeBroker last(all_at(0));
    last.set_behaviour(all_at(last.port()));
    bool was_authoritative = false;
    FakeBroker second({.lookup = [&](const std::string&, bool authoritative) {
        was_authoritative = authoritative;
        return Place{.port = last.port()};
    }});
    FakeBroker first({.lookup = [&](const std::string&, bool) {
        return Place{.port = second.port(), .redirects = true, .authoritative = true};
    }});
    PulsarSink sink(config_of(first));
    EXPECT_EQ(outcome_of(sink, letters("t", 10, 10)).acknowledged.size(), 10U);
    EXPECT_TRUE(was_authoritative);
    EXPECT_EQ(last.messages(), 10U);
    EXPECT_EQ(first.messages() + second.messages(), 0U);
}

TEST(PulsarCluster, BrokersThatNameEachOtherForEverAreAFailureOfTheTopic) {
    FakeBroker one(all_at(0));
    one.set_behaviour({.lookup = [&](const std::string&, bool) {
        return Place{.port = one.port(), .redirects = true};
    }});
    PulsarSink sink(config_of(one));
    const auto failed = failure_of(sink, "t");
    EXPECT_EQ(failed.error.backend_code, "REDIRECTS") << describe(failed.error);
    EXPECT_EQ(failed.part, "topic t");
}

TEST(PulsarCluster, AProxyIsAskedForAConnectionToTheBroker) {
    FakeBroker proxy({.lookup = [](const std::string&, bool) {
        return Place{.port = 1234, .through_proxy = true, .host = "hidden"};
    }});
    PulsarSink sink(config_of(proxy));
    EXPECT_EQ(outcome_of(sink, letters("t", 10, 10)).acknowledged.size(), 10U);
    EXPECT_THAT(proxy.asked(), testing::ElementsAre("hidden:1234"));
}

TEST(PulsarCluster, ABrokerThatIsAwayIsAFailureOfItsTopicsAlone) {
    FakeBroker first(all_at(0));
    first.set_behaviour(away_at(free_port(), first.port()));
    PulsarSink sink(config_of(first));
    const auto out = outcome_of(sink, here_and_away());
    EXPECT_EQ(out.acknowledged.size(), 15U);
    ASSERT_EQ(out.failed.size(), 5U);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kConnectFailed) << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].part, "topic away");
}

TEST(PulsarCluster, WhatWasUnderWayToABrokerThatIsLostGoesToTheNext) {
    FakeBroker first(all_at(0));
    FakeBroker second({.lookup = {}, .answers_messages = false});
    first.set_behaviour(away_at(second.port(), first.port()));
    PulsarSink sink(config_of(first));
    const auto sent = here_and_away();
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink.publish(sent[i].record(i)));
    spi::Completions out;
    ASSERT_TRUE(eventually(60s, "it has as many as it may", [&] {
        sink.poll(10ms, out);
        return second.messages() == 4 && out.acknowledged.size() == 15;
    }));
    first.set_behaviour(all_at(first.port()));
    second.drop_connections();
    ASSERT_TRUE(eventually(60s, "the other one has them", [&] {
        sink.poll(10ms, out);
        return out.acknowledged.size() == sent.size();
    }));
    EXPECT_TRUE(out.failed.empty());
    EXPECT_EQ(first.messages(), 20U);
}

TEST(PulsarCluster, ABrokerThatLosesEachConnectionIsAFailureOfItsTopics) {
    FakeBroker first(all_at(0));
    FakeBroker second({.lookup = {}, .answers_messages = false});
    first.set_behaviour(away_at(second.port(), first.port()));
    PulsarSink sink(config_of(first));
    const auto sent = letters("away", 1, 1);
    ASSERT_TRUE(sink.publish(sent[0].record(0)));
    spi::Completions out;
    std::size_t seen = 0;
    ASSERT_TRUE(eventually(60s, "it is given up", [&] {
        sink.poll(10ms, out);
        if (second.messages() > seen) second.drop_connections();
        seen = second.messages();
        return !out.failed.empty();
    }));
    EXPECT_EQ(out.failed[0].part, "topic away");
    EXPECT_EQ(out.failed[0].error.advice, Advice::kRetryDestination);
}

// Offers it again whenever it fails, and always some others, until it has failed `times` times for
// its own fault. No other may fail.
void expect_it_is_found(PulsarSink& sink, Letter bad, const std::vector<Letter>& others,
                        std::size_t times) {
    constexpr std::uint64_t kBad = 0;
    constexpr std::size_t kWaiting = 50;
    bad.id = "bad";
    bad.value = kEndsConnections;
    ASSERT_TRUE(sink.publish(bad.record(kBad)));
    std::size_t next = 0;
    std::size_t found = 0;
    std::size_t taken = 0;
    spi::Completions out;
    const auto end = std::chrono::steady_clock::now() + 120s;
    while (found < times || taken < next) {
        ASSERT_LT(std::chrono::steady_clock::now(), end) << found << " times, " << taken;
        while (found < times && next - taken < kWaiting) {
            ASSERT_TRUE(sink.publish(others[next % others.size()].record(next + 1)));
            ++next;
        }
        out.clear();
        sink.poll(10ms, out);
        taken += out.acknowledged.size();
        for (const auto& failed : out.failed) {
            ASSERT_EQ(failed.token, kBad) << describe(failed.error);
            ASSERT_EQ(failed.error.code, ErrorCode::kRecordRefused) << describe(failed.error);
            EXPECT_THAT(failed.error.message, testing::HasSubstr("event " + bad.id + " "));
            if (++found < times) ASSERT_TRUE(sink.publish(bad.record(kBad)));
        }
    }
}

TEST(PulsarCluster, AnEventThatEndsEachConnectionIsFoundWhileOthersPass) {
    FakeBroker first(all_at(0));
    FakeBroker second({.lookup = {}, .ends = is_bad});
    first.set_behaviour(all_at(second.port()));
    PulsarSink sink(config_of(first));
    expect_what_ends_connections_is_found(sink, "t", "topic t");
}

// Of a topic that is found later than all others of the broker.
TEST(PulsarCluster, AnEventThatEndsEachConnectionIsFoundWhileOtherTopicsPass) {
    FakeBroker broker(all_at(0));
    FakeBroker slow({.lookup = [&](const std::string&, bool) {
        std::this_thread::sleep_for(200ms);
        return Place{.port = broker.port()};
    }});
    broker.set_behaviour({.lookup =
                              [&](const std::string& topic, bool) {
                                  const bool is_slow = topic.ends_with("/bad");
                                  return Place{.port = is_slow ? slow.port() : broker.port(),
                                               .redirects = is_slow};
                              },
                          .ends = is_bad});
    PulsarSink sink(config_of(broker));
    auto others = letters("", 20'000, 20'000);
    for (std::size_t i = 0; i < others.size(); ++i) others[i].topic = "t" + std::to_string(i % 5);
    expect_it_is_found(sink, letters("bad", 1, 1)[0], others, 3);
}

// As where a broker dies of it, or a proxy: all connections end, and that of lookups first.
TEST(PulsarCluster, AnEventThatEndsAllConnectionsIsFoundWhileOthersPass) {
    FakeBroker first(all_at(0));
    FakeBroker second({.lookup = {}, .ends = [&](const std::string& frame, std::size_t place) {
                           if (!is_bad(frame, place)) return false;
                           first.drop_connections();
                           std::this_thread::sleep_for(30ms);
                           return true;
                       }});
    first.set_behaviour(all_at(second.port()));
    PulsarSink sink(config_of(first));
    expect_it_is_found(sink, letters("bad", 1, 1)[0], letters("t", 20'000, 20'000), 3);
}

// What is kept back meanwhile is not given up for want of an answer.
TEST(PulsarCluster, AnEventThatEndsEachConnectionAfterAWhileIsFoundAndNothingIsGivenUp) {
    FakeBroker broker(all_at(0));
    broker.set_behaviour({.lookup = all_at(broker.port()).lookup,
                          .ends = [](const std::string& frame, std::size_t place) {
                              const bool ends = is_bad(frame, place);
                              if (ends) std::this_thread::sleep_for(700ms);
                              return ends;
                          }});
    auto impatient = config_of(broker);
    impatient.stuck_after = 2s;
    PulsarSink sink(impatient);
    expect_it_is_found(sink, letters("bad", 1, 1)[0], letters("t", 20'000, 20'000), 2);
}

TEST(PulsarCluster, ABrokerThatLosesEachConnectionWhileAnotherTakesAllIsNoFaultOfItsEvents) {
    FakeBroker first(all_at(0));
    FakeBroker second({.lookup = {}, .ends = [](const std::string&, std::size_t) { return true; }});
    first.set_behaviour(away_at(second.port(), first.port()));
    PulsarSink sink(config_of(first));
    const auto away = letters("away", 3, 3);
    const auto here = letters("here", 20'000, 20'000);
    for (std::size_t i = 0; i < away.size(); ++i) ASSERT_TRUE(sink.publish(away[i].record(i)));
    std::map<std::size_t, std::size_t> failures;
    std::size_t next = 0;
    spi::Completions out;
    ASSERT_TRUE(eventually(120s, "each has failed again and again", [&] {
        if (sink.publish(here[next % here.size()].record(away.size() + next))) ++next;
        out.clear();
        sink.poll(10ms, out);
        for (const auto& failed : out.failed) {
            EXPECT_EQ(failed.part, "topic away") << describe(failed.error);
            EXPECT_EQ(failed.error.advice, Advice::kRetryDestination) << describe(failed.error);
            ++failures[failed.token];
            EXPECT_TRUE(sink.publish(away[failed.token].record(failed.token)));
        }
        return failures.size() == away.size() &&
               std::all_of(failures.begin(), failures.end(),
                           [](const auto& one) { return one.second >= 4; });
    }));
}

TEST(PulsarCluster, AWayThatEndsEachConnectionAtItsThirdMessageIsNobodysFault) {
    FakeBroker broker(all_at(0));
    broker.set_behaviour(
        {.lookup = all_at(broker.port()).lookup,
         .ends = [](const std::string&, std::size_t place) { return place == 3; }});
    PulsarSink sink(config_of(broker));
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(letters("t", 200, 10)), "");
    EXPECT_EQ(courier.acknowledged(), 200U);
    EXPECT_EQ(courier.failures(), 0U);
}

TEST(PulsarCluster, ATopicThatNobodySaysAWordOfWaitsAlone) {
    FakeBroker first(all_at(0));
    first.set_behaviour(away_at(0, first.port()));
    auto impatient = config_of(first);
    impatient.stuck_after = 3s;  // of a broker that answers all else meanwhile
    PulsarSink sink(impatient);
    const auto out = outcome_of(sink, here_and_away());
    EXPECT_EQ(out.acknowledged.size(), 15U);
    ASSERT_EQ(out.failed.size(), 5U);
    EXPECT_EQ(out.failed[0].error.code, ErrorCode::kSinkTimeout) << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].part, "topic away");
}

// One that waits keeps no row of what was answered behind it, nor does its answer come too late.
TEST(PulsarCluster, MessagesWithoutAnAnswerWaitAloneHoweverManyAreAnswered) {
    FakeBroker first(all_at(0));
    FakeBroker second({.lookup = {}, .answers_messages = false});
    first.set_behaviour(away_at(second.port(), first.port()));
    auto narrow = config_of(first);
    narrow.max_records = 20;
    narrow.stuck_after = 4s;  // of a broker that answers all else meanwhile
    PulsarSink sink(narrow);
    const auto stuck = letters("away", 3, 3);
    for (std::size_t i = 0; i < stuck.size(); ++i) ASSERT_TRUE(sink.publish(stuck[i].record(i)));
    const auto sent = letters("here", 400, 400);
    spi::Completions out;
    std::size_t next = 0;
    ASSERT_TRUE(eventually(60s, "all have an outcome", [&] {
        while (next < sent.size() && sink.publish(sent[next].record(100 + next))) ++next;
        sink.poll(10ms, out);
        return out.acknowledged.size() + out.failed.size() == 403;
    }));
    EXPECT_EQ(out.acknowledged.size(), 400U);
    ASSERT_EQ(out.failed.size(), 3U);
    EXPECT_EQ(out.failed[0].error.backend_code, "UNANSWERED") << describe(out.failed[0].error);
    EXPECT_EQ(out.failed[0].part, "topic away");
}

}  // namespace
}  // namespace outbox::test
