// What a route holds of each tenant: pause, share and rate, with a route that is stepped by hand.
#include <algorithm>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "brokers/memory/sink.h"
#include "relay/pipeline.h"
#include "tests/relay/options.h"
#include "tests/relay/table.h"

namespace outbox::relay {
namespace {

using namespace std::chrono_literals;
using memory::Destination;
using memory::MemorySink;
using test::Table;

class HandClock final : public core::Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override { return now_us; }
    [[nodiscard]] std::int64_t wall_us() const override { return now_us; }
    std::int64_t now_us = 1'000'000;
};

class TenantsOfARoute : public testing::Test {
  protected:
    void open(spi::Sink& sink) {
        routes_.resize(1);
        routes_[0].topics = *core::TopicRule::make("events", {}, "events");
        options_.retry = retry_;
        options_.poll_idle_ms = 1;
        lease_.extend(std::numeric_limits<std::int64_t>::max());
        reader_ = source_->open_reader("default", {}).value_or_throw();
        pipeline_ = std::make_unique<Pipeline>(
            Pipeline::Deps{*reader_, sink, queue_, lease_, clock_, stats_, notify_, full_}, 0,
            routes_, options_, Pipeline::Inheritance{{}, failing_, {}}, 1);
    }
    // Turns of `turn_us_`; the recorder answers at once, or only where it is asked to.
    void step(int turns = 1) {
        for (int turn = 0; turn < turns; ++turn) {
            clock_.now_us += turn_us_;
            const Status status = pipeline_->step();
            ASSERT_TRUE(status.ok()) << describe(status.error());
            std::vector<Outcomes> taken(1);
            queue_.take(0, 0ms, taken);
            hurried_ = hurried_ || taken[0].hurry;
            for (const Position position : taken[0].finished) finished_.push_back(position);
            dead_lanes_.insert(dead_lanes_.end(), taken[0].dead_lanes.begin(),
                               taken[0].dead_lanes.end());
            if (recording_) record();
        }
    }
    void record() {
        Feedback feedback;
        feedback.recorded.swap(finished_);
        feedback.dead_lanes.swap(dead_lanes_);
        if (!feedback.empty()) queue_.answer(0, std::move(feedback));
    }
    void pause(std::vector<std::string> tenants) {
        Feedback feedback;
        feedback.paused = std::move(tenants);
        queue_.answer(0, std::move(feedback));
    }
    void insert(const std::string& tenant, const std::string& key, int count) {
        for (int i = 0; i < count; ++i) {
            const int n = ++written_[tenant + "/" + key];
            table_.insert(tenant + "/" + key + "/" + std::to_string(n), key, "", tenant);
        }
    }
    // How many of the tenant have arrived.
    std::size_t arrived(const std::string& tenant) const {
        const auto records = destination_->records();
        return static_cast<std::size_t>(
            std::count_if(records.begin(), records.end(),
                          [&](const auto& one) { return one.id.starts_with(tenant + "/"); }));
    }
    // Every key of every tenant rises by one.
    void expect_order() const {
        std::map<std::string, int> last;
        for (const auto& record : destination_->records()) {
            const auto slash = record.id.rfind('/');
            const int n = std::stoi(record.id.substr(slash + 1));
            int& before = last[record.id.substr(0, slash)];
            EXPECT_EQ(n, before + 1) << record.id;
            before = n;
        }
    }

    Table table_;
    std::unique_ptr<spi::Source> source_ = table_.connect();
    std::atomic<bool> full_{false};
    std::shared_ptr<Destination> destination_ = std::make_shared<Destination>();
    OutcomeQueue queue_{1};
    LeaseView lease_;
    HandClock clock_;
    RouteStats stats_;
    Notify notify_ = [](const Note&) {};
    RelayOptions options_ = usual_options();
    core::RetryPolicy retry_{5, 20, 10};
    std::vector<RouteSpec> routes_;
    std::vector<spi::Delivery> failing_;  // as an earlier term left them
    std::unique_ptr<spi::Reader> reader_;
    std::unique_ptr<Pipeline> pipeline_;
    std::map<std::string, int> written_;
    std::vector<Position> finished_;
    std::vector<core::LaneKey> dead_lanes_;
    std::int64_t turn_us_ = 1'000'000;
    bool recording_ = true;
    bool hurried_ = false;
};

TEST_F(TenantsOfARoute, NothingOfAPausedTenantIsSentAndOthersGoOn) {
    MemorySink sink(destination_, {});
    open(sink);
    pause({"a"});
    insert("a", "k", 300);
    insert("b", "k", 300);
    step(50);
    EXPECT_EQ(arrived("a"), 0U);
    EXPECT_EQ(arrived("b"), 300U);
    pause({});
    step(50);
    EXPECT_EQ(arrived("a"), 300U);
    expect_order();
    EXPECT_EQ(table_.unfinished(), 600U) << "only the recorder takes rows out";
}

// A topic that is down is tried with one key after another.
TEST_F(TenantsOfARoute, OneThatIsPausedIsNotWhatATopicThatIsDownIsTriedWith) {
    MemorySink sink(destination_, {.across_topics = false});
    open(sink);
    destination_->set_topic_down("events", true);
    insert("a", "k", 3);
    insert("b", "k", 3);
    step(3);
    EXPECT_GT(stats_.parts_down.load(), 0);
    pause({"a"});
    step(3);
    destination_->set_topic_down("events", false);
    step(30);
    EXPECT_EQ(arrived("b"), 3U);
    EXPECT_EQ(arrived("a"), 0U);
    pause({});
    step(30);
    EXPECT_EQ(arrived("a"), 3U);
    expect_order();
}

TEST_F(TenantsOfARoute, OnePausedJustAsATopicThatIsDownIsTriedWithItGivesItsTurnToAnother) {
    MemorySink sink(destination_, {.across_topics = false});
    open(sink);
    destination_->set_topic_down("events", true);
    insert("a", "k", 3);
    insert("b", "k", 3);
    step();
    // Its turn comes, and its row cannot be had.
    table_.set_away(true);
    step(10);
    pause({"a"});
    destination_->set_topic_down("events", false);
    step();
    table_.set_away(false);
    step(30);
    EXPECT_EQ(arrived("b"), 3U);
    EXPECT_EQ(arrived("a"), 0U);
    expect_order();
}

TEST_F(TenantsOfARoute, WhatIsInMemoryOfATenantStaysThereWhenItIsPaused) {
    destination_->set_paused(true);
    options_.max_unrecorded = 20;
    MemorySink sink(destination_, {.fail_stop_order = false});
    open(sink);
    for (const char* key : {"k", "l", "m"}) insert("a", key, 5);
    insert("b", "k", 5);
    step(5);
    pause({"a"});
    step(2);
    destination_->set_paused(false);
    step(50);
    EXPECT_LE(arrived("a"), 3U) << "one of each key was under way";
    EXPECT_EQ(arrived("b"), 5U);
    insert("a", "k", 5);
    step(5);
    pause({});
    step(100);
    EXPECT_EQ(arrived("a"), 20U);
    expect_order();
}

TEST_F(TenantsOfARoute, NothingOfAPausedTenantIsTheProbeOfACircuit) {
    // More than are found at fault, and wait for that.
    for (int key = 0; key < 60; ++key) insert("a", "k" + std::to_string(key), 1);
    destination_->set_down(true);
    MemorySink sink(destination_, {});
    open(sink);
    step(5);
    ASSERT_NE(stats_.circuit.load(), core::Circuit::State::kClosed);
    pause({"a"});
    destination_->set_down(false);
    step(50);
    EXPECT_EQ(arrived("a"), 0U);
    EXPECT_EQ(stats_.circuit.load(), core::Circuit::State::kClosed) << "it is asked itself";
    pause({});
    step(100);
    EXPECT_EQ(arrived("a"), 60U);
    expect_order();
}

// Memory has room for some of a key that is fetched again. What of it went into the pause goes
// before what was left to be fetched.
TEST_F(TenantsOfARoute, AKeyThatIsFetchedInPartsIsResumedOnceAllOfItIsThere) {
    options_.max_in_flight_bytes = 10'000;
    retry_ = {1'000'000, 1'000'000, 5};
    const std::string payload(1'000, 'x');
    for (int n = 1; n <= 10; ++n) table_.insert("a/k/" + std::to_string(n), "k", "", "a", payload);
    destination_->fail("a/k/1", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"}, 1);
    MemorySink sink(destination_, {.fail_stop_order = false});
    open(sink);
    step(5);
    recording_ = false;  // so that dead letters take memory
    for (int n = 1; n <= 7; ++n) {
        const std::string id = "b/" + std::to_string(n) + "/1";
        table_.insert(id, std::to_string(n), "", "b", payload);
        destination_->fail(id, {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "never"}, 1);
    }
    step(10);
    EXPECT_GE(stats_.held_bytes.load(), 7'000);
    clock_.now_us += 2'000'000'000;
    step();
    ASSERT_EQ(arrived("a"), 1U) << "the one that had failed goes alone";
    step();
    ASSERT_EQ(arrived("a"), 2U) << "of a few behind it";
    pause({"a"});
    step();
    pause({});
    step(20);
    recording_ = true;
    record();
    step(100);
    EXPECT_EQ(arrived("a"), 10U);
    expect_order();
}

TEST_F(TenantsOfARoute, AKeyThatWaitsForItsRetryIsKeptWholeByAPause) {
    insert("a", "k", 30);
    insert("a", "l", 3);
    destination_->fail("a/k/1", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"}, 1);
    retry_ = {1'000'000, 1'000'000, 5};
    MemorySink sink(destination_, {.fail_stop_order = false});
    open(sink);
    step(10);
    EXPECT_EQ(arrived("a"), 3U);
    pause({"a"});
    step(3);
    // Its retry falls into the pause, and into the middle of the key's fetching again.
    clock_.now_us += 2'000'000'000;
    step(3);
    EXPECT_EQ(arrived("a"), 3U);
    pause({});
    insert("a", "k", 3);
    step(100);
    EXPECT_EQ(arrived("a"), 36U);
    expect_order();
}

class TenantsAtRandom : public TenantsOfARoute, public testing::WithParamInterface<unsigned> {};

TEST_P(TenantsAtRandom, PausedAndResumedAgainAndAgainNothingIsLostAndNothingOvertakes) {
    std::mt19937 random(GetParam());
    const auto one_of = [&](unsigned many) { return static_cast<int>(random() % many); };
    options_.max_unrecorded = 40;
    options_.batch_size = 1 + static_cast<std::size_t>(one_of(20));
    options_.tenant_share = one_of(2) == 0 ? 100 : 10;
    options_.tenant_rate = one_of(3) == 0 ? 500 : 0;
    if (one_of(3) == 0) options_.max_in_flight_bytes = 400;
    MemorySink sink(destination_, {.fail_stop_order = one_of(2) == 0});
    open(sink);
    std::size_t total = 0;
    for (int round = 0; round < 300; ++round) {
        const std::string tenant(1, static_cast<char>('a' + one_of(3)));
        const std::string key(1, static_cast<char>('k' + one_of(3)));
        const int count = one_of(6);
        insert(tenant, key, count);
        total += static_cast<std::size_t>(count);
        if (count > 0 && one_of(4) == 0) {
            const std::string of_key = tenant + "/" + key;
            destination_->fail(of_key + "/" + std::to_string(written_[of_key]),
                               {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"},
                               1 + static_cast<std::size_t>(one_of(2)));
        }
        if (one_of(5) == 0) destination_->set_down(one_of(2) == 0);
        if (one_of(3) == 0) {
            std::vector<std::string> paused;
            for (const char* one : {"a", "b", "c"}) {
                if (one_of(3) == 0) paused.emplace_back(one);
            }
            pause(std::move(paused));
        }
        recording_ = one_of(3) != 0;
        turn_us_ = 1 + one_of(20'000);
        step(1 + one_of(3));
    }
    destination_->set_down(false);
    pause({});
    recording_ = true;
    turn_us_ = 1'000'000;
    step(1000);
    EXPECT_EQ(destination_->records().size(), total);
    expect_order();
    EXPECT_EQ(stats_.held_bytes.load(), 0);
}

INSTANTIATE_TEST_SUITE_P(Seeds, TenantsAtRandom, testing::Range(1U, 21U));

TEST_F(TenantsOfARoute, ABurstOfOneTenantLeavesRoomForTheOthers) {
    options_.max_unrecorded = 1'000;
    options_.tenant_share = 10;
    destination_->set_paused(true);
    MemorySink sink(destination_, {});
    open(sink);
    for (int key = 0; key < 100; ++key) insert("burst", "k" + std::to_string(key), 100);
    for (int key = 0; key < 100; ++key) insert("b", "k" + std::to_string(key), 1);
    step(100);
    EXPECT_EQ(stats_.in_flight.load(), 200) << "the share of the burst, and all of the other";
    destination_->set_paused(false);
    recording_ = false;
    step(20);
    EXPECT_EQ(arrived("b"), 100U);
    EXPECT_EQ(arrived("burst"), 100U) << "what is not recorded counts to the share";
    EXPECT_TRUE(hurried_) << "the recorder does not wait for more";
    recording_ = true;
    record();
    step(400);
    EXPECT_EQ(arrived("burst"), 10'000U);
    expect_order();
}

TEST_F(TenantsOfARoute, BehindABurstOthersWaitForItsPositionsAlone) {
    options_.max_unrecorded = 1'000;
    options_.tenant_share = 10;
    MemorySink sink(destination_, {});
    for (int key = 0; key < 100; ++key) insert("burst", "k" + std::to_string(key), 100);
    for (int key = 0; key < 100; ++key) insert("b", "k" + std::to_string(key), 1);
    // What is known of an event from before is not lost with its bytes.
    failing_ = {{"default", 0, "burst/k90/1", "k90", 199, 0, "OB_SINK_TIMEOUT", "no answer"}};
    retry_.max_attempts = 200;
    destination_->fail("burst/k90/1", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"},
                       2);
    open(sink);
    step(400);
    EXPECT_EQ(arrived("b"), 100U);
    EXPECT_GT(table_.passed_over(), 8'000U);
    EXPECT_EQ(arrived("burst"), 9'999U) << "the one whose last attempt it was is dead";
}

TEST_F(TenantsOfARoute, WhereARouteTakesSomeEventsAllAreRead) {
    options_.max_unrecorded = 1'000;
    options_.tenant_share = 10;
    routes_.resize(1);
    routes_[0].predicate.event_types = {"changed"};
    MemorySink sink(destination_, {});
    for (int key = 0; key < 100; ++key) insert("burst", "k" + std::to_string(key), 100);
    open(sink);
    step(400);
    EXPECT_EQ(arrived("burst"), 10'000U);
    EXPECT_EQ(table_.passed_over(), 0U);
}

TEST_F(TenantsOfARoute, ABurstThatEndsWithAFullReadWaitsForNoOther) {
    options_.batch_size = 50;
    options_.max_unrecorded = 100;
    options_.tenant_share = 10;
    turn_us_ = 1'000;
    MemorySink sink(destination_, {});
    open(sink);
    insert("a", "k", 100);
    step(60);
    EXPECT_EQ(arrived("a"), 100U);
}

// Each costs a read, for which all others wait.
TEST_F(TenantsOfARoute, WhatComesBackComesInPortions) {
    options_.tenant_share = 10;
    options_.max_unrecorded = 1'000;  // 100 of a tenant
    TenantQueues tenants(options_);
    const auto id = tenants.of("burst", 0);
    for (Position position = 1; position <= 500; ++position) tenants.set_aside(id, position);
    std::vector<TenantQueues::Back> back;
    const auto take = [&](std::int64_t now_us) {
        back.clear();
        tenants.take_back(1'000, now_us, back);
        for (std::size_t i = 0; i < back.size(); ++i) tenants.takes(id, 1);
        return back.size();
    };
    std::int64_t now_us = 1'000'000;
    EXPECT_EQ(take(now_us), 100U);
    tenants.gives_back(id, 1);
    EXPECT_EQ(take(now_us), 0U) << "one is not worth a read";
    EXPECT_GT(tenants.next_back_us(now_us), now_us);
    for (int i = 0; i < 30; ++i) tenants.gives_back(id, 1);
    EXPECT_EQ(tenants.next_back_us(now_us), now_us);
    EXPECT_EQ(take(now_us), 31U) << "a quarter of the share is";
    tenants.gives_back(id, 1);
    now_us = tenants.next_back_us(now_us);
    EXPECT_EQ(take(now_us), 1U) << "nor does one wait for long";
}

// A key may fail for days: what waits for it has no place of those that can go.
TEST_F(TenantsOfARoute, AKeyThatFailsLeavesTheShareToTheTenantsOtherKeys) {
    options_.max_unrecorded = 1'000;
    options_.tenant_share = 10;
    retry_ = {3'600'000, 3'600'000, 10};
    MemorySink sink(destination_, {});
    open(sink);
    destination_->fail("a/bad/1", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "too odd"},
                       9);
    insert("a", "bad", 500);
    step(30);
    for (int key = 0; key < 100; ++key) insert("a", "k" + std::to_string(key), 5);
    step(100);
    EXPECT_EQ(arrived("a"), 500U);
    expect_order();
}

TEST_F(TenantsOfARoute, WhatWaitsForAKeyThatFailsHasAShareOfWhatMayWait) {
    options_.max_unrecorded = 1'000;
    options_.max_waiting = 1'000;
    options_.tenant_share = 10;
    retry_ = {3'600'000, 3'600'000, 10};
    MemorySink sink(destination_, {});
    open(sink);
    destination_->fail("a/bad/1", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "too odd"},
                       1);
    insert("a", "bad", 2'000);
    step(50);
    insert("b", "k", 100);
    step(50);
    EXPECT_EQ(arrived("b"), 100U) << "the tenant's key has not filled all that may wait";
    turn_us_ = 3'600'000'000;
    step(2);
    turn_us_ = 1'000;
    step(400);
    EXPECT_EQ(arrived("a"), 2'000U);
    expect_order();
}

TEST_F(TenantsOfARoute, ThoseThatAreReadGetTheirTurnWhileABacklogIsTakenBack) {
    options_.max_unrecorded = 20;
    MemorySink sink(destination_, {});
    open(sink);
    pause({"a"});
    insert("a", "k", 1'000);
    step(60);
    pause({});
    step();
    insert("b", "k", 50);
    step(20);
    EXPECT_EQ(arrived("b"), 50U);
    EXPECT_GT(arrived("a"), 50U);
    EXPECT_LT(arrived("a"), 1'000U);
    step(100);
    EXPECT_EQ(arrived("a"), 1'000U);
    expect_order();
}

TEST_F(TenantsOfARoute, LargeEventsOfOneTenantLeaveRoomForTheBytesOfOthers) {
    options_.max_in_flight_bytes = 100'000;
    options_.tenant_share = 20;
    options_.batch_size = 5;
    destination_->set_paused(true);
    MemorySink sink(destination_, {});
    open(sink);
    const std::string payload(5'000, 'x');
    for (int i = 1; i <= 100; ++i) {
        table_.insert("a/k/" + std::to_string(i), "k", "", "a", payload);
    }
    insert("b", "k", 10);
    step(100);
    EXPECT_EQ(stats_.in_flight.load(), 4 + 10);
    destination_->set_paused(false);
    step(200);
    EXPECT_EQ(arrived("a"), 100U);
    EXPECT_EQ(arrived("b"), 10U);
    expect_order();
}

TEST_F(TenantsOfARoute, NoMoreOfATenantIsSentInASecondThanItsRate) {
    options_.tenant_rate = 100;
    turn_us_ = 10'000;
    MemorySink sink(destination_, {});
    open(sink);
    insert("a", "k", 1'000);
    insert("b", "k", 50);
    step(100);
    EXPECT_GE(arrived("a"), 100U);
    EXPECT_LE(arrived("a"), 111U) << "a second's, and a tenth that may go at once";
    EXPECT_EQ(arrived("b"), 50U);
    step(300);
    EXPECT_GE(arrived("a"), 400U);
    EXPECT_LE(arrived("a"), 411U);
    expect_order();
}

TEST_F(TenantsOfARoute, OneTenantsKeyIsNotHeldUpByTheSameKeyOfAnother) {
    insert("a", "k", 2);
    insert("b", "k", 2);
    destination_->fail("a/k/1", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"}, 1);
    retry_ = {1'000'000, 1'000'000, 5};
    MemorySink sink(destination_, {.fail_stop_order = false});
    open(sink);
    step(10);
    EXPECT_EQ(arrived("a"), 0U);
    EXPECT_EQ(arrived("b"), 2U);
}

TEST_F(TenantsOfARoute, ThoseOfWhomMostWaitAreCountedByNameAndAllOthersAsOne) {
    MemorySink sink(destination_, {});
    open(sink);
    std::vector<std::string> paused{"other"};
    for (int i = 10; i < 50; ++i) {
        paused.push_back("t" + std::to_string(i));
        insert(paused.back(), "k", i);
    }
    insert("other", "k", 100);
    pause(paused);
    step(20);
    const RouteStats::Tenants counts = stats_.tenants();
    EXPECT_EQ(counts.paused, 41U);
    ASSERT_EQ(counts.waiting.size(), RouteStats::kMaxTenants + 1);
    EXPECT_EQ(counts.waiting.front(), (std::pair<std::string, std::size_t>("t49", 49)));
    EXPECT_EQ(counts.waiting.back(), (std::pair<std::string, std::size_t>("other", 100 + 390)));
}

TEST_F(TenantsOfARoute, TenantsOfWhomNothingIsThereAreForgottenAlsoWhereTheyHaveARate) {
    options_.tenant_rate = 100;
    TenantQueues tenants(options_);
    core::TenantId highest = 0;
    for (int i = 0; i < 100'000; ++i) {
        const std::int64_t now_us = std::int64_t{i} * 1'000;
        const auto id = tenants.of("t" + std::to_string(i), now_us);
        ASSERT_TRUE(tenants.may_admit(id, now_us));
        tenants.admitted(id);
        tenants.finished(id, true);
        tenants.recorded(1);
        highest = std::max(highest, id);
    }
    EXPECT_LT(highest, 30'000U);
}

TEST_F(TenantsOfARoute, ARowThatIsRemovedWhileItIsSetAsideIsDoneWith) {
    MemorySink sink(destination_, {});
    open(sink);
    pause({"a"});
    insert("a", "k", 3);
    step(5);
    table_.remove("a/k/2");
    pause({});
    step(20);
    EXPECT_EQ(arrived("a"), 2U);
    EXPECT_EQ(stats_.unrecorded.load(), 0);
}

// Somebody deletes a backlog, and the tenant's next events go in seconds.
TEST_F(TenantsOfARoute, RowsThatAreGoneTakeNothingOfARate) {
    options_.tenant_rate = 2;
    turn_us_ = 10'000;
    MemorySink sink(destination_, {});
    open(sink);
    insert("a", "k", 2'000);
    step(300);
    const std::size_t sent = arrived("a");
    ASSERT_LE(sent, 7U);
    for (std::size_t n = sent + 1; n <= 2'000; ++n) {
        if (n % 200 != 0) table_.remove("a/k/" + std::to_string(n));
    }
    step(300);
    EXPECT_LE(arrived("a") - sent, 7U) << "those that are left go at the rate";
    step(300);
    EXPECT_EQ(arrived("a") - sent, 10U);
    int last = 0;
    for (const auto& record : destination_->records()) {
        const int n = std::stoi(record.id.substr(4));
        EXPECT_GT(n, last) << "in their order";
        last = n;
    }
    EXPECT_EQ(last, 2'000);
    EXPECT_EQ(stats_.unrecorded.load(), 0);
}

// Whatever the rate, so many are asked for at once that a few reads see all.
TEST_F(TenantsOfARoute, RowsThatAreGoneCostFewReadsAndNoWait) {
    options_.tenant_rate = 1;
    TenantQueues tenants(options_);
    const auto id = tenants.of("a", 0);
    for (Position position = 1; position <= 100'000; ++position) tenants.set_aside(id, position);
    std::vector<TenantQueues::Back> back;
    std::size_t seen = 0;
    int reads = 0;
    for (; seen < 100'000 && reads < 1'000; ++reads) {
        back.clear();
        tenants.take_back(500, 1'000'000 + reads * 1'000, back);
        for (const TenantQueues::Back& one : back) {
            tenants.gone(one.tenant);
            tenants.finished(one.tenant, true);
        }
        tenants.recorded(back.size());
        seen += back.size();
    }
    EXPECT_EQ(seen, 100'000U);
    EXPECT_LE(reads, 210);
}

TEST_F(TenantsOfARoute, WhatCouldNotBeReadTakesNothingOfARate) {
    options_.tenant_rate = 1;
    TenantQueues tenants(options_);
    const auto id = tenants.of("a", 0);
    tenants.set_aside(id, 1);
    std::vector<TenantQueues::Back> back;
    tenants.take_back(10, 1'000'000, back);
    ASSERT_EQ(back.size(), 1U);
    tenants.put_back(back);
    back.clear();
    tenants.take_back(10, 1'100'000, back);
    ASSERT_EQ(back.size(), 1U);
    EXPECT_TRUE(tenants.pays(id));
    EXPECT_FALSE(tenants.pays(id));
}

}  // namespace
}  // namespace outbox::relay
