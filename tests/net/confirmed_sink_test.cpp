// What no real server does when it is told to.

#include "net/confirmed_sink.h"

#include <algorithm>
#include <array>
#include <deque>
#include <gtest/gtest.h>
#include <set>
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
    std::size_t hosts = 1;
    std::size_t bad_host = SIZE_MAX;                         // ends each connection at any message
    std::chrono::milliseconds away{0};                       // until an answer or an end is heard
    std::chrono::milliseconds life = std::chrono::hours{1};  // of a connection
    std::function<bool(const spi::Record&)> swallows = {};   // without an answer
    std::chrono::milliseconds hangs{0};  // until it ends a connection for a message
};

ErrorInfo error(Advice advice, const std::string& text) {
    return {ErrorCode::kPayloadTooLarge, advice, {}, text};
}

class Link final : public ConfirmedLink {
  public:
    Link(Server& server, std::size_t host) : server_(server), host_(host) {
        ++server_.connections;
        clock_now += 3 * server_.away;
        ends_at_ = clock_now + server_.life;
    }
    [[nodiscard]] std::size_t host() const override { return host_; }
    [[nodiscard]] std::size_t max_window() const override { return server_.window; }
    std::optional<ErrorInfo> send(std::uint64_t number, const spi::Record& record) override {
        server_.sent.push_back(number);
        const auto heard_at = clock_now + server_.away;
        if (server_.ends_for == nullptr || hangs_ || heard_at >= ends_at_) return std::nullopt;
        bytes_ += record.value.size();
        if (host_ == server_.bad_host || server_.ends_for(record, ++messages_, bytes_)) {
            ends_at_ = heard_at + server_.hangs;
            hangs_ = true;
        } else if (server_.swallows == nullptr || !server_.swallows(record)) {
            answers_.push_back({heard_at, number});
        }
        return std::nullopt;
    }
    void ping() override { ++server_.pings; }
    [[nodiscard]] std::size_t unsent() const override { return 0; }
    [[nodiscard]] std::uint64_t heard() const override { return server_.heard; }
    std::optional<ErrorInfo> exchange(std::vector<Answer>& out) override {
        out = std::exchange(server_.answers, {});
        for (; !answers_.empty() && answers_.front().first <= clock_now; answers_.pop_front()) {
            out.push_back({.number = answers_.front().second});
        }
        if (!out.empty()) ++server_.heard;
        if (clock_now >= ends_at_) return error(Advice::kRetryDestination, "gone");
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
    const std::size_t host_;
    ConfirmedSink::Clock::time_point ends_at_;
    std::deque<std::pair<ConfirmedSink::Clock::time_point, std::uint64_t>> answers_;
    bool hangs_ = false;
    std::size_t messages_ = 0;
    std::size_t bytes_ = 0;
};

class Sink final : public ConfirmedSink {
  public:
    explicit Sink(Server& server, Limits limits = {})
        : ConfirmedSink(
              limits, "topic ",
              [&server](std::size_t host) -> Result<std::unique_ptr<ConfirmedLink>> {
                  return std::unique_ptr<ConfirmedLink>(new Link(server, host % server.hosts));
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

spi::Record event(std::string_view id) {
    spi::Record made;
    made.token = std::hash<std::string_view>{}(id);
    made.key = id;
    made.id = id;
    return made;
}

// A connection ends with so many under way, of which this one is the oldest.
EndSearch::Next ends(EndSearch& search, std::string_view id, EndSearch::Time now = {},
                     std::size_t under_way = 1) {
    const spi::Record oldest = event(id);
    const spi::Record other = event("other");
    EndSearch::Records records(under_way, &other);
    records.front() = &oldest;
    return search.ended(records, now);
}

// A connection ends with these under way.
EndSearch::Next ends_with(EndSearch& search, const std::vector<spi::Record>& under_way,
                          EndSearch::Time now) {
    EndSearch::Records records;
    for (const spi::Record& record : under_way) records.push_back(&record);
    return search.ended(records, now);
}

// A message that has ended a connection alone.
void suspect(EndSearch& search, std::string_view id, EndSearch::Time now = {}) {
    EXPECT_EQ(ends(search, id, now), EndSearch::Next::kAgain);
    EXPECT_TRUE(search.is_suspect(id));
}

void pass(EndSearch& search, int messages, std::string_view id = "x") {
    for (int i = 0; i < messages; ++i) search.answered(event(id), true);
}

EndSearch::Turn turn(EndSearch& search, std::string_view suspect, Line line, EndSearch::Time now) {
    return search.turn({.suspect = suspect}, line, now);
}

// It goes as the first of a connection, once the others have had their time, and ends it.
EndSearch::Next goes_first(EndSearch& search, std::string_view id, EndSearch::Time& now) {
    static_cast<void>(turn(search, "", Line::kIdle, now));
    now += 1s;
    EXPECT_EQ(turn(search, id, Line::kFresh, now), Turn::kSuspect);
    return ends(search, id, now);
}

TEST(EndSearch, SendsFewAfterAnEndAndSoonAllAgain) {
    EndSearch search;
    EXPECT_EQ(search.window(), SIZE_MAX);
    EXPECT_EQ(ends(search, "a", {}, 100), EndSearch::Next::kAgain);
    EXPECT_FALSE(search.is_suspect("a"));
    EXPECT_EQ(search.window(), 1U);
    for (std::size_t i = 1; i < 50; ++i) search.answered(event("x"), true);
    EXPECT_EQ(search.window(), 50U);
    for (std::size_t i = 0; i < 5'000; ++i) search.answered(event("x"), false);
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
    search.answered(event("a"), true);
    EXPECT_FALSE(search.is_suspect("a"));
}

// As where each connection ends at its second message, or behind so many bytes.
TEST(EndSearch, BlamesNobodyForWhatTheConnectionHasCarriedBefore) {
    EndSearch search;
    for (int i = 0; i < 20; ++i) {
        pass(search, i);
        EXPECT_EQ(ends(search, "a"), EndSearch::Next::kAgain);
    }
}

TEST(EndSearch, ASuspectGoesAsTheFirstOfAConnection) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    pass(search, 1);
    EXPECT_EQ(turn(search, "a", Line::kBusy, now), Turn::kNobody);
    EXPECT_EQ(turn(search, "a", Line::kIdle, now), Turn::kFresh);
    now += 5s;
    EXPECT_EQ(turn(search, "a", Line::kFresh, now), Turn::kSuspect) << "however long it connected";
    search.answered(event("a"), true);
    suspect(search, "b", now);
    pass(search, 1);
    static_cast<void>(turn(search, "", Line::kIdle, now));
    now += 10s;
    EXPECT_EQ(turn(search, "b", Line::kFresh, now), Turn::kSuspect) << "it need not connect again";
}

// Of which connecting is a part.
TEST(EndSearch, OthersGoOnForAsLongAsTheyWaited) {
    for (const bool passes : {false, true}) {
        EndSearch search;
        EndSearch::Time now{};
        suspect(search, "a", now);
        suspect(search, "b", now);
        pass(search, 1);
        ASSERT_EQ(turn(search, "a", Line::kBusy, now), Turn::kNobody);
        now += 100ms;
        ASSERT_EQ(turn(search, "a", Line::kIdle, now), Turn::kFresh);
        now += 200ms;
        ASSERT_EQ(turn(search, "a", Line::kFresh, now), Turn::kSuspect);
        now += 300ms;
        if (passes) {
            search.answered(event("a"), true);
        } else {
            EXPECT_EQ(ends(search, "a", now), EndSearch::Next::kAgain);
            now += 400ms;
            pass(search, 1);
        }
        EXPECT_EQ(turn(search, "b", Line::kIdle, now), Turn::kOthers);
        now += passes ? 599ms : 999ms;
        EXPECT_EQ(turn(search, "b", Line::kIdle, now), Turn::kOthers);
        now += 1ms;
        EXPECT_EQ(ends(search, "x", now, 7), EndSearch::Next::kAgain);
        pass(search, 1);
        EXPECT_EQ(turn(search, "b", Line::kIdle, now), Turn::kFresh)
            << "ends for others delay none";
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
    EXPECT_EQ(turn(search, "a", Line::kIdle, now), Turn::kFresh);
}

// As where it works on a message for a while before it does.
TEST(EndSearch, OneThatEndsAConnectionLateIsAloneForLonger) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    for (int seconds = 1; seconds <= 8; seconds *= 2) {
        pass(search, 1);
        static_cast<void>(turn(search, "", Line::kIdle, now));
        now += 20s;
        ASSERT_EQ(turn(search, "a", Line::kFresh, now), Turn::kSuspect);
        now += std::chrono::seconds(seconds) - 1ms;
        EXPECT_EQ(turn(search, "", Line::kBusy, now), Turn::kNobody);
        now += 1ms;
        EXPECT_EQ(turn(search, "", Line::kBusy, now), Turn::kOthers);
        EXPECT_EQ(ends(search, "a", now, 2), EndSearch::Next::kAgain);
    }
    using Next = EndSearch::Next;
    for (const auto next : {Next::kAgain, Next::kAgain, Next::kOwnFault}) {
        pass(search, 1);
        ASSERT_EQ(turn(search, "a", Line::kFresh, now), Turn::kOthers);
        now += 20s;
        ASSERT_EQ(turn(search, "a", Line::kFresh, now), Turn::kSuspect);
        now += 14s;
        EXPECT_EQ(turn(search, "", Line::kBusy, now), Turn::kNobody);
        EXPECT_EQ(ends(search, "a", now), next);
    }
}

TEST(EndSearch, KeysOfWhichSomethingPassedGoFirst) {
    EndSearch search;
    EndSearch::Time now{};
    pass(search, 1, "a");
    EXPECT_FALSE(search.is_stranger(event("b"))) << "nothing is looked for";
    EXPECT_EQ(ends_with(search, {event("b"), event("c")}, now), EndSearch::Next::kAgain);
    EXPECT_FALSE(search.is_stranger(event("a")));
    EXPECT_TRUE(search.is_stranger(event("b")));
    pass(search, 1, "b");
    EXPECT_FALSE(search.is_stranger(event("b")));
    // An end with a stranger under way is of that one.
    search.sent(event("a"));
    search.sent(event("x"));
    EXPECT_EQ(ends_with(search, {event("a"), event("x")}, now), EndSearch::Next::kAgain);
    EXPECT_TRUE(search.is_suspect("x"));
    EXPECT_FALSE(search.is_stranger(event("a")));
    EXPECT_FALSE(search.may_stranger_go(event("y"), true, now)) << "the others have waited";
    EXPECT_TRUE(search.may_stranger_go(event("y"), false, now)) << "nobody has";
    now += 100ms;
    pass(search, 1, "a");
    static_cast<void>(turn(search, "", Line::kIdle, now));
    EXPECT_FALSE(search.may_stranger_go(event("y"), true, now + 99ms));
    EXPECT_TRUE(search.may_stranger_go(event("y"), true, now + 100ms));
    // One without strangers may be of each.
    EXPECT_EQ(ends_with(search, {event("a"), event("b")}, now), EndSearch::Next::kAgain);
    EXPECT_TRUE(search.is_stranger(event("a")));
}

// They are found sooner apart from new ones, which pass.
TEST(EndSearch, WhatWasUnderWayTogetherAtAnEndGoesApartFromOthers) {
    EndSearch search;
    EndSearch::Time now{};
    EXPECT_EQ(ends_with(search, {event("a"), event("b")}, now), EndSearch::Next::kAgain);
    pass(search, 5);
    search.sent(event("c"));
    EXPECT_FALSE(search.may_stranger_go(event("a"), false, now));
    search.answered(event("c"), true);
    EXPECT_TRUE(search.may_stranger_go(event("a"), false, now));
    search.sent(event("a"));
    EXPECT_FALSE(search.may_stranger_go(event("b"), false, now)) << "nor beside each other";
    EXPECT_FALSE(search.may_stranger_go(event("d"), false, now));
    search.answered(event("a"), true);
    search.sent(event("b"));
    EXPECT_EQ(ends_with(search, {event("b")}, now), EndSearch::Next::kAgain);
    EXPECT_TRUE(search.is_suspect("b"));
}

TEST(EndSearch, NobodyWaitsLongForWhatIsNotAnswered) {
    EndSearch search;
    EndSearch::Time now{};
    EXPECT_EQ(ends_with(search, {event("a"), event("b")}, now), EndSearch::Next::kAgain);
    search.began(0, now);
    static_cast<void>(turn(search, "", Line::kIdle, now));
    search.sent(event("a"));
    now += 999ms;
    static_cast<void>(turn(search, "", Line::kBusy, now));
    EXPECT_EQ(search.window(), 1U);
    EXPECT_FALSE(search.may_stranger_go(event("c"), false, now));
    now += 1ms;
    static_cast<void>(turn(search, "", Line::kBusy, now));
    EXPECT_EQ(search.window(), 2U);
    EXPECT_TRUE(search.may_stranger_go(event("c"), false, now));
    // If it is not one of those beside it, it is that one.
    search.sent(event("c"));
    EXPECT_EQ(ends_with(search, {event("a"), event("c")}, now), EndSearch::Next::kAgain);
    EXPECT_TRUE(search.is_suspect("a"));
    EXPECT_TRUE(search.is_suspect("c"));
    EXPECT_FALSE(search.is_suspect("b"));
}

// One that was sent beside a suspect may be at fault, too.
TEST(EndSearch, BlamesNoSuspectThatOthersWereSentBeside) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    for (int i = 0; i < 5; ++i) {
        pass(search, 1);
        search.began(0, now);
        static_cast<void>(turn(search, "", Line::kIdle, now));
        now += 20s;
        ASSERT_EQ(turn(search, "a", Line::kFresh, now), Turn::kSuspect);
        now += 15s;
        ASSERT_EQ(turn(search, "", Line::kBusy, now), Turn::kOthers);
        search.sent(event("x"));
        search.sent(event("y"));
        search.answered(event("x"), true);
        if (i % 2 == 0) {
            EXPECT_EQ(ends(search, "a", now), EndSearch::Next::kAgain) << "it has been answered";
            continue;
        }
        EXPECT_EQ(ends_with(search, {event("a"), event("y")}, now), EndSearch::Next::kAgain);
        EXPECT_TRUE(search.is_suspect("y"));
        search.answered(event("y"), false);
    }
}

TEST(EndSearch, OnlyWhereOthersPassOnTheSameHostIsAnEndEvidence) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    for (int i = 0; i < 10; ++i) {
        search.began(0, now);
        pass(search, 1);
        search.began(1, now);
        EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kAgain);
    }
    for (const auto next : {EndSearch::Next::kAgain, EndSearch::Next::kOwnFault}) {
        pass(search, 1);
        search.began(1, now);
        EXPECT_EQ(goes_first(search, "a", now), next);
    }
}

TEST(EndSearch, BlamesNobodyWhereNothingPasses) {
    EndSearch search;
    EXPECT_EQ(ends(search, ""), EndSearch::Next::kOutage) << "nobody would know it again";
    EndSearch::Time now{};
    for (int i = 0; i < 100; ++i) {
        const auto next = goes_first(search, std::to_string(i % 10), now);
        EXPECT_EQ(next, i < 20 ? EndSearch::Next::kAgain : EndSearch::Next::kOutage) << i;
        search.answered(event("x"), false);  // refused, which is no proof
    }
}

TEST(EndSearch, AnOutageIsSoonToldAndNamesWhatWasAloneUnderWay) {
    EndSearch search;
    int count = 1;
    while (ends(search, "a", {}, 100) == EndSearch::Next::kAgain && count < 1'000) ++count;
    EXPECT_EQ(count, 51);
    const ErrorInfo ended = error(Advice::kRetryDestination, "gone");
    const spi::Record a = event("a");
    EXPECT_EQ(outage(ended, {&a, &a}).message, "gone");
    EXPECT_EQ(outage(ended, {&a}).message, "gone; it ended while event a alone was under way");
}

TEST(EndSearch, ASuspectGoesAloneAndHoldsOthersUpForAMomentOnly) {
    EndSearch search;
    EndSearch::Time now{};
    suspect(search, "a", now);
    EXPECT_TRUE(search.may_go("a", now)) << "it was not the first of its connection";
    EXPECT_EQ(goes_first(search, "a", now), EndSearch::Next::kAgain);
    EXPECT_FALSE(search.may_go("a", now)) << "nothing has passed";
    EXPECT_TRUE(search.may_go("a", now + 1s));
    search.answered(event("x"), true);
    EXPECT_TRUE(search.may_go("a", now));
    EXPECT_EQ(turn(search, "a", Line::kFresh, now), Turn::kOthers) << "not at once";
    now += 50ms;
    EXPECT_EQ(turn(search, "a", Line::kBusy, now), Turn::kNobody);
    EXPECT_EQ(turn(search, "a", Line::kFresh, now), Turn::kSuspect);
    EXPECT_EQ(turn(search, "", Line::kBusy, now), Turn::kNobody);
    EXPECT_EQ(turn(search, "", Line::kIdle, now), Turn::kOthers) << "it has been answered";
    EXPECT_EQ(turn(search, "a", Line::kBusy, now), Turn::kNobody);
    now += 250ms;
    EXPECT_EQ(turn(search, "a", Line::kBusy, now), Turn::kOthers) << "something is slow";
    EXPECT_EQ(turn(search, "a", Line::kFresh, now), Turn::kOthers);
    now += 1s;
    EXPECT_EQ(turn(search, "a", Line::kBusy, now), Turn::kNobody);
    now += 499ms;
    EXPECT_EQ(turn(search, "a", Line::kBusy, now), Turn::kNobody) << "for twice as long";
    EXPECT_EQ(turn(search, "a", Line::kFresh, now), Turn::kSuspect);
    now += 1s;
    EXPECT_EQ(turn(search, "", Line::kBusy, now), Turn::kOthers) << "it is slow itself";
}

struct Event {
    std::string key;
    std::chrono::milliseconds at;
    std::string value = "v";
};

bool is_bad(std::string_view key) {
    return key.starts_with("bad");
}

// Of ten keys, one each 40 ms.
std::vector<Event> events(std::size_t count,
                          const std::function<std::size_t(std::size_t)>& value_bytes = {}) {
    std::vector<Event> made;
    for (std::size_t i = 0; i < count; ++i) {
        made.push_back({"key-" + std::to_string(i % 10), i * 40ms,
                        std::string(value_bytes ? value_bytes(i) : 10, 'x')});
    }
    return made;
}

// Each in a key of its own, one each 10 ms from 1 s on.
std::vector<Event> with_bad(std::vector<Event> events, std::size_t bad) {
    for (std::size_t i = 0; i < bad; ++i) {
        events.push_back({"bad-" + std::to_string(i), 1s + i * 10ms});
    }
    std::stable_sort(events.begin(), events.end(),
                     [](const Event& a, const Event& b) { return a.at < b.at; });
    return events;
}

// Of a key one event is under way, as the relay has it. What fails goes again, and the fifth
// attempt of one is its last; where it failed with its destination, after a while.
struct Flow {
    Flow(Server& server, std::vector<Event> what, std::chrono::seconds longest)
        : sink(server), began(clock_now), events(std::move(what)) {
        for (std::size_t i = 0; i < events.size(); ++i) {
            ids.push_back("id-" + std::to_string(i));
            waiting[events[i].key].push_back(i);
        }
        while (done + dead.size() < events.size() && clock_now < began + longest) step();
    }

    void step() {
        for (auto& [key, row] : waiting) {
            if (busy.contains(key) || row.empty() || clock_now < made_at(row.front())) continue;
            if (clock_now < not_before[key]) continue;
            const std::size_t event = row.front();
            spi::Record one = record(event, "t", events[event].value);
            one.id = ids[event];
            one.key = key;
            if (sink.publish(one)) busy.insert(key);
        }
        spi::Completions out;
        sink.poll(0ms, out);
        for (const std::uint64_t event : out.acknowledged) {
            ++done;
            if (!is_bad(events[event].key)) slowest = std::max(slowest, clock_now - made_at(event));
            end_of(event);
        }
        for (const spi::FailedRecord& failed : out.failed) {
            busy.erase(events[failed.token].key);
            if (failed.error.advice != Advice::kRetryEvent) {
                ++outages;
                not_before[events[failed.token].key] = clock_now + 1s;
            } else if (++attempts[failed.token] == 5) {
                dead.push_back(failed.token);
                end_of(failed.token);
            }
        }
        clock_now += 5ms;
    }
    void end_of(std::uint64_t event) {
        busy.erase(events[event].key);
        waiting[events[event].key].pop_front();
    }
    [[nodiscard]] ConfirmedSink::Clock::time_point made_at(std::uint64_t event) const {
        return began + events[event].at;
    }
    // Of others than bad ones.
    [[nodiscard]] std::size_t innocents_with_attempts() const {
        return static_cast<std::size_t>(
            std::count_if(attempts.begin(), attempts.end(),
                          [&](const auto& one) { return !is_bad(events[one.first].key); }));
    }

    Sink sink;
    const ConfirmedSink::Clock::time_point began;
    const std::vector<Event> events;
    std::vector<std::string> ids;
    std::map<std::string, std::deque<std::size_t>, std::less<>> waiting;
    std::set<std::string, std::less<>> busy;
    std::map<std::string, ConfirmedSink::Clock::time_point> not_before;
    std::size_t done = 0;
    ConfirmedSink::Clock::duration slowest{};  // of others than bad ones
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
    const Flow flow(server, events(500, of_many_sizes), 300s);
    EXPECT_EQ(flow.done, 500U);
    EXPECT_TRUE(flow.attempts.empty());
    EXPECT_EQ(flow.outages, 0U);
    EXPECT_LT(flow.slowest, 1s);

    const auto sizes = [](std::size_t event) {
        return event == 55 ? kLimit + 1 : of_many_sizes(event);
    };
    const Flow with_one(server, events(500, sizes), 300s);
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
    const Flow flow(server, events(500), 300s);
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
        const Flow flow(server, events(500), 300s);
        EXPECT_EQ(flow.dead.size(), 3U);
        EXPECT_EQ(flow.attempts.size(), 3U) << "they alone";
        EXPECT_EQ(flow.done, 497U);
        EXPECT_EQ(flow.outages, 0U);
    }
}

// A server that is 20 ms away, and many events each of which ends the connection.
TEST(ConfirmedSink, OtherKeysGoOnHoweverManyEventsEndConnections) {
    for (const std::size_t bad : {std::size_t{1}, std::size_t{30}, std::size_t{100}}) {
        Server server;
        server.away = 20ms;
        server.ends_for = [](const spi::Record& one, std::size_t, std::size_t) {
            return is_bad(one.key);
        };
        const Flow flow(server, with_bad(events(2'000), bad), 85s);
        EXPECT_EQ(flow.innocents_with_attempts(), 0U);
        EXPECT_EQ(flow.done, 2'000U) << bad;
        EXPECT_LT(flow.slowest, 1s) << bad;
        EXPECT_GT(flow.attempts.size(), bad / 4) << "they are found all the same";
        EXPECT_EQ(flow.outages, 0U);
    }
}

// Of keys of which nothing has passed, among many that end connections.
TEST(ConfirmedSink, ANewKeyWaitsForNoMoreThanAFewThatEndConnections) {
    Server server;
    server.away = 20ms;
    server.ends_for = [](const spi::Record& one, std::size_t, std::size_t) {
        return is_bad(one.key);
    };
    std::vector<Event> made = events(500);
    for (std::size_t i = 0; i < made.size(); ++i) made[i].key = "key-" + std::to_string(i);
    const Flow flow(server, with_bad(std::move(made), 30), 40s);
    EXPECT_EQ(flow.innocents_with_attempts(), 0U);
    EXPECT_EQ(flow.done, 500U);
    EXPECT_LT(flow.slowest, 8s) << "30 connections, and as long again for the others";
}

// Nothing behind it is answered, so that all is under way that was sent meanwhile.
TEST(ConfirmedSink, WhatAServerHangsOnBeforeItEndsTheConnectionIsFound) {
    for (const auto hangs : {700ms, 3'000ms, 7'000ms}) {
        Server server;
        server.hangs = hangs;
        server.ends_for = [](const spi::Record& one, std::size_t, std::size_t) {
            return is_bad(one.key);
        };
        const Flow flow(server, with_bad(events(12'000), 1), 500s);
        EXPECT_EQ(flow.innocents_with_attempts(), 0U);
        EXPECT_EQ(flow.dead.size(), 1U) << hangs.count();
        EXPECT_EQ(flow.done, 12'000U) << hangs.count();
        EXPECT_LT(flow.slowest, 3 * hangs);
    }
}

// As a stream that acknowledges nothing, where each connection ends after some time.
TEST(ConfirmedSink, AnEventWithoutAnAnswerIsNotBlamedForTheTimeThatConnectionsLive) {
    for (const auto life : {1'500ms, 4'000ms, 6'000ms}) {
        Server server;
        server.life = life;
        server.ends_for = [](const spi::Record&, std::size_t, std::size_t) { return false; };
        server.swallows = [](const spi::Record& one) { return is_bad(one.key); };
        const Flow flow(server, with_bad(events(2'500), 1), 110s);
        EXPECT_TRUE(flow.attempts.empty()) << life.count();
        EXPECT_EQ(flow.done, 2'500U) << life.count();
        EXPECT_LT(flow.slowest, life + 1s);
    }
}

// One host takes all but some events, the other ends connections at any.
TEST(ConfirmedSink, AHostThatEndsEachConnectionIsNoEventsFault) {
    for (const std::size_t bad_host : {std::size_t{0}, std::size_t{1}}) {
        for (const std::size_t bad : {std::size_t{0}, std::size_t{3}}) {
            for (const auto every : {40ms, 1'000ms}) {
                Server server;
                server.hosts = 2;
                server.bad_host = bad_host;
                server.ends_for = [](const spi::Record& one, std::size_t, std::size_t) {
                    return is_bad(one.key);
                };
                std::vector<Event> made = events(100);
                for (std::size_t i = 0; i < made.size(); ++i) made[i].at = i * every;
                const Flow flow(server, with_bad(std::move(made), bad), 150s);
                EXPECT_EQ(flow.innocents_with_attempts(), 0U);
                EXPECT_EQ(flow.done, 100U);
                if (every == 1s) {
                    EXPECT_EQ(flow.dead.size(), bad);
                }
                EXPECT_LT(flow.slowest, 6s);
            }
        }
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
