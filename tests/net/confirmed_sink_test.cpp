// What no real server does when it is told to.

#include "net/confirmed_sink.h"

#include <array>
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
    // What of a connection, of which so much has been sent, with this record, ends it; all else is
    // answered at once.
    std::function<bool(const spi::Record&, std::size_t messages, std::size_t bytes)> ends_for = {};
};

ErrorInfo error(Advice advice, const std::string& text) {
    return {ErrorCode::kPayloadTooLarge, advice, {}, text};
}

class Link final : public ConfirmedLink {
  public:
    explicit Link(Server& server) : server_(server) { ++server_.connections; }
    [[nodiscard]] std::size_t max_window() const override { return server_.window; }
    std::optional<ErrorInfo> send(std::uint64_t number, const spi::Record& record) override {
        server_.sent.push_back(number);
        if (server_.ends_for == nullptr || server_.ends) return std::nullopt;
        bytes_ += record.value.size();
        if (server_.ends_for(record, ++messages_, bytes_)) {
            server_.ends = error(Advice::kRetryDestination, "gone");
        } else {
            server_.answers.push_back({.number = number});
        }
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
    std::size_t messages_ = 0;
    std::size_t bytes_ = 0;
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

TEST(ConfirmedSink, TheWindowBoundsWhatHasNoAnswer) {
    Server server;
    server.window = 3;
    Sink sink(server);
    for (std::uint64_t i = 1; i <= 10; ++i) ASSERT_TRUE(sink.publish(record(i, "t")));
    spi::Completions out;
    sink.poll(0ms, out);
    EXPECT_EQ(server.sent.size(), 3U);
    server.answers = {{.number = 2}, {.number = 3}};
    sink.poll(0ms, out);
    EXPECT_EQ(server.sent.size(), 5U) << "only the first is still open";
    server.answers = {{.number = 1}, {.number = 4}};
    sink.poll(0ms, out);
    EXPECT_EQ(server.sent.size(), 7U);
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

// Connecting blocks, and the relay has nobody else to publish meanwhile.
TEST(ConfirmedSink, WhatComesWhileItConnectsGoesBeforeASuspect) {
    Server server;
    Sink sink(server);
    spi::Record first = record(1, "t");
    first.id = "first";
    ASSERT_TRUE(sink.publish(first));
    spi::Completions out;
    sink.poll(0ms, out);
    server.ends = error(Advice::kRetryDestination, "gone");
    sink.poll(0ms, out);
    for (int i = 0; i < 10 && server.connections < 2; ++i) sink.poll(0ms, out);
    ASSERT_TRUE(sink.publish(record(2, "t")));
    sink.poll(0ms, out);
    ASSERT_EQ(server.sent.size(), 2U);
    server.answers = {{.number = server.sent.back()}};
    sink.poll(0ms, out);
    EXPECT_EQ(out.acknowledged, std::vector<std::uint64_t>{2});
    EXPECT_TRUE(out.failed.empty());
    // One that it ends at once is no idle one.
    for (int i = 0; i < 10 && server.connections < 3; ++i) sink.poll(0ms, out);
    server.ends = error(Advice::kRetryDestination, "gone again");
    sink.poll(0ms, out);
    ASSERT_EQ(out.failed.size(), 1U);
    EXPECT_EQ(out.failed[0].token, 1U);
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

using Line = EndSearch::Line;
using Turn = EndSearch::Turn;

// A message that has ended a connection alone.
void suspect(EndSearch& search, std::string_view id, EndSearch::Time now = {}) {
    EXPECT_EQ(search.ended(1, id, now), EndSearch::Next::kAgain);
    EXPECT_TRUE(search.is_suspect(id));
}

void pass(EndSearch& search, int messages) {
    for (int i = 0; i < messages; ++i) search.answered("x", true);
}

// It goes as the first of a connection, once the others have had their time, and ends it.
EndSearch::Next goes_first(EndSearch& search, std::string_view id, EndSearch::Time& now) {
    static_cast<void>(search.turn("", Line::kIdle, now));
    now += 1s;
    EXPECT_EQ(search.turn(id, Line::kFresh, now), Turn::kSuspect);
    return search.ended(1, id, now);
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

TEST(EndSearch, BlamesAMessageThatEndsConnectionsWhileOthersPass) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    pass(search, 1);
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kAgain);
    pass(search, 1);
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kAgain) << "once is no proof";
    pass(search, 2);
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kOwnFault);
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kOutage) << "nothing has passed since";
    pass(search, 1);
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kOwnFault);
    search.answered("a", true);
    EXPECT_FALSE(search.is_suspect("a"));
}

// As where each connection ends at its second message, or behind so many bytes.
TEST(EndSearch, BlamesNobodyForWhatTheConnectionHasCarriedBefore) {
    EndSearch search;
    for (int i = 0; i < 20; ++i) {
        pass(search, i);
        EXPECT_EQ(search.ended(1, "a", {}), EndSearch::Next::kAgain);
    }
}

TEST(EndSearch, ASuspectGoesAsTheFirstOfAConnection) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    pass(search, 1);
    EXPECT_EQ(search.turn("a", Line::kBusy, now), Turn::kNobody);
    EXPECT_EQ(search.turn("a", Line::kIdle, now), Turn::kFresh);
    now += 5s;
    EXPECT_EQ(search.turn("a", Line::kFresh, now), Turn::kSuspect) << "however long it connected";
    search.answered("a", true);
    suspect(search, "b", now);
    pass(search, 1);
    static_cast<void>(search.turn("", Line::kIdle, now));
    now += 10s;
    EXPECT_EQ(search.turn("b", Line::kFresh, now), Turn::kSuspect) << "it need not connect again";
}

// Of which connecting is a part.
TEST(EndSearch, OthersGoOnForAsLongAsTheyWaited) {
    for (const bool passes : {false, true}) {
        EndSearch search;
        EndSearch::Time now{};
        suspect(search, "a", now);
        suspect(search, "b", now);
        pass(search, 1);
        ASSERT_EQ(search.turn("a", Line::kBusy, now), Turn::kNobody);
        now += 100ms;
        ASSERT_EQ(search.turn("a", Line::kIdle, now), Turn::kFresh);
        now += 200ms;
        ASSERT_EQ(search.turn("a", Line::kFresh, now), Turn::kSuspect);
        now += 300ms;
        if (passes) {
            search.answered("a", true);
        } else {
            EXPECT_EQ(search.ended(1, "a", now), EndSearch::Next::kAgain);
            now += 400ms;
            pass(search, 1);
        }
        EXPECT_EQ(search.turn("b", Line::kIdle, now), Turn::kOthers);
        now += passes ? 599ms : 999ms;
        EXPECT_EQ(search.turn("b", Line::kIdle, now), Turn::kOthers);
        now += 1ms;
        EXPECT_EQ(search.ended(7, "x", now), EndSearch::Next::kAgain);
        pass(search, 1);
        EXPECT_EQ(search.turn("b", Line::kIdle, now), Turn::kFresh) << "ends for others delay none";
    }
}

TEST(EndSearch, NoSuspectWaitsForAsLongAsAnOutageTook) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    pass(search, 1);
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kAgain);
    search.away();
    now += 1h;
    pass(search, 1);
    EXPECT_EQ(search.turn("a", Line::kIdle, now), Turn::kFresh);
}

// As where it works on a message for a while before it does.
TEST(EndSearch, OneThatEndsAConnectionLateIsAloneForLonger) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    for (int seconds = 1; seconds <= 8; seconds *= 2) {
        pass(search, 1);
        static_cast<void>(search.turn("", Line::kIdle, now));
        now += 20s;
        ASSERT_EQ(search.turn("a", Line::kFresh, now), Turn::kSuspect);
        now += std::chrono::seconds(seconds) - 1ms;
        EXPECT_EQ(search.turn("", Line::kBusy, now), Turn::kNobody);
        now += 1ms;
        EXPECT_EQ(search.turn("", Line::kBusy, now), Turn::kOthers);
        EXPECT_EQ(search.ended(2, "a", now), EndSearch::Next::kAgain);
    }
    using Next = EndSearch::Next;
    for (const auto next : {Next::kAgain, Next::kAgain, Next::kOwnFault}) {
        pass(search, 1);
        ASSERT_EQ(search.turn("a", Line::kFresh, now), Turn::kOthers);
        now += 20s;
        ASSERT_EQ(search.turn("a", Line::kFresh, now), Turn::kSuspect);
        now += 14s;
        EXPECT_EQ(search.turn("", Line::kBusy, now), Turn::kNobody);
        EXPECT_EQ(search.ended(1, "a", now), next);
    }
}

TEST(EndSearch, BlamesNobodyWhereNothingPasses) {
    EndSearch search;
    EXPECT_EQ(search.ended(1, "", {}), EndSearch::Next::kOutage) << "nobody would know it again";
    EndSearch::Time now{};
    for (int i = 0; i < 100; ++i) {
        const auto next = goes_first(search, std::to_string(i % 10), now);
        EXPECT_EQ(next, i < 20 ? EndSearch::Next::kAgain : EndSearch::Next::kOutage) << i;
        search.answered("x", false);  // refused, which is no proof
    }
}

TEST(EndSearch, AnOutageIsSoonToldAndNamesWhatWasAloneUnderWay) {
    EndSearch search;
    int ends = 1;
    while (search.ended(100, "a", {}) == EndSearch::Next::kAgain && ends < 1'000) ++ends;
    EXPECT_EQ(ends, 51);
    const ErrorInfo ended = error(Advice::kRetryDestination, "gone");
    EXPECT_EQ(outage(ended, 2, "a").message, "gone");
    EXPECT_EQ(outage(ended, 1, "a").message, "gone; it ended while event a alone was under way");
}

TEST(EndSearch, ASuspectGoesAloneAndHoldsOthersUpForAMomentOnly) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    EXPECT_TRUE(search.may_go("a", now)) << "it was not the first of its connection";
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kAgain);
    EXPECT_FALSE(search.may_go("a", now)) << "nothing has passed";
    EXPECT_TRUE(search.may_go("a", now + 1s));
    search.answered("x", true);
    EXPECT_TRUE(search.may_go("a", now));
    EXPECT_EQ(search.turn("a", Line::kFresh, now), Turn::kOthers) << "not at once";
    now += 50ms;
    EXPECT_EQ(search.turn("a", Line::kBusy, now), Turn::kNobody);
    EXPECT_EQ(search.turn("a", Line::kFresh, now), Turn::kSuspect);
    EXPECT_EQ(search.turn("", Line::kBusy, now), Turn::kNobody);
    EXPECT_EQ(search.turn("", Line::kIdle, now), Turn::kOthers) << "it has been answered";
    EXPECT_EQ(search.turn("a", Line::kBusy, now), Turn::kNobody);
    now += 250ms;
    EXPECT_EQ(search.turn("a", Line::kBusy, now), Turn::kOthers) << "something is slow";
    EXPECT_EQ(search.turn("a", Line::kFresh, now), Turn::kOthers);
    now += 1s;
    EXPECT_EQ(search.turn("a", Line::kBusy, now), Turn::kNobody);
    now += 499ms;
    EXPECT_EQ(search.turn("a", Line::kBusy, now), Turn::kNobody) << "for twice as long";
    EXPECT_EQ(search.turn("a", Line::kFresh, now), Turn::kSuspect);
    now += 1s;
    EXPECT_EQ(search.turn("", Line::kBusy, now), Turn::kOthers) << "it is slow itself";
}

// Events of ten keys, one each 40 ms, of which one of a key is under way, as the relay has it. What
// fails goes again, and the fifth attempt of one is its last.
struct Flow {
    static constexpr std::size_t kEvents = 500;
    static constexpr std::size_t kKeys = 10;

    Flow(Server& server, const std::function<std::size_t(std::size_t)>& value_bytes)
        : sink(server), began(clock_now) {
        for (std::size_t i = 0; i < kEvents; ++i) {
            ids.push_back("id-" + std::to_string(i));
            values.emplace_back(value_bytes(i), 'x');
        }
        for (std::size_t key = 0; key < kKeys; ++key) next[key] = key;
        for (int i = 0; i < 60'000 && done + dead.size() < kEvents; ++i) step();
    }

    void step() {
        for (std::size_t key = 0; key < kKeys; ++key) {
            const std::size_t event = next[key];
            if (busy[key] || event >= kEvents || clock_now < made_at(event)) continue;
            spi::Record one = record(event, "t", values[event]);
            one.id = ids[event];
            busy[key] = sink.publish(one);
        }
        spi::Completions out;
        sink.poll(0ms, out);
        for (const std::uint64_t event : out.acknowledged) {
            ++done;
            slowest = std::max(slowest, clock_now - made_at(event));
            end_of(event);
        }
        for (const spi::FailedRecord& failed : out.failed) {
            busy[failed.token % kKeys] = false;
            if (failed.error.advice != Advice::kRetryEvent) {
                ++outages;
            } else if (++attempts[failed.token] == 5) {
                dead.push_back(failed.token);
                end_of(failed.token);
            }
        }
        clock_now += 5ms;
    }
    void end_of(std::uint64_t event) {
        busy[event % kKeys] = false;
        next[event % kKeys] += kKeys;
    }
    [[nodiscard]] ConfirmedSink::Clock::time_point made_at(std::uint64_t event) const {
        return began + event * 40ms;
    }

    Sink sink;
    const ConfirmedSink::Clock::time_point began;
    std::vector<std::string> ids;
    std::vector<std::string> values;
    std::array<std::size_t, kKeys> next{};
    std::array<bool, kKeys> busy{};
    std::size_t done = 0;
    ConfirmedSink::Clock::duration slowest{};
    std::size_t outages = 0;
    std::map<std::uint64_t, int> attempts;
    std::vector<std::uint64_t> dead;
};

constexpr std::size_t kLimit = 64'000;

std::size_t of_many_sizes(std::size_t event) {
    constexpr std::array<std::size_t, 7> kSizes = {15'000, 52'000, 25'000, 52'000,
                                                   40'000, 14'000, 51'000};
    return kSizes[event % kSizes.size()];
}

TEST(ConfirmedSink, ALimitOfBytesForAConnectionIsNoEventsFaultUnlessItIsLargerItself) {
    Server server;
    server.ends_for = [](const spi::Record&, std::size_t, std::size_t bytes) {
        return bytes > kLimit;
    };
    const Flow flow(server, of_many_sizes);
    EXPECT_EQ(flow.done, 500U);
    EXPECT_TRUE(flow.attempts.empty());
    EXPECT_EQ(flow.outages, 0U);
    EXPECT_LT(flow.slowest, 1s);

    const Flow with_one(
        server, [](std::size_t event) { return event == 55 ? kLimit + 1 : of_many_sizes(event); });
    EXPECT_EQ(with_one.dead, std::vector<std::uint64_t>{55});
    EXPECT_EQ(with_one.attempts.size(), 1U) << "it alone";
    EXPECT_EQ(with_one.done, 499U);
    EXPECT_EQ(with_one.outages, 0U);
}

TEST(ConfirmedSink, AllPassSoonWhereEachConnectionEndsAtItsSecondMessage) {
    Server server;
    server.ends_for = [](const spi::Record&, std::size_t messages, std::size_t) {
        return messages == 2;
    };
    const Flow flow(server, [](std::size_t) { return 10; });
    EXPECT_EQ(flow.done, 500U);
    EXPECT_TRUE(flow.attempts.empty());
    EXPECT_EQ(flow.outages, 0U);
    EXPECT_LT(flow.slowest, 1s);
}

TEST(ConfirmedSink, WhatEndsConnectionsIsDeadAndTheOthersPass) {
    for (const std::size_t second : {std::size_t{2}, SIZE_MAX}) {
        Server server;
        server.ends_for = [&](const spi::Record& one, std::size_t messages, std::size_t) {
            return messages == second || (one.token >= 55 && one.token < 58);
        };
        const Flow flow(server, [](std::size_t) { return 10; });
        EXPECT_EQ(flow.dead.size(), 3U);
        EXPECT_EQ(flow.attempts.size(), 3U) << "they alone";
        EXPECT_EQ(flow.done, 497U);
        EXPECT_EQ(flow.outages, 0U);
    }
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
