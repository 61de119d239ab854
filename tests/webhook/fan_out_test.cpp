// How long a batch of events may take to become deliveries, however many those are.
#include "webhook/fan_out.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <memory>
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

// A database of which each statement takes two seconds.
struct SlowDatabase {
    test::HandClock clock;
    std::vector<Endpoint> endpoints;
    std::string version = "1";
    std::vector<std::vector<std::string>> events;  // by endpoint, as they were written
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
        database_.clock.advance_ms(kStatementMs);
        if (++database_.statements == database_.fails_at) {
            return ErrorInfo{ErrorCode::kSinkUnavailable, database_.advice, {}, "no"};
        }
        database_.events.resize(database_.endpoints.size());
        for (const Target& target : targets) {
            EXPECT_EQ(endpoints[target.endpoint], database_.endpoints[target.endpoint].id);
            database_.events[target.endpoint].emplace_back(events[target.event].id);
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
    spi::Completions send(const std::vector<std::string>& ids, const std::string& payload = "{}") {
        for (std::size_t i = 0; i < ids.size(); ++i) {
            spi::Record record;
            record.token = i;
            record.id = ids[i];
            record.key = "one-key";
            record.value = payload;
            record.event_type = "order.paid";
            EXPECT_TRUE(sink_.publish(record));
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
    mailbox::TableSink sink_{std::unique_ptr<mailbox::Client>(fan_out_), capabilities_};
};

TEST_F(FanOutTest, ABatchThatTakesLongGoesOnWithTheNextPoll) {
    add_endpoints(3'001);
    const std::vector<std::string> ids = numbered(14);
    send_all(ids);
    for (const auto& events : database_.events) EXPECT_EQ(events, ids);
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
    for (const auto& events : database_.events) {
        EXPECT_THAT(events, testing::UnorderedElementsAre("a", "b"));
    }
}

// Its place is one among the endpoints that there were.
TEST_F(FanOutTest, AnEventBeginsAnewAmongOtherEndpoints) {
    add_endpoints(1'000);
    const std::string payload(std::size_t{1} << 20, 'x');
    EXPECT_TRUE(send({"a"}, payload).acknowledged.empty());
    database_.endpoints.erase(database_.endpoints.begin());
    database_.version = "2";
    database_.events.clear();
    for (int polls = 0; send({"a"}, payload).acknowledged.empty(); ++polls) ASSERT_LT(polls, 100);
    for (const auto& events : database_.events) EXPECT_THAT(events, testing::ElementsAre("a"));
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
    EXPECT_EQ(database_.events[0], numbered(4));
    EXPECT_TRUE(database_.events[7].empty());
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
    EXPECT_THAT(database_.events[0], testing::ElementsAre("0", "1"));
}

}  // namespace
}  // namespace outbox::webhook
