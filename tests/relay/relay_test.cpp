#include "relay/relay.h"

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <time.h>
#include <vector>

#include "brokers/memory/sink.h"
#include "tests/relay/options.h"
#include "tests/relay/table.h"
#include "tests/support/eventually.h"

namespace outbox::relay {
namespace {

using namespace std::chrono_literals;
using memory::Destination;
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

// Goes on when it is told.
class SlowClock final : public core::Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override { return now_us_; }
    [[nodiscard]] std::int64_t wall_us() const override { return now_us_; }
    void pass(std::chrono::microseconds time) { now_us_ += time.count(); }

  private:
    std::atomic<std::int64_t> now_us_{1'000'000};
};

RelayOptions quick_options(const std::string& owner) {
    RelayOptions options = usual_options();
    options.owner = owner;
    options.poll_idle_ms = 5;
    options.record_interval_ms = 5;
    options.max_unrecorded = 200;
    options.batch_size = 50;
    options.retry = {5, 20, 3};
    options.lease_retry_ms = 5;
    return options;
}

// A relay that runs in a thread until it is stopped.
class Running {
  public:
    Running(Table& table, const std::vector<std::shared_ptr<Destination>>& destinations,
            const std::string& owner)
        : Running(table, destinations, quick_options(owner)) {}
    // `make`: whether the sink of a route can be made now.
    Running(Table& table, const std::vector<std::shared_ptr<Destination>>& destinations,
            const RelayOptions& options, const std::function<Status(std::size_t)>& make = {},
            const core::Clock* clock = nullptr)
        : source_(table.connect()) {
        std::vector<RouteSpec> routes;
        for (const auto& destination : destinations) {
            RouteSpec route;
            route.name = "route-" + std::to_string(routes.size());
            route.topics = *core::TopicRule::make("events", {}, "events");
            route.make_sink = [destination, make, number = routes.size()](
                                  const std::string&) -> Result<std::unique_ptr<spi::Sink>> {
                if (Status can = make ? make(number) : Status(); !can.ok()) return can;
                return std::unique_ptr<spi::Sink>(
                    std::make_unique<memory::MemorySink>(destination, memory::MemoryOptions{}));
            };
            routes.push_back(std::move(route));
        }
        relay_ = std::make_unique<Relay>(*source_, std::move(routes), options,
                                         clock == nullptr ? clock_ : *clock,
                                         [this](const Note& note) { keep(note); });
        thread_ =
            std::jthread([this](const std::stop_token& stop) { result_ = relay_->run(stop); });
    }
    Status stop() {
        thread_.request_stop();
        thread_.join();
        return result_;
    }
    void request_stop() { thread_.request_stop(); }
    // Until it has stopped for whatever reason.
    Status wait() {
        thread_.join();
        return result_;
    }
    Relay& relay() { return *relay_; }
    // The fields of what it has said of this, in order.
    std::vector<std::map<std::string, std::string>> said(const std::string& what) const {
        const std::scoped_lock lock(mutex_);
        const auto found = said_.find(what);
        if (found == said_.end()) return {};
        return found->second;
    }

  private:
    void keep(const Note& note) {
        const std::scoped_lock lock(mutex_);
        auto& fields = said_[note.what].emplace_back();
        for (const auto& [name, value] : note.fields) fields.emplace(name, value);
    }

    mutable std::mutex mutex_;
    std::map<std::string, std::vector<std::map<std::string, std::string>>> said_;
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
            table_.insert("e" + std::to_string(inserted_), "k" + std::to_string(inserted_ % kKeys));
            ++inserted_;
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
        EXPECT_EQ(seen.size(), static_cast<std::size_t>(inserted_));
    }

    Table table_;
    std::shared_ptr<Destination> destination_ = std::make_shared<Destination>();
    int inserted_ = 0;
};

TEST_F(RelayTest, PublishesEverythingAndStopsWithAnEmptyTable) {
    insert(500);
    Running running(table_, {destination_}, "a");
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(running.relay().health().leading);
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*destination_);
    EXPECT_EQ(destination_->records().size(), 500U);
    EXPECT_EQ(table_.owner(), "");
}

TEST_F(RelayTest, TwoRelaysHandOverWithoutLossOrDisorder) {
    auto first = std::make_unique<Running>(table_, std::vector{destination_}, "a");
    ASSERT_TRUE(eventually(kDeadline, "a leads", [&] { return table_.owner() == "a"; }));
    auto second = std::make_unique<Running>(table_, std::vector{destination_}, "b");
    for (int round = 0; round < 4; ++round) {
        insert(300);
        // Stopped in the middle of its work.
        const auto half = static_cast<std::size_t>(inserted_ - 150);
        ASSERT_TRUE(eventually(kDeadline, "half is through",
                               [&] { return distinct(*destination_) >= half; }));
        EXPECT_TRUE(first->stop().ok());
        std::swap(first, second);
        second = std::make_unique<Running>(table_, std::vector{destination_},
                                           round % 2 == 0 ? "a" : "b");
    }
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(first->stop().ok());
    EXPECT_TRUE(second->stop().ok());
    expect_complete_and_ordered(*destination_);
    // A graceful stop records everything: nothing is sent twice.
    EXPECT_EQ(destination_->records().size(), static_cast<std::size_t>(inserted_));
}

TEST_F(RelayTest, ALostLeaseEndsOneTermAndTheOtherRelayGoesOn) {
    Running first(table_, {destination_}, "a");
    Running second(table_, {destination_}, "b");
    for (int round = 0; round < 3; ++round) {
        insert(200);
        const std::uint64_t epoch = table_.epoch();
        table_.drop_lease();
        ASSERT_TRUE(eventually(kDeadline, "a new epoch", [&] { return table_.epoch() > epoch; }));
        ASSERT_TRUE(
            eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    }
    EXPECT_TRUE(first.stop().ok());
    EXPECT_TRUE(second.stop().ok());
    expect_complete_and_ordered(*destination_);
}

TEST_F(RelayTest, NamesPublishedEventsThatTheDatabaseLost) {
    Running running(table_, {destination_}, "a");
    ASSERT_TRUE(eventually(kDeadline, "a leads", [&] { return running.relay().health().leading; }));
    table_.set_ghosts({{7, "e7"}, {9, "e9"}});
    table_.drop_lease();
    ASSERT_TRUE(eventually(kDeadline, "it tells", [&] { return !running.said("ghosts").empty(); }));
    EXPECT_TRUE(running.stop().ok());
    const auto told = running.said("ghosts").front();
    EXPECT_EQ(told.at("count"), "2");
    EXPECT_EQ(told.at("positions"), "7-9");
    EXPECT_EQ(told.at("ids"), "e7,e9");
}

TEST_F(RelayTest, TakesNothingForLostThatAnotherRelayMayHavePublishedAndRemoved) {
    Running running(table_, {destination_}, "a");
    ASSERT_TRUE(eventually(kDeadline, "a leads", [&] { return running.relay().health().leading; }));
    table_.set_ghosts({{7, "e7"}});
    table_.let_another_lead();
    ASSERT_TRUE(eventually(kDeadline, "a leads again", [&] {
        return running.said("lease_acquired").size() == 2 && running.relay().health().leading;
    }));
    EXPECT_TRUE(running.stop().ok());
    EXPECT_TRUE(running.said("ghosts").empty());
}

// Whichever of its threads meets the restored server first.
TEST_F(RelayTest, SaysThatTheServerChangedWhereTheLeaseWasLostFirst) {
    Running running(table_, {destination_}, "a");
    insert(100);
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    table_.replace_server();
    EXPECT_TRUE(eventually(kDeadline, "it says so",
                           [&] { return !running.said("server_changed").empty(); }));
    insert(100);
    EXPECT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*destination_);
}

TEST_F(RelayTest, SurvivesTheLossOfTheDatabase) {
    Running running(table_, {destination_}, "a");
    insert(100);
    ASSERT_TRUE(eventually(kDeadline, "it works", [&] { return distinct(*destination_) > 0; }));
    table_.set_away(true);
    insert(200);
    ASSERT_TRUE(eventually(kDeadline, "the loss is noticed",
                           [&] { return !running.relay().health().database; }));
    table_.set_away(false);
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(eventually(kDeadline, "it is healthy again",
                           [&] { return running.relay().health().database; }));
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*destination_);
}

TEST_F(RelayTest, ADatabaseThatGivesTheLeaseAloneIsAwayUntilATermBegins) {
    table_.set_lease_only(true);
    const auto begin = std::chrono::steady_clock::now();
    Running running(table_, {destination_}, "a");
    bool healthy = false;
    ASSERT_TRUE(eventually(kDeadline, "it has tried six times", [&] {
        healthy = healthy || (table_.epoch() > 1 && running.relay().health().database);
        return table_.epoch() >= 6;
    }));
    EXPECT_FALSE(healthy);
    EXPECT_EQ(running.said("database_away").size(), 1U);
    EXPECT_EQ(running.said("database_back").size(), 0U);
    // 5, 10, 20, 40 and 80 ms lie between them, so that another relay may have better luck.
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 150ms);
    insert(10);
    table_.set_lease_only(false);
    EXPECT_TRUE(eventually(kDeadline, "it works", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(running.relay().health().database);
    EXPECT_EQ(running.said("database_back").size(), 1U);
    EXPECT_TRUE(running.stop().ok());
}

TEST_F(RelayTest, TermsThatEndAtOnceFollowEachOtherMoreAndMoreSlowly) {
    table_.set_changing(true);
    const auto begin = std::chrono::steady_clock::now();
    Running running(table_, {destination_}, "a");
    ASSERT_TRUE(
        eventually(kDeadline, "the ninth term begins", [&] { return table_.epoch() >= 9; }));
    // The first three at once, as a failover is to cost no time; then 5, 10, 20, 40 and 80 ms.
    EXPECT_GE(std::chrono::steady_clock::now() - begin, 150ms);
    insert(10);
    table_.set_changing(false);
    EXPECT_TRUE(eventually(kDeadline, "it works", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(running.stop().ok());
}

TEST_F(RelayTest, WhoDoesNotLeadAnyMoreShowsNothingOfWhatItMeasured) {
    destination_->set_down(true);
    Running running(table_, {destination_}, "a");
    insert(50);
    const RouteStats& stats = running.relay().stats(0);
    ASSERT_TRUE(eventually(kDeadline, "it shows the outage", [&] {
        return stats.circuit.load() != core::Circuit::State::kClosed && stats.queued.load() > 0 &&
               stats.held_bytes.load() > 0 && running.relay().database_stats().backlog > 0;
    }));
    table_.set_slow_start(true);
    table_.drop_lease();
    EXPECT_TRUE(eventually(kDeadline, "it shows nothing", [&] {
        return !running.relay().health().leading && stats.queued.load() == 0 &&
               stats.held_bytes.load() == 0 && stats.in_flight.load() == 0 &&
               stats.circuit.load() == core::Circuit::State::kClosed &&
               running.relay().database_stats().backlog == 0;
    }));
    table_.set_slow_start(false);
    destination_->set_down(false);
    EXPECT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(running.stop().ok());
    EXPECT_EQ(stats.published.load(), 50U);
}

// Whoever notices it first, others do after it.
TEST_F(RelayTest, ALostLeaseIsToldOnce) {
    constexpr std::size_t kRounds = 30;
    RelayOptions options = quick_options("a");
    options.lease_renew_ms = 1;
    Running running(table_, {destination_}, options);
    for (std::size_t round = 0; round < kRounds; ++round) {
        ASSERT_TRUE(eventually(kDeadline, "it leads", [&] {
            return running.said("lease_acquired").size() == round + 1 &&
                   running.relay().health().leading;
        }));
        insert(10);
        table_.let_another_lead();
    }
    ASSERT_TRUE(eventually(kDeadline, "it leads again",
                           [&] { return running.said("lease_acquired").size() == kRounds + 1; }));
    EXPECT_TRUE(running.stop().ok());
    std::set<std::string> epochs;
    for (auto& fields : running.said("lease_lost")) {
        EXPECT_TRUE(epochs.insert(fields["epoch"]).second) << "epoch " << fields["epoch"];
    }
    EXPECT_EQ(epochs.size(), kRounds);
}

TEST_F(RelayTest, ARouteThatHangsLeavesTheLeaseToAnotherRelay) {
    RelayOptions options = quick_options("a");
    options.lease_ttl_ms = 10'000;
    options.lease_margin_ms = 1'000;
    options.lease_renew_ms = 1'000;
    SlowClock clock;
    table_.set_clock(clock);
    Running first(table_, {destination_}, options, {}, &clock);
    insert(10);
    ASSERT_TRUE(eventually(kDeadline, "a works", [&] { return table_.unfinished() == 0; }));
    options.owner = "b";
    Running second(table_, {destination_}, options, {}, &clock);
    destination_->set_paused(true);
    insert(10);
    const RouteStats& stats = first.relay().stats(0);
    ASSERT_TRUE(eventually(kDeadline, "it is under way", [&] {
        clock.pass(5ms);
        return stats.in_flight == 10;
    }));
    table_.set_hanging_reads(true);
    // Statements may take that long.
    for (int s = 0; s < 170; ++s) {
        const int renewals = table_.renewals();
        clock.pass(1s);
        ASSERT_TRUE(
            eventually(kDeadline, "it is renewed", [&] { return table_.renewals() > renewals; }));
    }
    EXPECT_EQ(table_.epoch(), 1U);
    ASSERT_TRUE(eventually(kDeadline, "b has the lease", [&] {
        clock.pass(500ms);
        return table_.owner() == "b";
    }));
    EXPECT_EQ(first.said("route_hangs").size(), 1U);
    // While its thread hangs: the figures are b's, and whoever asks is told that it hangs.
    EXPECT_TRUE(first.relay().hangs());
    EXPECT_TRUE(eventually(kDeadline, "a shows no figures", [&] { return stats.in_flight == 0; }));
    EXPECT_FALSE(first.relay().health().leading);
    EXPECT_GE(first.relay().health().loop_age_us, 180'000'000);
    insert(10);
    destination_->set_paused(false);
    table_.set_hanging_reads(false);
    EXPECT_TRUE(eventually(kDeadline, "b works", [&] {
        clock.pass(5ms);
        return table_.unfinished() == 0;
    }));
    EXPECT_TRUE(eventually(kDeadline, "a goes on", [&] {
        return !first.relay().hangs() && first.relay().health().loop_age_us < 180'000'000;
    }));
    EXPECT_TRUE(first.stop().ok());
    EXPECT_TRUE(second.stop().ok());
    EXPECT_EQ(distinct(*destination_), 30U);
}

// Its lease may be another's as soon as it lets it go.
TEST_F(RelayTest, ARouteThatHungSendsNothingOnceItsRelayHasLetTheLeaseGo) {
    RelayOptions options = quick_options("a");
    options.lease_ttl_ms = 10'000;
    options.lease_margin_ms = 1'000;
    options.lease_renew_ms = 1'000;
    SlowClock clock;
    table_.set_clock(clock);
    Running running(table_, {destination_}, options, {}, &clock);
    insert(10);
    ASSERT_TRUE(eventually(kDeadline, "it works", [&] { return table_.unfinished() == 0; }));
    table_.set_hanging_reads(true);
    insert(10);
    while (running.said("route_hangs").empty()) {
        const int renewals = table_.renewals();
        clock.pass(4s);
        ASSERT_TRUE(eventually(kDeadline, "it is renewed, or let go", [&] {
            return table_.renewals() > renewals || !running.said("route_hangs").empty();
        }));
    }
    ASSERT_TRUE(eventually(kDeadline, "the lease is let go",
                           [&] { return !running.said("lease_lost").empty(); }));
    table_.set_hanging_reads(false);
    ASSERT_TRUE(eventually(kDeadline, "the term ends", [&] { return !running.relay().hangs(); }));
    EXPECT_EQ(distinct(*destination_), 10U);
    EXPECT_TRUE(running.stop().ok());
}

TEST_F(RelayTest, ARouteDoesNotHangWhereTheWholeProcessStoodStill) {
    RelayOptions options = quick_options("a");
    options.lease_ttl_ms = 1'000'000;
    options.lease_margin_ms = 1'000;
    options.lease_renew_ms = 1'000;
    SlowClock clock;
    table_.set_clock(clock);
    Running running(table_, {destination_}, options, {}, &clock);
    insert(10);
    ASSERT_TRUE(eventually(kDeadline, "it works", [&] { return table_.unfinished() == 0; }));
    // The route is looked at before it has moved again.
    table_.set_hanging_reads(true);
    ASSERT_TRUE(eventually(kDeadline, "it reads", [&] {
        clock.pass(100ms);
        return clock.boot_us() - running.relay().stats(0).last_step_us > 1'000'000;
    }));
    const int renewals = table_.renewals();
    clock.pass(195s);
    EXPECT_TRUE(eventually(kDeadline, "it looked", [&] {
        return table_.renewals() > renewals || !running.said("lease_lost").empty();
    }));
    EXPECT_TRUE(running.said("route_hangs").empty());
    EXPECT_FALSE(running.relay().hangs());
    table_.set_hanging_reads(false);
    EXPECT_TRUE(running.stop().ok());
}

TEST_F(RelayTest, AStartThatTakesLongerThanTheLeaseKeepsIt) {
    table_.set_slow_start(true);
    insert(10);
    RelayOptions options = quick_options("a");
    options.lease_ttl_ms = 1'000;
    options.lease_margin_ms = 100;
    options.lease_renew_ms = 50;
    SlowClock clock;
    table_.set_clock(clock);
    Running first(table_, {destination_}, options, {}, &clock);
    ASSERT_TRUE(eventually(kDeadline, "a has the lease", [&] { return table_.owner() == "a"; }));
    options.owner = "b";
    Running second(table_, {destination_}, options, {}, &clock);
    // Fifty of these are longer than the lease.
    for (int renewals = 1; renewals <= 50; ++renewals) {
        clock.pass(50ms);
        ASSERT_TRUE(
            eventually(kDeadline, "it is renewed", [&] { return table_.renewals() >= renewals; }));
    }
    EXPECT_EQ(table_.epoch(), 1U);
    EXPECT_FALSE(first.relay().health().leading);
    table_.set_slow_start(false);
    EXPECT_TRUE(eventually(kDeadline, "it works", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(first.stop().ok());
    EXPECT_TRUE(second.stop().ok());
    EXPECT_EQ(destination_->records().size(), 10U);
}

// A process that stood still meanwhile may have routes of long ago.
TEST_F(RelayTest, WhoIsAskedToStopAsItTakesTheLeaseBeginsNoTerm) {
    insert(10);
    std::promise<Running*> running;
    std::shared_future<Running*> made = running.get_future().share();
    table_.on_acquire([made] { made.get()->request_stop(); });
    Running relay(table_, {destination_}, "a");
    running.set_value(&relay);
    EXPECT_TRUE(relay.wait().ok());
    EXPECT_EQ(table_.epoch(), 1U);
    EXPECT_EQ(table_.owner(), "") << "the lease is another's to take at once";
    EXPECT_TRUE(relay.said("lease_acquired").empty());
    EXPECT_TRUE(destination_->records().empty());
    EXPECT_EQ(table_.unfinished(), 10U);
}

TEST_F(RelayTest, AnEventIsFinishedWhenEveryRouteHasFinishedIt) {
    const auto other = std::make_shared<Destination>();
    other->set_down(true);
    insert(200);
    {
        Running running(table_, {destination_, other}, "a");
        ASSERT_TRUE(eventually(kDeadline, "one route is through",
                               [&] { return distinct(*destination_) == 200; }));
        EXPECT_TRUE(running.stop().ok());
    }
    EXPECT_EQ(table_.unfinished(), 200U);
    other->set_down(false);
    Running running(table_, {destination_, other}, "b");
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*destination_);
    expect_complete_and_ordered(*other);
    // The ledger says what the first route had finished: it is not sent again.
    EXPECT_EQ(destination_->records().size(), 200U);
}

// As where a file of its own is broken as the term begins.
TEST_F(RelayTest, ASinkThatCannotBeMadeIsAnOutageOfItsRouteAlone) {
    const auto broken = std::make_shared<Destination>();
    std::atomic<bool> is_broken{true};
    insert(100);
    Running running(table_, {destination_, broken}, quick_options("a"), [&](std::size_t route) {
        return route == 1 && is_broken
                   ? Status(ErrorCode::kConfigInvalid, Advice::kStop, "its file is empty")
                   : Status();
    });
    ASSERT_TRUE(eventually(kDeadline, "the other route goes on",
                           [&] { return distinct(*destination_) == 100; }));
    ASSERT_TRUE(
        eventually(kDeadline, "it is told", [&] { return !running.said("circuit_open").empty(); }));
    EXPECT_NE(running.said("circuit_open")[0]["error"].find("its file is empty"),
              std::string::npos);
    EXPECT_TRUE(running.relay().health().database);
    is_broken = false;
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_EQ(running.relay().health().epoch, 1U);
    EXPECT_EQ(table_.dead(), 0U);
    EXPECT_TRUE(running.stop().ok());
    expect_complete_and_ordered(*broken);
}

TEST_F(RelayTest, APoisonEventGoesToTheDeadLettersAndItsKeyGoesOn) {
    destination_->fail("e3", {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "never"}, 1'000);
    destination_->fail("e5", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "not now"},
                       1'000);
    insert(100);
    Running running(table_, {destination_}, "a");
    ASSERT_TRUE(
        eventually(kDeadline, "the table is empty", [&] { return table_.unfinished() == 0; }));
    EXPECT_EQ(table_.dead(), 2U);
    EXPECT_TRUE(running.stop().ok());
    EXPECT_EQ(distinct(*destination_), 98U);
}

TEST_F(RelayTest, StopsWithinTheGraceTimeWhileTheDestinationKeepsSilent) {
    insert(50);
    destination_->set_paused(true);
    RelayOptions options = quick_options("a");
    options.shutdown_grace_ms = 2'000;
    Running running(table_, {destination_}, options);
    ASSERT_TRUE(eventually(kDeadline, "events are under way",
                           [&] { return running.relay().stats(0).in_flight > 0; }));
    EXPECT_TRUE(running.stop().ok());
    EXPECT_EQ(table_.owner(), "");
    EXPECT_EQ(table_.unfinished(), 50U);
}

}  // namespace
}  // namespace outbox::relay
