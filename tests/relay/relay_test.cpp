#include "relay/relay.h"

#include <chrono>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#include "sinks/memory/sink.h"
#include "tests/relay/table.h"
#include "tests/support/eventually.h"

namespace outbox::relay {
namespace {

using namespace std::chrono_literals;
using sinks::memory::Destination;
using test::eventually;
using test::Table;

constexpr auto kDeadline = 60s;

class SystemClock final : public core::Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override { return read(CLOCK_BOOTTIME); }
    [[nodiscard]] std::int64_t wall_us() const override { return read(CLOCK_REALTIME); }

  private:
    static std::int64_t read(clockid_t id) {
        timespec now{};
        clock_gettime(id, &now);
        return static_cast<std::int64_t>(now.tv_sec) * 1'000'000 + now.tv_nsec / 1'000;
    }
};

RelayOptions quick_options(const std::string& owner) {
    RelayOptions options;
    options.owner = owner;
    options.poll_idle_ms = 5;
    options.record_interval_ms = 5;
    options.max_unrecorded = 200;
    options.batch_size = 50;
    options.retry = {5, 20, 3};
    options.lease_retry_ms = 5;
    options.shutdown_grace_ms = 2'000;
    return options;
}

// A relay that runs in a thread until it is stopped.
class Running {
  public:
    Running(Table& table, const std::vector<std::shared_ptr<Destination>>& destinations,
            const std::string& owner)
        : source_(table.connect()) {
        std::vector<RouteSpec> routes;
        for (const auto& destination : destinations) {
            RouteSpec route;
            route.name = "route-" + std::to_string(routes.size());
            route.topics = *core::TopicRule::make("events", {}, "events");
            route.make_sink = [destination]() -> Result<std::unique_ptr<spi::Sink>> {
                return std::unique_ptr<spi::Sink>(std::make_unique<sinks::memory::MemorySink>(
                    destination, sinks::memory::MemoryOptions{}));
            };
            routes.push_back(std::move(route));
        }
        relay_ = std::make_unique<Relay>(*source_, std::move(routes), quick_options(owner), clock_,
                                         [](const Note&) {});
        thread_ =
            std::jthread([this](const std::stop_token& stop) { result_ = relay_->run(stop); });
    }
    Status stop() {
        thread_.request_stop();
        thread_.join();
        return result_;
    }
    Relay& relay() { return *relay_; }

  private:
    SystemClock clock_;
    std::unique_ptr<spi::Source> source_;
    std::unique_ptr<Relay> relay_;
    Status result_;
    std::jthread thread_;
};

class RelayTest : public testing::Test {
  protected:
    static constexpr int kKeys = 7;

    void insert(int count) {
        for (int i = 0; i < count; ++i) {
            table.insert("e" + std::to_string(inserted), "k" + std::to_string(inserted % kKeys));
            ++inserted;
        }
    }
    static std::size_t distinct(const Destination& at) {
        std::set<std::string> ids;
        for (const auto& record : at.records()) ids.insert(record.id);
        return ids.size();
    }
    // Nothing is lost, and first occurrences of a key are in order.
    void expect_complete_and_ordered(const Destination& at) const {
        std::set<std::string> seen;
        std::map<std::string, std::int64_t> last;
        for (const auto& record : at.records()) {
            if (!seen.insert(record.id).second) continue;
            ASSERT_GT(record.position, last[*record.key]) << record.id;
            last[*record.key] = record.position;
        }
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(inserted));
    }

    Table table;
    std::shared_ptr<Destination> destination = std::make_shared<Destination>();
    int inserted = 0;
};

TEST_F(RelayTest, PublishesEverythingAndStopsWithAnEmptyTable) {
    insert(500);
    Running running(table, {destination}, "a");
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table.unfinished() == 0; }));
    EXPECT_TRUE(running.relay().health().leading);
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*destination);
    EXPECT_EQ(destination->records().size(), 500U);
    EXPECT_EQ(table.owner(), "");
}

TEST_F(RelayTest, TwoRelaysHandOverWithoutLossOrDisorder) {
    auto first = std::make_unique<Running>(table, std::vector{destination}, "a");
    ASSERT_TRUE(eventually(kDeadline, "a leads", [&] { return table.owner() == "a"; }));
    auto second = std::make_unique<Running>(table, std::vector{destination}, "b");
    for (int round = 0; round < 4; ++round) {
        insert(300);
        // Stopped in the middle of its work.
        const auto half = static_cast<std::size_t>(inserted - 150);
        ASSERT_TRUE(eventually(kDeadline, "half is through",
                               [&] { return distinct(*destination) >= half; }));
        EXPECT_TRUE(first->stop().ok());
        std::swap(first, second);
        second =
            std::make_unique<Running>(table, std::vector{destination}, round % 2 == 0 ? "a" : "b");
    }
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table.unfinished() == 0; }));
    EXPECT_TRUE(first->stop().ok());
    EXPECT_TRUE(second->stop().ok());
    expect_complete_and_ordered(*destination);
    // A graceful stop records everything: nothing is sent twice.
    EXPECT_EQ(destination->records().size(), static_cast<std::size_t>(inserted));
}

TEST_F(RelayTest, ALostLeaseEndsOneTermAndTheOtherRelayGoesOn) {
    Running first(table, {destination}, "a");
    Running second(table, {destination}, "b");
    for (int round = 0; round < 3; ++round) {
        insert(200);
        const std::uint64_t epoch = table.epoch();
        table.drop_lease();
        ASSERT_TRUE(eventually(kDeadline, "a new epoch", [&] { return table.epoch() > epoch; }));
        ASSERT_TRUE(
            eventually(kDeadline, "the table is empty", [&] { return table.unfinished() == 0; }));
    }
    EXPECT_TRUE(first.stop().ok());
    EXPECT_TRUE(second.stop().ok());
    expect_complete_and_ordered(*destination);
}

TEST_F(RelayTest, SurvivesTheLossOfTheDatabase) {
    Running running(table, {destination}, "a");
    insert(100);
    ASSERT_TRUE(eventually(kDeadline, "it works", [&] { return distinct(*destination) > 0; }));
    table.set_away(true);
    insert(200);
    ASSERT_TRUE(eventually(kDeadline, "the loss is noticed",
                           [&] { return !running.relay().health().database; }));
    table.set_away(false);
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table.unfinished() == 0; }));
    EXPECT_TRUE(eventually(kDeadline, "it is healthy again",
                           [&] { return running.relay().health().database; }));
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*destination);
}

TEST_F(RelayTest, AnEventIsFinishedWhenEveryRouteHasFinishedIt) {
    const auto other = std::make_shared<Destination>();
    other->set_down(true);
    insert(200);
    {
        Running running(table, {destination, other}, "a");
        ASSERT_TRUE(eventually(kDeadline, "one route is through",
                               [&] { return distinct(*destination) == 200; }));
        EXPECT_TRUE(running.stop().ok());
    }
    EXPECT_EQ(table.unfinished(), 200U);
    other->set_down(false);
    Running running(table, {destination, other}, "b");
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table.unfinished() == 0; }));
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*destination);
    expect_complete_and_ordered(*other);
    // The ledger says what the first route had finished: it is not sent again.
    EXPECT_EQ(destination->records().size(), 200U);
}

TEST_F(RelayTest, APoisonEventGoesToTheDeadLettersAndItsKeyGoesOn) {
    destination->fail("e3", {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "never"}, 1'000);
    destination->fail("e5", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "not now"}, 1'000);
    insert(100);
    Running running(table, {destination}, "a");
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table.unfinished() == 0; }));
    EXPECT_EQ(table.dead(), 2U);
    EXPECT_TRUE(running.stop().ok());
    EXPECT_EQ(distinct(*destination), 98U);
}

TEST_F(RelayTest, StopsWithinTheGraceTimeWhileTheDestinationKeepsSilent) {
    insert(50);
    destination->set_paused(true);
    Running running(table, {destination}, "a");
    ASSERT_TRUE(eventually(kDeadline, "events are under way",
                           [&] { return running.relay().stats(0).in_flight > 0; }));
    EXPECT_TRUE(running.stop().ok());
    EXPECT_EQ(table.owner(), "");
    EXPECT_EQ(table.unfinished(), 50U);
}

}  // namespace
}  // namespace outbox::relay
