// How long a batch of events may take to become deliveries, however many those are.
#include "webhook/fan_out.h"

#include <algorithm>
#include <chrono>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

#include "mailbox/table_sink.h"
#include "tests/support/hand_clock.h"
#include "webhook/queues.h"

namespace outbox::webhook {
namespace {

constexpr std::int64_t kStatementMs = 2'000;
// The last begins before the time is over.
constexpr std::int64_t kMostStatements = FanOut::kInsertForUs / (kStatementMs * 1000) + 1;

constexpr std::int64_t kStatementTimeoutMs = 8'000;

// A database of which each statement takes two seconds.
struct SlowDatabase {
    test::HandClock clock;
    std::int64_t per_statement_ms = kStatementMs;
    std::int64_t per_target_ms = 0;
    bool ends_all = false;  // as where somebody holds the table
    std::string slow;       // an event of which a delivery takes longer than a statement may
    std::vector<Endpoint> endpoints;
    std::string version = "1";
    // By endpoint, as they were written.
    std::map<std::string, std::vector<std::string>, std::less<>> events;
    int statements = 0;
    int fails_at = 0;
    Advice advice = Advice::kRetryDestination;  // then
    std::int64_t missed = 0;
    std::map<std::string, std::int64_t, std::less<>> lengths;
};

class SlowInlet final : public Inlet {
  public:
    explicit SlowInlet(SlowDatabase& database) : database_(database) {}
    Status prepare() override { return {}; }
    Result<std::vector<Endpoint>> look() override { return database_.endpoints; }
    Result<std::string> destination() override { return std::string("here"); }
    Result<std::string> version() override { return database_.version; }
    Result<std::vector<Endpoint>> endpoints() override { return database_.endpoints; }
    Result<std::int64_t> queued(std::string_view endpoint, std::int64_t /*most*/) override {
        return database_.lengths[std::string(endpoint)];
    }
    Result<std::vector<LeftOut>> insert(std::span<const Event> events,
                                        std::span<const std::string_view> endpoints,
                                        std::span<const Target> targets) override {
        std::int64_t takes_ms = database_.per_statement_ms;
        for (const Target& target : targets) {
            const bool slow = events[target.event].id == database_.slow;
            takes_ms += slow ? 2 * kStatementTimeoutMs : database_.per_target_ms;
        }
        database_.clock.advance_ms(std::min(takes_ms, kStatementTimeoutMs));
        if (database_.ends_all || takes_ms > kStatementTimeoutMs) {
            return ErrorInfo{ErrorCode::kSinkTimeout, Advice::kRetryDestination, "57014", "long"};
        }
        if (++database_.statements == database_.fails_at) {
            return ErrorInfo{ErrorCode::kSinkUnavailable, database_.advice, {}, "no"};
        }
        std::set<std::string_view> there;
        for (const Endpoint& one : database_.endpoints) there.insert(one.id);
        for (const Target& target : targets) {
            const std::string_view id = endpoints[target.endpoint];
            if (!there.contains(id)) continue;
            database_.events[std::string(id)].emplace_back(events[target.event].id);
        }
        return std::vector<LeftOut>();
    }
    Result<std::vector<std::string>> count_missed(std::span<const Missed> missed) override {
        for (const Missed& one : missed) database_.missed += one.events;
        return std::vector<std::string>();
    }

  private:
    SlowDatabase& database_;
};

class FanOutTest : public testing::Test {
  protected:
    void add_endpoints(int count) {
        for (int i = 0; i < count; ++i) {
            database_.endpoints.emplace_back().id = "endpoint-" + std::to_string(i);
        }
    }
    // One poll with these events, all of one key; what became of them.
    spi::Completions send(const std::vector<std::string>& ids, const std::string& payload = "{}",
                          bool one_key = true) {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            spi::Record record;
            record.token = i;
            record.id = ids[i];
            record.key = one_key ? std::string_view("one-key") : std::string_view(ids[i]);
            record.value = payload;
            record.event_type = "order.paid";
            if (sink_.publish(record)) continue;
            EXPECT_FALSE(one_key) << "few are sent";
            break;
        }
        spi::Completions out;
        sink_.poll(std::chrono::milliseconds(0), out);
        return out;
    }
    // Until all are in; what is handed back goes again.
    void send_all(std::vector<std::string> ids) {
        for (int polls = 0; !ids.empty(); ++polls) {
            ASSERT_LT(polls, 100);
            const int before = database_.statements;
            const spi::Completions out = send(ids);
            EXPECT_LE(database_.statements - before, kMostStatements);
            ASSERT_EQ(out.acknowledged.size() + out.failed.size(), ids.size());
            for (std::size_t i = 0; i < out.acknowledged.size(); ++i) {
                ASSERT_EQ(out.acknowledged[i], i) << "the first ones are in";
            }
            for (const spi::FailedRecord& failed : out.failed) EXPECT_TRUE(failed.behind);
            ids.erase(ids.begin(),
                      ids.begin() + static_cast<std::ptrdiff_t>(out.acknowledged.size()));
        }
    }
    void expect_each_got(const testing::Matcher<const std::vector<std::string>&>& what) {
        for (const Endpoint& one : database_.endpoints) {
            EXPECT_THAT(database_.events[one.id], what) << one.id;
        }
    }
    static std::vector<std::string> numbered(int count) {
        std::vector<std::string> ids;
        for (int n = 0; n < count; ++n) ids.push_back(std::to_string(n));
        return ids;
    }

    SlowDatabase database_;
    Queues queues_;
    spi::SinkCapabilities capabilities_;
    FanOut* fan_out_ =
        new FanOut(std::make_unique<SlowInlet>(database_), queues_, database_.clock);  // the sink's
    mailbox::TableSink sink_{
        std::unique_ptr<mailbox::Client>(fan_out_), capabilities_, [this] {
            return mailbox::TableSink::Time(std::chrono::microseconds(database_.clock.boot_us()));
        }};
};

TEST_F(FanOutTest, ABatchThatTakesLongGoesOnWithTheNextPoll) {
    add_endpoints(3'001);
    const std::vector<std::string> ids = numbered(14);
    send_all(ids);
    expect_each_got(testing::ElementsAreArray(ids));
    EXPECT_EQ(database_.statements, 5) << "of 42,014 rows";
}

// Those wait for one another's turn as well, as the events of a backlog do.
TEST_F(FanOutTest, AnEventThatAloneTakesLongGoesOnWhereItWas) {
    add_endpoints(1'000);
    const std::string payload(std::size_t{1} << 20, 'x');
    std::vector<std::string> ids = {"a", "b"};
    for (int polls = 0; !ids.empty(); ++polls) {
        ASSERT_LT(polls, 100);
        const int before = database_.statements;
        const spi::Completions out = send({ids[0]}, payload);
        EXPECT_LE(database_.statements - before, kMostStatements);
        if (out.acknowledged.empty()) {
            ASSERT_EQ(out.failed.size(), 1U);
            EXPECT_TRUE(out.failed[0].behind);
            ids.push_back(ids[0]);
        }
        ids.erase(ids.begin());
    }
    expect_each_got(testing::UnorderedElementsAre("a", "b"));
}

// 9 s of one event's, of which a statement may take 8.
TEST_F(FanOutTest, AnEventOfWhichTheDeliveriesTakeTooLongIsWrittenInParts) {
    database_.per_statement_ms = 0;
    database_.per_target_ms = 3;
    add_endpoints(3'000);
    std::vector<std::string> ids = {"a", "b", "c"};
    const std::int64_t begun_us = database_.clock.boot_us();
    for (int polls = 0; !ids.empty(); ++polls) {
        ASSERT_LT(polls, 20);
        const std::int64_t poll_begun_us = database_.clock.boot_us();
        const std::size_t left = ids.size();
        const spi::Completions out = send({ids[0]});
        EXPECT_LE(database_.clock.boot_us() - poll_begun_us,
                  2 * (FanOut::kInsertForUs + kStatementTimeoutMs * 1'000));
        for (const spi::FailedRecord& failed : out.failed) EXPECT_TRUE(failed.behind);
        ids.erase(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(out.acknowledged.size()));
        EXPECT_LE(ids.size(), left);
    }
    expect_each_got(testing::ElementsAre("a", "b", "c"));
    // Of the 27 s that the rows take only what one statement took was for nothing.
    EXPECT_LE(database_.clock.boot_us() - begun_us, (27 + 8) * 1'000'000);
}

TEST_F(FanOutTest, WhatIsWrittenOfAnEventIsNotWrittenAgainBehindALock) {
    add_endpoints(1'000);
    const std::string payload(std::size_t{1} << 20, 'x');
    EXPECT_TRUE(send({"a"}, payload).acknowledged.empty());
    database_.ends_all = true;
    const spi::Completions held = send({"a"}, payload);
    ASSERT_EQ(held.failed.size(), 1U);
    EXPECT_FALSE(held.failed[0].behind) << "nothing is written: it may be an outage";
    database_.ends_all = false;
    for (int polls = 0; send({"a"}, payload).acknowledged.empty(); ++polls) ASSERT_LT(polls, 100);
    expect_each_got(testing::ElementsAre("a"));
}

TEST_F(FanOutTest, ADeliveryThatAloneTakesTooLongHoldsNoOtherEvent) {
    database_.per_statement_ms = 0;
    database_.slow = "bad";
    add_endpoints(100);
    std::vector<std::string> ids = {"a", "bad", "b", "c"};
    int failed = 0;
    for (int polls = 0; ids.size() > 1 || failed < 3; ++polls) {
        ASSERT_LT(polls, 20);
        const std::vector<std::string> sent = ids;
        const spi::Completions out = send(sent, "{}", false);
        for (const std::uint64_t token : out.acknowledged) std::erase(ids, sent[token]);
        for (const spi::FailedRecord& one : out.failed) {
            if (one.behind) continue;
            EXPECT_EQ(sent[one.token], "bad");
            EXPECT_EQ(one.error.advice, Advice::kRetryDestination);
            ++failed;
        }
    }
    EXPECT_THAT(ids, testing::ElementsAre("bad"));
    // The look that found it took two statements, and each one after it took one.
    const std::int64_t begun_us = database_.clock.boot_us();
    send({"d", "bad"}, "{}", false);
    database_.clock.advance_ms(2'000);
    send({"e", "bad"}, "{}", false);
    EXPECT_LE(database_.clock.boot_us() - begun_us, (2'000 + kStatementTimeoutMs) * 1'000);
    EXPECT_THAT(database_.events["endpoint-99"],
                testing::UnorderedElementsAre("a", "b", "c", "d", "e"));
}

// Else one that somebody changes all the time would hold the event for good.
TEST_F(FanOutTest, AnEventGoesOnWhereItWasThoughAnEndpointWasChanged) {
    add_endpoints(1'000);
    const std::string payload(std::size_t{1} << 20, 'x');
    for (int polls = 0; send({"a"}, payload).acknowledged.empty(); ++polls) {
        ASSERT_LT(polls, 100);
        database_.version += "1";
    }
    expect_each_got(testing::ElementsAre("a"));
}

// Those that come and go all the time hold no event, repeat none, and hold no other.
TEST_F(FanOutTest, AnEventGoesOnWhereItWasThoughOtherEndpointsComeAndGo) {
    database_.per_statement_ms = 0;
    database_.per_target_ms = 400;
    add_endpoints(60);
    std::vector<std::string> ids = {"a", "b"};
    Endpoint guest;
    guest.id = "a-guest";
    guest.events = "never.this";
    for (int polls = 0; !ids.empty(); ++polls) {
        ASSERT_LT(polls, 40);
        if (polls % 2 == 0) {
            database_.endpoints.insert(database_.endpoints.begin(), guest);
        } else {
            database_.endpoints.erase(database_.endpoints.begin());
        }
        database_.version += "1";
        const spi::Completions out = send({ids[0]}, "{}", false);
        sink_.all_recorded();
        if (out.acknowledged.empty()) ids.push_back(ids[0]);
        ids.erase(ids.begin());
    }
    if (database_.endpoints[0].id == guest.id)
        database_.endpoints.erase(database_.endpoints.begin());
    expect_each_got(testing::UnorderedElementsAre("a", "b"));
}

TEST_F(FanOutTest, AnEventOfWhichAPartIsWrittenIsThatOfAnEndpointThatIsAddedToo) {
    add_endpoints(1'000);
    const std::string payload(std::size_t{1} << 20, 'x');
    EXPECT_TRUE(send({"a"}, payload).acknowledged.empty());
    database_.endpoints.erase(database_.endpoints.begin());
    database_.endpoints.erase(database_.endpoints.end() - 1);
    database_.endpoints.insert(database_.endpoints.begin(), Endpoint())->id = "added";
    database_.version = "2";
    for (int polls = 0; send({"a"}, payload).acknowledged.empty(); ++polls) ASSERT_LT(polls, 100);
    expect_each_got(testing::ElementsAre("a"));
}

// Nobody gets an event twice, and who is there from before it until it is in gets it.
TEST_F(FanOutTest, EachEventIsWrittenOnceWhoeverComesAndGoes) {
    for (unsigned seed = 1; seed <= 40; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        std::mt19937 random(seed);
        const auto one_in = [&](unsigned n) { return random() % n == 0; };
        const std::string name = std::to_string(seed) + "-";
        int endpoints = 0;
        const auto add = [&] {
            const auto at =
                static_cast<std::ptrdiff_t>(random() % (database_.endpoints.size() + 1));
            Endpoint& one =
                *database_.endpoints.insert(database_.endpoints.begin() + at, Endpoint());
            one.id = name + std::to_string(++endpoints);
            if (one_in(4)) one.events = "never.this";
        };
        database_.per_statement_ms = 0;
        database_.per_target_ms = 400;
        database_.endpoints.clear();
        for (unsigned i = 0, count = random() % 60; i < count; ++i) add();
        database_.version += "1";
        std::vector<std::string> ids;
        for (int i = 0; i < 4; ++i) ids.push_back(name + "event-" + std::to_string(i));
        std::map<std::string, std::set<std::string>> owed;  // by event
        for (int polls = 0; !ids.empty(); ++polls) {
            ASSERT_LT(polls, 300);
            for (unsigned i = random() % 3; i > 0; --i) {
                if (one_in(2) || database_.endpoints.empty()) {
                    add();
                } else {
                    const auto at =
                        static_cast<std::ptrdiff_t>(random() % database_.endpoints.size());
                    for (auto& [event, to] : owed) to.erase(database_.endpoints[at].id);
                    database_.endpoints.erase(database_.endpoints.begin() + at);
                }
                database_.version += "1";
            }
            const std::vector<std::string> sent(
                ids.begin(), ids.begin() + (ids.size() > 1 && one_in(2) ? 2 : 1));
            for (const std::string& event : sent) {
                if (owed.contains(event)) continue;
                for (const Endpoint& one : database_.endpoints) {
                    if (one.events == "*") owed[event].insert(one.id);
                }
            }
            spi::Completions out = send(sent, "{}", false);
            while (out.acknowledged.empty() && out.failed.empty()) {
                sink_.all_recorded();
                sink_.poll(std::chrono::milliseconds(0), out);
            }
            if (one_in(2)) sink_.all_recorded();
            for (const std::uint64_t token : out.acknowledged) {
                std::erase(ids, sent[token]);
                for (const std::string& endpoint : owed[sent[token]]) {
                    EXPECT_THAT(database_.events[endpoint], testing::Contains(sent[token]));
                }
            }
            std::ranges::rotate(ids, ids.begin() + static_cast<std::ptrdiff_t>(!ids.empty()));
        }
        for (const auto& [endpoint, events] : database_.events) {
            const std::set<std::string> once(events.begin(), events.end());
            EXPECT_EQ(once.size(), events.size()) << endpoint;
        }
    }
}

// Else what they missed would be counted again.
TEST_F(FanOutTest, WhatIsInBeforeAnErrorIsNotWrittenAgain) {
    add_endpoints(5'001);
    database_.lengths["endpoint-7"] = kMaxQueuePerEndpoint;
    database_.fails_at = 2;
    const spi::Completions out = send(numbered(4));
    EXPECT_EQ(out.acknowledged.size(), 2U);
    EXPECT_EQ(database_.missed, 2);
    ASSERT_EQ(out.failed.size(), 2U);
    EXPECT_TRUE(out.failed[0].behind);
    database_.fails_at = database_.statements + 1;
    const spi::Completions away = send({"2", "3"});
    ASSERT_EQ(away.failed.size(), 2U);
    EXPECT_FALSE(away.failed[0].behind) << "nothing is in: the destination's outage counts";
    send_all({"2", "3"});
    EXPECT_EQ(database_.missed, 4);
    EXPECT_EQ(database_.events["endpoint-0"], numbered(4));
    EXPECT_TRUE(database_.events["endpoint-7"].empty());
}

// Of a batch that is halved, as one of it may be at fault.
TEST_F(FanOutTest, NothingOvertakesWhatIsHandedBack) {
    add_endpoints(20'000);
    database_.fails_at = 1;
    database_.advice = Advice::kRetryEvent;
    const spi::Completions out = send(numbered(4));
    EXPECT_THAT(out.acknowledged, testing::ElementsAre(0U));
    ASSERT_EQ(out.failed.size(), 3U);
    for (const spi::FailedRecord& failed : out.failed) EXPECT_TRUE(failed.behind);
    EXPECT_THAT(database_.events["endpoint-0"], testing::ElementsAre("0", "1"));
}

}  // namespace
}  // namespace outbox::webhook
