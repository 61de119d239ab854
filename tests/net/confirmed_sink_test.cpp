// What no real server does when it is told to.

#include "net/confirmed_sink.h"

#include <gtest/gtest.h>
#include <utility>

namespace outbox::net {
namespace {

using namespace std::chrono_literals;

// By which sinks wait. A real one passes as others let this program run.
ConfirmedSink::Clock::time_point clock_now;

struct Server {
    std::vector<std::uint64_t> sent;
    std::vector<Answer> answers;
    std::optional<ErrorInfo> ends;
    std::size_t window = 100;
    std::uint64_t heard = 0;
    int connections = 0;
    int pings = 0;
    bool answers_each = true;
};

ErrorInfo error(Advice advice, const std::string& text) {
    return {ErrorCode::kPayloadTooLarge, advice, {}, text};
}

class Link final : public ConfirmedLink {
  public:
    explicit Link(Server& server) : server_(server) { ++server_.connections; }
    [[nodiscard]] std::size_t max_window() const override { return server_.window; }
    std::optional<ErrorInfo> send(std::uint64_t number, const spi::Record&) override {
        server_.sent.push_back(number);
        return std::nullopt;
    }
    void ping() override { ++server_.pings; }
    [[nodiscard]] std::size_t unsent() const override { return 0; }
    [[nodiscard]] std::uint64_t heard() const override { return server_.heard; }
    std::optional<ErrorInfo> exchange(std::vector<Answer>& out) override {
        out = std::exchange(server_.answers, {});
        if (!out.empty()) ++server_.heard;
        return std::exchange(server_.ends, std::nullopt);
    }
    void wait(std::chrono::milliseconds) const override {}
    [[nodiscard]] std::optional<ErrorInfo> unanswered(std::uint64_t,
                                                      std::chrono::milliseconds) override {
        if (server_.answers_each) return std::nullopt;
        return error(Advice::kRetryDestination, "unanswered");
    }
    [[nodiscard]] ErrorInfo silence(std::chrono::milliseconds) const override {
        return error(Advice::kRetryDestination, "silence");
    }

  private:
    Server& server_;
};

class Sink final : public ConfirmedSink {
  public:
    explicit Sink(Server& server, Limits limits = {})
        : ConfirmedSink(
              limits, "topic ",
              [&server](std::size_t) -> Result<std::unique_ptr<ConfirmedLink>> {
                  return std::unique_ptr<ConfirmedLink>(new Link(server));
              },
              [] { return clock_now; }) {}
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        static const spi::SinkCapabilities none{};
        return none;
    }
    Status check() override { return {}; }
    Result<std::string> destination() override { return std::string(); }
};

spi::Record record(std::uint64_t token, std::string_view topic, std::string_view value = "v") {
    spi::Record made;
    made.token = token;
    made.topic = topic;
    made.value = value;
    return made;
}

TEST(ConfirmedSink, AnswersComeInAnyOrderAndOnce) {
    Server server;
    Sink sink(server);
    for (std::uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(sink.publish(record(10 * i, "t")));
    spi::Completions out;
    sink.poll(0ms, out);
    ASSERT_EQ(server.sent, (std::vector<std::uint64_t>{1, 2, 3, 4}));
    server.answers = {{.number = 3},
                      {.number = 3},
                      {.number = 1, .error = error(Advice::kRetryDestination, "away")},
                      {.number = 99},
                      {.number = 0, .topic = "other"}};
    sink.poll(0ms, out);
    EXPECT_EQ(out.acknowledged, std::vector<std::uint64_t>{30});
    ASSERT_EQ(out.failed.size(), 1U);
    EXPECT_EQ(out.failed[0].token, 10U);
    EXPECT_EQ(out.failed[0].part, "topic t");
    server.answers = {{.topic = "t", .error = error(Advice::kRetryDestination, "no right")}};
    sink.poll(0ms, out);
    ASSERT_EQ(out.failed.size(), 3U);
    EXPECT_EQ(out.failed[2].token, 40U);
}

TEST(ConfirmedSink, TheWindowBoundsWhatLiesBehindOneWithoutAnAnswer) {
    Server server;
    server.window = 3;
    Sink sink(server);
    for (std::uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(sink.publish(record(i, "t")));
    spi::Completions out;
    sink.poll(0ms, out);
    EXPECT_EQ(server.sent.size(), 3U);
    server.answers = {{.number = 2}, {.number = 3}};
    sink.poll(0ms, out);
    EXPECT_EQ(server.sent.size(), 3U) << "the first is still open";
    server.answers = {{.number = 1}};
    sink.poll(0ms, out);
    EXPECT_EQ(server.sent.size(), 6U);
}

TEST(ConfirmedSink, TheLargestIsTakenForTheOneThatTheServerWouldNotHave) {
    Server server;
    Sink sink(server);
    const std::string large(1'000, 'x');
    ASSERT_TRUE(sink.publish(record(1, "t")));
    ASSERT_TRUE(sink.publish(record(2, "t", large)));
    ASSERT_TRUE(sink.publish(record(3, "t")));
    spi::Completions out;
    sink.poll(0ms, out);
    server.ends = error(Advice::kDeadLetter, "too large");
    sink.poll(0ms, out);
    ASSERT_EQ(out.failed.size(), 3U);
    EXPECT_EQ(out.failed[0].token, 2U);
    EXPECT_TRUE(out.failed[0].suspect);
    EXPECT_TRUE(out.failed[1].behind);
    EXPECT_TRUE(out.failed[2].behind);
    // Alone it is known to be the one.
    out.clear();
    ASSERT_TRUE(sink.publish(record(2, "t", large)));
    sink.poll(0ms, out);
    server.ends = error(Advice::kDeadLetter, "too large");
    sink.poll(0ms, out);
    ASSERT_EQ(out.failed.size(), 1U);
    EXPECT_FALSE(out.failed[0].suspect);
    EXPECT_EQ(out.failed[0].error.advice, Advice::kDeadLetter);
    EXPECT_EQ(server.connections, 2);
}

TEST(ConfirmedSink, TellsOfEndsThatNobodyIsBlamedForOnceAMinute) {
    Server server;
    Sink sink(server);
    for (std::uint64_t i = 1; i <= 4; ++i) ASSERT_TRUE(sink.publish(record(i, "t")));
    spi::Completions out;
    spi::SinkReport told;
    for (int i = 0; i < 3; ++i) {
        sink.poll(0ms, out);
        server.ends = error(Advice::kRetryDestination, "gone");
        sink.poll(0ms, out);
        sink.report(told);
    }
    ASSERT_EQ(told.notes.size(), 1U);
    EXPECT_EQ(told.notes[0].what, "connection_ended");
    EXPECT_EQ(told.notes[0].fields[0].second, "1");
    EXPECT_NE(told.notes[0].fields[1].second.find("gone"), std::string::npos);

    EndNews news;
    const EndNews::Time now{};
    told.notes.clear();
    for (int i = 0; i < 3; ++i) {
        news.ended(error(Advice::kRetryDestination, "gone"));
        news.report(told, now + i * 59s);
    }
    ASSERT_EQ(told.notes.size(), 2U);
    EXPECT_EQ(told.notes[1].fields[0].second, "2");
}

// A message that has ended a connection alone.
void suspect(EndSearch& search, std::string_view id, EndSearch::Time now = {}) {
    EXPECT_EQ(search.ended(1, id, now), EndSearch::Next::kAgain);
    EXPECT_TRUE(search.is_suspect(id));
}

TEST(EndSearch, SendsFewAfterAnEndAndSoonAllAgain) {
    EndSearch search;
    EXPECT_EQ(search.window(), SIZE_MAX);
    EXPECT_EQ(search.ended(100, "a", {}), EndSearch::Next::kAgain);
    EXPECT_FALSE(search.is_suspect("a"));
    EXPECT_EQ(search.window(), 1U);
    for (std::size_t i = 1; i < 50; ++i) search.answered("x", true);
    EXPECT_EQ(search.window(), 50U);
    for (std::size_t i = 0; i < 5'000; ++i) search.answered("x", false);
    EXPECT_EQ(search.window(), SIZE_MAX);
}

void pass(EndSearch& search, int messages) {
    for (int i = 0; i < messages; ++i) search.answered("x", true);
}

TEST(EndSearch, BlamesAMessageThatEndsConnectionsWhileOthersPass) {
    EndSearch search;
    suspect(search, "a");
    pass(search, 1);
    EXPECT_EQ(search.ended(1, "a", {}), EndSearch::Next::kAgain) << "once is no proof";
    pass(search, 2);
    EXPECT_EQ(search.ended(1, "a", {}), EndSearch::Next::kOwnFault);
    EXPECT_EQ(search.ended(1, "a", {}), EndSearch::Next::kOutage) << "nothing has passed since";
    pass(search, 1);
    EXPECT_EQ(search.ended(1, "a", {}), EndSearch::Next::kOwnFault);
    search.answered("a", true);
    EXPECT_FALSE(search.is_suspect("a"));
}

// As where each connection ends at its second message.
TEST(EndSearch, BlamesNobodyForItsPlaceOnTheConnection) {
    EndSearch search;
    pass(search, 1);
    suspect(search, "a");
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(search.may_go("a", EndSearch::Time() + 15s));
        pass(search, 1);
        EXPECT_FALSE(search.may_go("a", {}));
        EXPECT_EQ(search.ended(1, "a", {}), EndSearch::Next::kAgain);
    }
    pass(search, 2);
    EXPECT_TRUE(search.may_go("a", {}));
}

// As where it works on a message for a while before it does.
TEST(EndSearch, OneThatEndsAConnectionLateIsAloneForLonger) {
    using Turn = EndSearch::Turn;
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    std::chrono::milliseconds waited = 50ms;
    for (int places = 1; places < 5; ++places) {
        now += 30s;  // it connects anew
        pass(search, places);
        ASSERT_EQ(search.turn("a", true, now), Turn::kOthers);
        now += waited;
        const auto alone = std::chrono::seconds(1 << (places - 1));
        waited = alone;
        ASSERT_EQ(search.turn("a", true, now), Turn::kSuspect);
        now += alone - 1ms;
        EXPECT_EQ(search.turn("", false, now), Turn::kNobody);
        now += 1ms;
        EXPECT_EQ(search.turn("", false, now), Turn::kOthers);
        EXPECT_EQ(search.ended(2, "a", now), EndSearch::Next::kAgain);
    }
    pass(search, 9);
    ASSERT_EQ(search.turn("a", true, now), Turn::kOthers);
    now += waited;
    ASSERT_EQ(search.turn("a", true, now), Turn::kSuspect);
    now += 10s;
    EXPECT_EQ(search.ended(1, "a", now), EndSearch::Next::kAgain);
    now += 30s;
    EXPECT_EQ(search.turn("", true, now), Turn::kOthers);
    pass(search, 1);
    EXPECT_EQ(search.turn("a", true, now), Turn::kOthers);
    EXPECT_EQ(search.turn("a", true, now + 9s), Turn::kOthers) << "for as long as they waited";
    ASSERT_EQ(search.turn("a", true, now + 10s), Turn::kSuspect);
    EXPECT_EQ(search.ended(1, "a", now + 20s), EndSearch::Next::kOwnFault);
}

TEST(EndSearch, BlamesNobodyWhereNothingPasses) {
    EndSearch search;
    EXPECT_EQ(search.ended(1, "", {}), EndSearch::Next::kOutage) << "nobody would know it again";
    for (int i = 0; i < 100; ++i) {
        const auto next = search.ended(1, std::to_string(i % 10), {});
        EXPECT_EQ(next, i < 10 ? EndSearch::Next::kAgain : EndSearch::Next::kOutage) << i;
        search.answered("x", false);  // refused, which is no proof
    }
}

TEST(EndSearch, AnOutageIsSoonTold) {
    EndSearch search;
    int ends = 1;
    while (search.ended(100, "a", {}) == EndSearch::Next::kAgain && ends < 1'000) ++ends;
    EXPECT_EQ(ends, 51);
}

TEST(EndSearch, ASuspectGoesAloneAndHoldsOthersUpForAMomentOnly) {
    using Turn = EndSearch::Turn;
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    EXPECT_FALSE(search.may_go("a", now)) << "nothing has passed";
    search.answered("x", true);
    EXPECT_TRUE(search.may_go("a", now));
    EXPECT_EQ(search.turn("a", true, now), Turn::kOthers) << "not at once";
    now += 50ms;
    EXPECT_EQ(search.turn("a", false, now), Turn::kNobody);
    EXPECT_EQ(search.turn("a", true, now), Turn::kSuspect);
    EXPECT_EQ(search.turn("", false, now), Turn::kNobody);
    EXPECT_EQ(search.turn("", true, now), Turn::kOthers) << "it has been answered";
    EXPECT_EQ(search.turn("a", false, now), Turn::kNobody);
    now += 250ms;
    EXPECT_EQ(search.turn("a", false, now), Turn::kOthers) << "something is slow";
    EXPECT_EQ(search.turn("a", true, now), Turn::kOthers);
    now += 1s;
    EXPECT_EQ(search.turn("a", false, now), Turn::kNobody);
    now += 499ms;
    EXPECT_EQ(search.turn("a", false, now), Turn::kNobody) << "for twice as long";
    EXPECT_EQ(search.turn("a", true, now), Turn::kSuspect);
    now += 1s;
    EXPECT_EQ(search.turn("", false, now), Turn::kOthers) << "it is slow itself";
}

TEST(ConfirmedSink, ATopicThatIsNotAnsweredIsToldFromAServerThatSaysNothing) {
    for (const bool answers_each : {false, true}) {
        Server server;
        server.answers_each = answers_each;
        Sink sink(server, {.stuck_after = 500ms});
        ASSERT_TRUE(sink.publish(record(1, "t")));
        spi::Completions out;
        for (int i = 0; i < 1'000 && out.failed.empty(); ++i) {
            ++server.heard;  // it says something else
            sink.poll(0ms, out);
            clock_now += 1ms;
        }
        ASSERT_EQ(out.failed.size(), 1U);
        EXPECT_EQ(out.failed[0].part, answers_each ? "" : "topic t");
        EXPECT_EQ(out.failed[0].error.message, answers_each ? "silence" : "unanswered");
        clock_now += 60ms;  // until it connects again
        ASSERT_TRUE(sink.publish(record(2, "t")));
        out.clear();
        for (int i = 0; i < 1'000 && out.failed.empty(); ++i) {
            sink.poll(0ms, out);
            clock_now += 1ms;
        }
        ASSERT_EQ(out.failed.size(), 1U);
        EXPECT_EQ(out.failed[0].error.message, "silence");
        EXPECT_GT(server.pings, 0) << "it was asked first";
    }
}

// As one that bounds what it takes a second: its answers come in order, and late.
TEST(ConfirmedSink, AServerThatWorksThroughWhatItHasIsWaitedFor) {
    Server server;
    server.answers_each = false;
    server.window = SIZE_MAX;
    Sink sink(server, {.stuck_after = 400ms});
    spi::Completions out;
    for (std::uint64_t i = 1; i <= 1'000; ++i) ASSERT_TRUE(sink.publish(record(i, "t")));
    sink.poll(0ms, out);
    for (std::uint64_t next = 1; next <= 1'000; ++next) {
        server.answers = {{.number = next}};
        sink.poll(0ms, out);
        clock_now += 1ms;
    }
    EXPECT_EQ(out.acknowledged.size(), 1'000U);
    EXPECT_TRUE(out.failed.empty()) << out.failed.size();
    EXPECT_EQ(server.sent.size(), 1'000U) << "each once";
}

TEST(ConfirmedSink, ASlowTopicIsWaitedForHoweverManyOfAnotherPass) {
    Server server;
    server.answers_each = false;
    server.window = SIZE_MAX;
    Sink sink(server, {.records = 40, .stuck_after = 1s});
    spi::Completions out;
    for (std::uint64_t i = 1; i <= 30; ++i) ASSERT_TRUE(sink.publish(record(i, "slow")));
    sink.poll(0ms, out);
    std::uint64_t last = 30;
    for (std::uint64_t next = 1; next <= 30; ++next) {
        for (int i = 0; i < 10; ++i) {
            ASSERT_TRUE(sink.publish(record(++last, "t")));
            server.answers.push_back({.number = last});
        }
        server.answers.push_back({.number = next});
        const auto answers = std::exchange(server.answers, {});
        sink.poll(0ms, out);
        server.answers = answers;
        sink.poll(0ms, out);
        clock_now += 50ms;
    }
    EXPECT_EQ(out.acknowledged.size(), last);
    EXPECT_TRUE(out.failed.empty()) << out.failed.size();
}

// Others that were sent later show nothing of it.
TEST(ConfirmedSink, WhatIsOvertakenForTooLongHasFailedHoweverManyPass) {
    Server server;
    server.answers_each = false;
    server.window = SIZE_MAX;
    Sink sink(server, {.records = 10, .stuck_after = 1s});
    spi::Completions out;
    ASSERT_TRUE(sink.publish(record(1, "stuck")));
    std::uint64_t number = 1;
    for (; number < 5'000 && out.failed.empty(); ++number) {
        ASSERT_TRUE(sink.publish(record(number + 1, "t")));
        sink.poll(0ms, out);
        server.answers = {{.number = number + 1}};
        sink.poll(0ms, out);
        clock_now += 1ms;
    }
    ASSERT_EQ(out.failed.size(), 1U);
    EXPECT_EQ(out.failed[0].token, 1U);
    EXPECT_EQ(out.failed[0].error.message, "unanswered");
    EXPECT_EQ(out.acknowledged.size(), number - 1);
}

}  // namespace
}  // namespace outbox::net
