#include "relay/pipeline.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <gtest/gtest.h>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "brokers/memory/sink.h"
#include "tests/relay/options.h"
#include "tests/relay/table.h"

namespace outbox::relay {
namespace {

using namespace std::chrono_literals;
using memory::Destination;
using memory::MemorySink;
using test::Table;

class ManualClock final : public core::Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override { return now_us; }
    [[nodiscard]] std::int64_t wall_us() const override { return now_us; }
    std::int64_t now_us = 1'000'000;
};

// As the housekeeper hands it over; its payload is its id.
spi::DeadLetter letter_of(std::int64_t dead_id, const std::string& id, spi::Position position = 0) {
    spi::DeadLetter letter;
    letter.dead_id = dead_id;
    letter.route = "default";
    letter.position = position;
    spi::EventView event;
    event.position = position;
    event.id = id;
    event.payload = id;
    letter.event.add_copy(event);
    return letter;
}

// Takes nothing, as a program that does not read its input.
class FullSink final : public spi::Sink {
  public:
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        static const spi::SinkCapabilities kCapabilities{"full", spi::Guarantee::kAtLeastOnce, true,
                                                         true};
        return kCapabilities;
    }
    Status check() override { return {}; }
    Result<std::string> destination() override { return std::string("full"); }
    [[nodiscard]] bool publish(const spi::Record&) override {
        ++offers;
        return false;
    }
    void poll(std::chrono::milliseconds, spi::Completions&) override {}
    int offers = 0;
};

// Acknowledges each record in the turn that it came, and the first one once more, `late` turns
// later.
class RepeatingSink final : public spi::Sink {
  public:
    explicit RepeatingSink(int late) : late_(late) {}
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        static const spi::SinkCapabilities kCapabilities{"repeating", spi::Guarantee::kAtLeastOnce,
                                                         true, true};
        return kCapabilities;
    }
    Status check() override { return {}; }
    Result<std::string> destination() override { return std::string("repeating"); }
    [[nodiscard]] bool publish(const spi::Record& record) override {
        if (!first_) first_ = record.token;
        if (polls_ < late_ || late_ == 0) under_way_.push_back(record.token);
        return true;
    }
    void poll(std::chrono::milliseconds, spi::Completions& out) override {
        out.acknowledged.swap(under_way_);
        if (first_ && polls_++ == late_) out.acknowledged.push_back(*first_);
    }

  private:
    const int late_;
    int polls_ = 0;
    std::optional<std::uint64_t> first_;
    std::vector<std::uint64_t> under_way_;
};

// Takes all at once and answers so many in a turn; topics that begin with "down" are down.
class SlowSink final : public spi::Sink {
  public:
    explicit SlowSink(std::size_t rate) : rate_(rate) {}
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        static const spi::SinkCapabilities kCapabilities{"slow", spi::Guarantee::kAtLeastOnce,
                                                         false, true};
        return kCapabilities;
    }
    Status check() override { return {}; }
    Result<std::string> destination() override { return std::string("slow"); }
    [[nodiscard]] bool publish(const spi::Record& record) override {
        under_way_.push_back(record);
        return true;
    }
    void poll(std::chrono::milliseconds, spi::Completions& out) override {
        for (std::size_t i = 0; i < rate_ && !under_way_.empty(); ++i) {
            const spi::Record record = under_way_.front();
            under_way_.pop_front();
            if (record.topic.starts_with("down") && is_down) {
                ++refused;
                out.failed.push_back({.token = record.token,
                                      .error = {ErrorCode::kTopicUnknown,
                                                Advice::kRetryDestination,
                                                {},
                                                "nobody is there"},
                                      .part = "topic " + std::string(record.topic)});
            } else {
                ++passed;
                out.acknowledged.push_back(record.token);
            }
        }
    }
    bool is_down = true;
    int passed = 0;
    int refused = 0;

  private:
    const std::size_t rate_;
    std::deque<spi::Record> under_way_;
};

// Reads, and can fetch nothing again.
class UnsafeReader final : public spi::Reader {
  public:
    explicit UnsafeReader(std::unique_ptr<spi::Reader> reader) : reader_(std::move(reader)) {}
    Status read(const spi::ReadLimits& limits, spi::EventBatch& out) override {
        return reader_->read(limits, out);
    }
    Status fetch(std::span<const spi::Position>, spi::EventBatch&) override {
        return {ErrorCode::kTableReset, Advice::kStop, "positions mean other events"};
    }
    void forget(std::span<const spi::Position> positions) override { reader_->forget(positions); }

  private:
    std::unique_ptr<spi::Reader> reader_;
};

// One route that is stepped by hand.
class PipelineTest : public testing::Test {
  protected:
    void open(spi::Sink& sink, OnDeadLetter on_dead_letter = OnDeadLetter::kContinue) {
        RouteSpec route;
        route.topics = *core::TopicRule::make("events", {}, "events");
        route.on_dead_letter = on_dead_letter;
        routes_.push_back(std::move(route));
        options_.retry = retry_;
        options_.max_unrecorded = max_unrecorded_;
        options_.poll_idle_ms = poll_idle_ms_;
        lease_.extend(std::numeric_limits<std::int64_t>::max());
        reader_ = source_->open_reader("default", {}).value_or_throw();
        if (unsafe_to_fetch_) reader_ = std::make_unique<UnsafeReader>(std::move(reader_));
        pipeline_ = std::make_unique<Pipeline>(
            Pipeline::Deps{*reader_, sink, queue_, lease_, clock_, stats_, notify_, full_}, 0,
            routes_, options_, inheritance_, 1);
    }

    // Turns of a second each, as if the recorder answered at once, or not at all.
    void step(int turns = 1, bool recording = true) {
        for (int turn = 0; turn < turns; ++turn) {
            clock_.now_us += 1'000'000;
            const Status status = pipeline_->step();
            ASSERT_TRUE(status.ok()) << describe(status.error());
            if (queue_.empty() || !recording) continue;
            std::vector<Outcomes> taken(1);
            queue_.take(1, 0ms, taken);
            for (const spi::Delivery& failed : taken[0].failed) failed_.push_back(failed);
            dead_ += taken[0].dead.size();
            if (!taken[0].destination.empty()) destination_met_ = taken[0].destination;
            Feedback feedback;
            feedback.recorded = taken[0].finished;
            feedback.dead_lanes = taken[0].dead_lanes;
            queue_.answer(0, std::move(feedback));
        }
    }
    void expect_stop_at_a_repeated_outcome(int late) {
        for (const char* id : {"1", "2", "3"}) table_.insert(id, "k");
        RepeatingSink sink(late);
        open(sink);
        Status status;
        std::vector<Outcomes> taken(1);
        for (int turn = 0; turn < 20 && status.ok(); ++turn) {
            if (turn == 1) {
                for (const char* id : {"4", "5"}) table_.insert(id, "k");
            }
            clock_.now_us += 1'000'000;
            status = pipeline_->step();
        }
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().advice, Advice::kStop);
        EXPECT_NE(status.error().message.find("repeating"), std::string::npos);
        queue_.take(1, 0ms, taken);
        EXPECT_EQ(taken[0].finished.size(), 3U) << "only what was acknowledged counts";
        EXPECT_EQ(stats_.in_flight.load(), late == 0 ? 0 : 2);
    }
    std::string arrived() const {
        std::string ids;
        for (const auto& record : destination_->records()) ids += record.id + " ";
        return ids;
    }

    Table table_;
    std::unique_ptr<spi::Source> source_ = table_.connect();
    std::atomic<bool> full_{false};
    std::shared_ptr<Destination> destination_ = std::make_shared<Destination>();
    OutcomeQueue queue_{1};
    LeaseView lease_;
    ManualClock clock_;
    RouteStats stats_;
    Notify notify_ = [](const Note&) {};
    RelayOptions options_ = usual_options();
    core::RetryPolicy retry_{5, 20, 2};
    std::vector<RouteSpec> routes_;
    std::unique_ptr<spi::Reader> reader_;
    std::unique_ptr<Pipeline> pipeline_;
    std::vector<spi::Delivery> failed_;
    std::size_t dead_ = 0;
    std::string destination_met_;
    bool unsafe_to_fetch_ = false;
    Pipeline::Inheritance inheritance_;
    std::size_t max_unrecorded_ = 100;
    std::int64_t poll_idle_ms_ = 1;
};

TEST_F(PipelineTest, OfferingToAFullSinkAgainAndAgainCostsNoMemory) {
    for (int i = 0; i < 80; ++i)
        table_.insert("e" + std::to_string(i), "k" + std::to_string(i % 7));
    FullSink sink;
    open(sink);
    step(10);
    const std::int64_t held = stats_.held_bytes.load();
    EXPECT_GT(held, 0);
    step(2'000);
    EXPECT_GE(sink.offers, 2'000);
    EXPECT_EQ(stats_.held_bytes.load(), held);
}

TEST_F(PipelineTest, ReadingWaitsAtTheLimitOfBytesHeld) {
    for (int i = 0; i < 80; ++i) table_.insert("e" + std::to_string(i), "k" + std::to_string(i));
    FullSink sink;
    options_.batch_size = 5;
    options_.max_in_flight_bytes = 500;
    open(sink);
    step(100);
    EXPECT_GE(stats_.held_bytes.load(), 500);
    EXPECT_LT(stats_.held_bytes.load(), 1'000);
    EXPECT_LT(stats_.queued.load(), 40);
}

TEST_F(PipelineTest, EventsWhoseWaitIsOverAreFetchedWithinTheLimitOfBytesHeld) {
    for (int i = 0; i < 80; ++i) {
        const std::string id = std::to_string(i) + std::string(1'000, 'x');
        table_.insert(id, "k" + std::to_string(i));
        destination_->fail(id, {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"}, 1);
    }
    MemorySink sink(destination_, {.fail_stop_order = false});
    options_.batch_size = 10;
    options_.batch_bytes = 5'000;
    options_.max_in_flight_bytes = 10'000;
    retry_ = {1'000'000, 1'000'000, 2};
    open(sink);
    for (int turn = 0; turn < 400 && failed_.size() < 80; ++turn) step();
    ASSERT_EQ(failed_.size(), 80U);
    destination_->set_paused(true);
    clock_.now_us += 1'000'000'000;  // all of them are due at once
    step(100);
    EXPECT_GT(stats_.held_bytes.load(), 5'000);
    EXPECT_LT(stats_.held_bytes.load(), 30'000);
    destination_->set_paused(false);
    step(500);
    EXPECT_EQ(destination_->records().size(), 80U);
}

// Two of each key fail once: while the second one waits the rest of the key is being fetched again.
TEST_F(PipelineTest, KeysThatFailWhileTheirRestIsFetchedGiveUpTheMemoryThatOthersNeed) {
    constexpr int kKeys = 30;
    constexpr int kOfEach = 8;
    for (int i = 0; i < kOfEach; ++i) {
        for (int key = 0; key < kKeys; ++key) {
            const std::string name = "k" + std::to_string(key);
            const std::string id = std::to_string(i) + name + std::string(1'000, 'x');
            table_.insert(id, name);
            if (i < 2) {
                destination_->fail(
                    id, {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"}, 1);
            }
        }
    }
    MemorySink sink(destination_, {.fail_stop_order = false});
    options_.max_in_flight_bytes = 10'000;
    max_unrecorded_ = 1'000;
    retry_ = {1'000, 1'000'000, 2};
    open(sink);
    step(1'500);
    EXPECT_EQ(destination_->records().size(), static_cast<std::size_t>(kKeys * kOfEach));
    EXPECT_EQ(stats_.held_bytes.load(), 0);
}

// What got no answer may be at the destination, and counts for the limit of what is sent again
// after a crash, as does what lies behind it: with as many of them nothing else may be sent, and
// memory is full of the rest.
TEST_F(PipelineTest, EventsThatMayNotBeSentGiveUpTheirMemoryToThoseThatMay) {
    constexpr int kBehind = 15;
    constexpr int kOthers = 40;
    for (int i = 0; i < kBehind; ++i) table_.insert("k" + std::to_string(i), "k");
    for (int i = 0; i < kOthers; ++i) {
        table_.insert(std::to_string(i) + std::string(1'000, 'x'), std::to_string(i));
    }
    destination_->fail("k0", {ErrorCode::kSinkTimeout, Advice::kRetryDestination, {}, "no answer"},
                       12);
    MemorySink sink(destination_, {});
    options_.max_in_flight_bytes = 2'000;
    options_.batch_size = 10;
    max_unrecorded_ = 20;
    retry_ = {2'000, 20'000, 50};
    open(sink);
    step(2'000);
    EXPECT_EQ(destination_->records().size(), static_cast<std::size_t>(kBehind + kOthers));
    EXPECT_EQ(stats_.held_bytes.load(), 0);
}

// Nothing else is left that could show whether the destination is down, or the event that gets no
// answer is at fault.
TEST_F(PipelineTest, WhatGaveUpItsMemoryIsProbedWith) {
    constexpr int kBehind = 27;
    constexpr int kOthers = 14;
    for (int i = 0; i < kBehind; ++i) table_.insert("k" + std::to_string(i), "k");
    for (int i = 0; i < kOthers; ++i) {
        table_.insert(std::to_string(i) + std::string(1'000, 'x'), std::to_string(i));
    }
    destination_->fail("k0", {ErrorCode::kSinkTimeout, Advice::kRetryDestination, {}, "no answer"},
                       9'999);
    MemorySink sink(destination_, {});
    options_.max_in_flight_bytes = 3'005;
    options_.batch_size = 27;
    max_unrecorded_ = 23;
    retry_ = {1'131, 20'000, 4};
    open(sink);
    step(600);
    const auto records = destination_->records();
    EXPECT_EQ(std::count_if(records.begin(), records.end(),
                            [](const auto& record) { return !record.id.starts_with("k"); }),
              kOthers);
}

TEST_F(PipelineTest, AnErrorThatMeansStopWhileEventsAreFetchedAgainStopsTheRoute) {
    unsafe_to_fetch_ = true;
    table_.insert("1", "k");
    destination_->fail("1", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "later"}, 1);
    MemorySink sink(destination_, {.fail_stop_order = false});
    open(sink);
    Status status;
    for (int turn = 0; turn < 20 && status.ok(); ++turn) {
        clock_.now_us += 1'000'000;
        status = pipeline_->step();
    }
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kTableReset);
    EXPECT_EQ(arrived(), "");
}

TEST_F(PipelineTest, DeadLettersCountAsHeldUntilTheyAreOnDisk) {
    for (int i = 0; i < 80; ++i) {
        const std::string id = std::to_string(i) + std::string(1'000, 'x');
        table_.insert(id, "k" + std::to_string(i));
        destination_->fail(id, {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "never"}, 9);
    }
    MemorySink sink(destination_, {.fail_stop_order = false});
    options_.batch_size = 5;
    options_.max_in_flight_bytes = 10'000;
    open(sink);
    step(100, false);
    EXPECT_GE(stats_.held_bytes.load(), 10'000);
    EXPECT_LT(stats_.held_bytes.load(), 20'000);
    step(100);
    EXPECT_EQ(dead_, 80U);
    EXPECT_EQ(stats_.held_bytes.load(), 0);
}

TEST_F(PipelineTest, ASinkThatNamesARecordTwiceStopsItsRouteAndIsNamed) {
    expect_stop_at_a_repeated_outcome(0);
}

// The slot of the first record holds another one by then, which the sink has kept to itself.
TEST_F(PipelineTest, AnOutcomeOfLongAgoIsNotTakenForThatOfTheRecordUnderWay) {
    expect_stop_at_a_repeated_outcome(1);
}

// The ledger says what one destination has got.
class SinkElsewhere final : public spi::Sink {
  public:
    explicit SinkElsewhere(spi::Sink& sink) : sink_(sink) {}
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return sink_.capabilities();
    }
    Status check() override { return sink_.check(); }
    Result<std::string> destination() override {
        if (asked) asked();
        return name;
    }
    [[nodiscard]] bool publish(const spi::Record& record) override { return sink_.publish(record); }
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override {
        sink_.poll(max_wait, out);
    }
    std::string name = "there";
    std::function<void()> asked;

  private:
    spi::Sink& sink_;
};

TEST_F(PipelineTest, ARouteThatLeadsElsewhereSendsNothingUntilThatIsAccepted) {
    table_.insert("a", "k");
    MemorySink memory(destination_, {});
    SinkElsewhere sink(memory);
    Feedback known;
    known.destination = "here";
    queue_.answer(0, std::move(known));
    open(sink);
    step(50);
    EXPECT_EQ(arrived(), "");
    EXPECT_EQ(stats_.circuit.load(), core::Circuit::State::kOpen);
    EXPECT_NE(stats_.last_error().find("outbox routes accept"), std::string::npos);
    EXPECT_TRUE(failed_.empty());
    Feedback accepted;
    accepted.destination = "";
    queue_.answer(0, std::move(accepted));
    step(50);
    EXPECT_EQ(arrived(), "a ");
    EXPECT_EQ(destination_met_, "there");
}

TEST_F(PipelineTest, AProbeIsNotSentWhereTheLeaseEndedWhileTheDestinationWasAskedWhoItIs) {
    table_.insert("a", "k");
    destination_->fail("a", {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, {}, "away"},
                       1);
    MemorySink memory(destination_, {});
    SinkElsewhere sink(memory);
    open(sink);
    while (stats_.circuit.load() != core::Circuit::State::kOpen) step();
    int times = 0;
    sink.asked = [&] {
        ++times;
        lease_.end();
    };
    step(50);
    EXPECT_EQ(times, 1);
    EXPECT_EQ(arrived(), "");
    lease_.extend(std::numeric_limits<std::int64_t>::max());
    step(50);
    EXPECT_EQ(arrived(), "a ");
}

TEST_F(PipelineTest, AnotherCauseThanTheOneToldForAnOpenCircuitIsToldOnce) {
    table_.insert("a", "k");
    destination_->fail("a", {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, {}, "expired"},
                       1);
    std::vector<std::string> noted;
    notify_ = [&](const Note& note) {
        noted.push_back(note.what + ": " + note.fields.back().second);
    };
    MemorySink sink(destination_, {});
    open(sink);
    while (noted.empty()) step();
    EXPECT_NE(noted[0].find("circuit_open: "), std::string::npos) << noted[0];
    EXPECT_NE(noted[0].find("expired"), std::string::npos) << noted[0];
    destination_->set_down(true);
    step(300);
    ASSERT_EQ(noted.size(), 2U);
    EXPECT_NE(noted[1].find("circuit_still_open: "), std::string::npos) << noted[1];
    EXPECT_NE(noted[1].find("was set down"), std::string::npos) << noted[1];
}

TEST_F(PipelineTest, NoMoreEventsAreSentThanMayBeRepeatedAfterAKill) {
    for (int i = 0; i < 300; ++i) table_.insert("e" + std::to_string(i), "k" + std::to_string(i));
    MemorySink sink(destination_, {});
    options_.batch_size = 30;  // the fourth batch does not fit whole
    open(sink);
    step(100, false);
    EXPECT_LE(destination_->records().size(), options_.max_unrecorded);
    // The rest is kept for probes.
    EXPECT_GE(destination_->records().size(), options_.max_unrecorded * 3 / 4);
    step(100);
    EXPECT_EQ(destination_->records().size(), 300U);
}

// Counts how often it hears that what it acknowledged is recorded; knows how long it may wait.
class HearingSink final : public spi::Sink {
  public:
    explicit HearingSink(spi::Sink& sink) : sink_(sink) {}
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return sink_.capabilities();
    }
    Status check() override { return sink_.check(); }
    Result<std::string> destination() override { return sink_.destination(); }
    [[nodiscard]] bool publish(const spi::Record& record) override { return sink_.publish(record); }
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override {
        may_wait = max_wait;
        sink_.poll(max_wait, out);
    }
    void outcomes_may_wait(bool may) override { outcomes_wait = may; }
    void all_recorded() override { ++heard; }
    bool outcomes_wait = false;
    int heard = 0;
    std::chrono::milliseconds may_wait{};

  private:
    spi::Sink& sink_;
};

// The recorder cannot wake the sink; and the last places of the window are kept for probes.
TEST_F(PipelineTest, AFullWindowWaitsForTheRecorderAlone) {
    for (int i = 0; i < 300; ++i) table_.insert("e" + std::to_string(i), "k" + std::to_string(i));
    MemorySink memory(destination_, {});
    HearingSink sink(memory);
    poll_idle_ms_ = 100;
    for (const std::size_t window : {2, 10, 100, 200}) {
        max_unrecorded_ = window;
        open(sink);
        step(100, false);
        EXPECT_EQ(sink.may_wait, std::chrono::milliseconds(options_.poll_busy_ms)) << window;
    }
}

// A sink may then be a millisecond late with them, in place of waking the route for each.
TEST_F(PipelineTest, OutcomesMayWaitWhereNothingWaitsForThem) {
    MemorySink memory(destination_, {.fail_stop_order = false});
    HearingSink sink(memory);
    open(sink);
    destination_->set_paused(true);
    table_.insert("1", "k");
    step(2);
    EXPECT_TRUE(sink.outcomes_wait);
    table_.insert("2", "other");
    step(2);
    EXPECT_TRUE(sink.outcomes_wait);
    table_.insert("3", "k");
    step(2);
    EXPECT_FALSE(sink.outcomes_wait) << "3 waits for 1";
    destination_->set_paused(false);
    step(3);
    EXPECT_EQ(arrived(), "1 2 3 ");
    destination_->set_paused(true);
    table_.insert("4", "k");
    step(2);
    EXPECT_TRUE(sink.outcomes_wait);
    pipeline_->drain();
    step();
    EXPECT_FALSE(sink.outcomes_wait) << "the end waits for 4";
}

TEST_F(PipelineTest, OutcomesMayNotWaitInAWindowThatIsFull) {
    MemorySink memory(destination_, {});
    HearingSink sink(memory);
    max_unrecorded_ = 2;
    open(sink);
    destination_->set_paused(true);
    for (const char* id : {"1", "2", "3"}) table_.insert(id, id);
    step(3);
    EXPECT_FALSE(sink.outcomes_wait);
}

TEST_F(PipelineTest, TellsTheSinkWhenAllThatItAcknowledgedIsRecorded) {
    MemorySink memory(destination_, {});
    HearingSink sink(memory);
    open(sink);
    step(10);
    EXPECT_EQ(sink.heard, 0) << "nothing was acknowledged";
    table_.insert("1", "k");
    step(20, false);
    EXPECT_EQ(arrived(), "1 ");
    EXPECT_EQ(sink.heard, 0) << "it is not recorded";
    step(20);
    EXPECT_EQ(sink.heard, 1);
    step(20);
    EXPECT_EQ(sink.heard, 1) << "once";
    table_.insert("2", "k");
    table_.insert("3", "k");
    step(20);
    EXPECT_EQ(arrived(), "1 2 3 ");
    EXPECT_GE(sink.heard, 2);
}

// A replay records what it has sent behind what its sink holds back: without an end to that both
// wait.
TEST_F(PipelineTest, TellsTheSinkOfAReplayAfterAWhileAlthoughItIsNotRecorded) {
    MemorySink memory(destination_, {});
    HearingSink sink(memory);
    options_.taken_for_recorded_ms = 3'000;
    open(sink);
    table_.insert("1", "k");
    step(1, false);
    while (arrived().empty()) step(1, false);
    step(2, false);
    EXPECT_EQ(sink.heard, 0);
    step(2, false);
    EXPECT_EQ(sink.heard, 1);
    step(20, false);
    EXPECT_EQ(sink.heard, 1) << "once";
}

TEST_F(PipelineTest, AKeyGoesToAnotherTopicOnlyWhenNothingOfItIsUnderWay) {
    table_.insert("1", "k", "a");
    table_.insert("2", "k", "a");
    table_.insert("3", "k", "b");
    table_.insert("4", "k", "a");
    table_.insert("5", "other", "b");
    destination_->set_paused(true);
    MemorySink sink(destination_, {.across_topics = false});
    open(sink);
    step(5);
    EXPECT_EQ(stats_.in_flight.load(), 3);
    destination_->set_paused(false);
    step();
    EXPECT_EQ(arrived(), "1 2 5 ");
    step(5);
    EXPECT_EQ(arrived(), "1 2 5 3 4 ");
}

// Two keys whose hashes without a seed are equal.
const std::string kOneKey = "key-0119";
const std::string kSameHash = "\xce\xc0\x86\x1b\xf9\x5d\x4c";

class LaneSeed : public PipelineTest {
  protected:
    std::string arrived_with(std::uint64_t seed) {
        table_.insert("1", kOneKey);
        table_.insert("2", kSameHash);
        destination_->fail("1", {ErrorCode::kSinkTimeout, Advice::kRetryEvent, {}, "later"}, 1);
        options_.lane_seed = seed;
        MemorySink sink(destination_, {.fail_stop_order = false});
        open(sink);
        step(50);
        return arrived();
    }
};

TEST_F(LaneSeed, WithoutOneKeysCanBeChosenThatWaitForEachOther) {
    EXPECT_EQ(arrived_with(0), "1 2 ");
}

TEST_F(LaneSeed, WithOneAKeyWaitsForNoOther) {
    EXPECT_EQ(arrived_with(0x6b2f), "2 1 ");
}

TEST_F(PipelineTest, NothingOfABlockedKeyPassesItsDeadEventOnAnotherTopic) {
    table_.insert("1", "k", "a");
    table_.insert("2", "k", "b");
    table_.insert("3", "other", "b");
    destination_->fail("1", {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "never"}, 100);
    MemorySink sink(destination_, {.across_topics = false});
    open(sink, OnDeadLetter::kBlockKey);
    step(50);
    EXPECT_EQ(dead_, 1U);
    EXPECT_EQ(arrived(), "3 ");
}

TEST_F(PipelineTest, AKeyThatADeadLetterBlockedBeforeTheStartIsBlockedFromTheFirstTurn) {
    table_.insert("1", "k");
    table_.insert("2", "other");
    inheritance_.dead_keys = {{"", "k"}};
    MemorySink sink(destination_, {});
    open(sink, OnDeadLetter::kBlockKey);
    step(20);
    EXPECT_EQ(arrived(), "2 ");
    Feedback mended;
    mended.keys_look = queue_.begin_look();
    mended.dead_keys.emplace();
    queue_.answer(0, std::move(mended));
    step(20);
    EXPECT_EQ(arrived(), "2 1 ");
}

TEST_F(PipelineTest, ALookThatBeganBeforeADeadLetterWasWrittenDoesNotUnblockItsKey) {
    table_.insert("1", "k");
    table_.insert("2", "k");
    destination_->fail("1", {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "never"}, 100);
    MemorySink sink(destination_, {});
    open(sink, OnDeadLetter::kBlockKey);
    Feedback before;
    before.keys_look = queue_.begin_look();
    before.dead_keys.emplace();
    step(50);
    ASSERT_EQ(dead_, 1U);
    queue_.answer(0, std::move(before));
    step(20);
    EXPECT_EQ(arrived(), "");
    Feedback after;
    after.keys_look = queue_.begin_look();
    after.dead_keys.emplace();  // it was discarded
    queue_.answer(0, std::move(after));
    step(20);
    EXPECT_EQ(arrived(), "2 ");
}

// One key at a time is tried while a topic is down; this one may be blocked for days.
TEST_F(PipelineTest, ABlockedKeyIsNotWhatATopicThatIsDownIsTriedWith) {
    table_.insert("1", "k");
    table_.insert("2", "other");
    destination_->set_topic_down("events", true);
    MemorySink sink(destination_, {.across_topics = false});
    open(sink, OnDeadLetter::kBlockKey);
    step(3);
    EXPECT_GT(stats_.parts_down.load(), 0);
    Feedback blocked;
    blocked.keys_look = queue_.begin_look();
    blocked.dead_keys.emplace({spi::DeadKey{"", "k"}});
    queue_.answer(0, std::move(blocked));
    step();
    destination_->set_topic_down("events", false);
    step(30);
    EXPECT_EQ(arrived(), "2 ");
}

TEST_F(PipelineTest, AnEventWhoseTopicIsMissingWaitsWithItsKeyAndCountsNoAttempt) {
    table_.insert("1", "k");
    table_.insert("2", "k");
    table_.insert("3", "other");
    destination_->fail(
        "1", {ErrorCode::kTopicUnknown, Advice::kRetryEvent, {}, "there is no such topic"}, 10);
    MemorySink sink(destination_, {});
    open(sink);
    step(5);
    EXPECT_EQ(arrived(), "3 ");
    step(100);
    EXPECT_EQ(arrived(), "3 1 2 ");
    EXPECT_EQ(dead_, 0U);
    ASSERT_EQ(failed_.size(), 1U) << "told once, however long it waits";
    EXPECT_EQ(failed_[0].event_id, "1");
    EXPECT_EQ(failed_[0].attempts, 0U);
    EXPECT_EQ(failed_[0].error_code, "OB_TOPIC_UNKNOWN");
}

TEST_F(PipelineTest, AnEventThatFailedBeforeARestartWaitsOutItsTimeAndOthersDoNot) {
    table_.insert("failed", "k");
    table_.insert("other", "l");
    retry_ = {1'000, 60'000, 5};
    inheritance_.failing.push_back({.route = "default",
                                    .position = 1,
                                    .event_id = "failed",
                                    .key = "k",
                                    .attempts = 1,
                                    .next_attempt_us = clock_.wall_us() + 30'000'000,
                                    .error_code = "",
                                    .error = ""});
    memory::MemorySink sink(destination_, {});
    open(sink);
    step(20);
    EXPECT_EQ(arrived(), "other ");
    step(20);
    EXPECT_EQ(arrived(), "other failed ");
}

TEST_F(PipelineTest, AnEventWithoutATimeHasNoLatency) {
    table_.insert("1", "k");
    MemorySink sink(destination_, {});
    open(sink);
    step(5);
    EXPECT_EQ(arrived(), "1 ");
    for (std::size_t i = 0; i <= LatencyHistogram::kBoundsMs.size(); ++i) {
        EXPECT_EQ(stats_.latency.count(i), 0U);
    }
}

TEST_F(PipelineTest, TheLatencyOfADelayedEventCountsFromWhenItBecameDue) {
    constexpr std::int64_t kDayUs = 86'400'000'000;
    clock_.now_us = 2 * kDayUs;
    table_.insert_delayed("1", "k", kDayUs, clock_.wall_us());
    MemorySink sink(destination_, {});
    open(sink);
    step(5);
    EXPECT_EQ(arrived(), "1 ");
    EXPECT_GT(stats_.latency.sum_s(), 0);
    EXPECT_LT(stats_.latency.sum_s(), 60);
}

// What is refused for what it is does not stand in for the part: the next one is tried at once.
TEST_F(PipelineTest, EventsThatAreRefusedKeepAPartThatCameBackFromNobody) {
    constexpr int kRefused = 40;
    for (int i = 0; i < kRefused + 10; ++i) {
        const std::string id = std::to_string(i);
        table_.insert(id, "k" + id, "down");
        if (i >= kRefused) continue;
        destination_->fail(id, {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "never"}, 9);
    }
    destination_->set_topic_down("down", true);
    MemorySink sink(destination_, {.across_topics = false});
    retry_ = {5'000, 5'000, 2};
    open(sink);
    step(10);
    EXPECT_EQ(destination_->records().size(), 0U);
    destination_->set_topic_down("down", false);
    step(2 * kRefused + 15);  // one trial takes two, of a second each
    EXPECT_EQ(dead_, static_cast<std::size_t>(kRefused));
    EXPECT_EQ(destination_->records().size(), 10U);
}

// More keys than a circuit could tell apart: the topic waits as a whole and nothing else does.
TEST_F(PipelineTest, ManyKeysOfATopicThatIsDownDelayNoOtherAndBurnNoAttempt) {
    for (int round = 0; round < 3; ++round) {
        for (int i = 0; i < 40; ++i) {
            const std::string n = std::to_string(round) + "-" + std::to_string(i);
            table_.insert("down-" + n, "k" + std::to_string(i), "down");
            table_.insert("up-" + n, "u" + std::to_string(i), "up");
        }
    }
    destination_->set_topic_down("down", true);
    MemorySink sink(destination_, {.across_topics = false});
    std::vector<std::string> noted;
    notify_ = [&](const Note& note) { noted.emplace_back(note.what); };
    options_.max_unrecorded = 300;
    open(sink);
    step(5);
    EXPECT_EQ(destination_->records().size(), 120U) << "the other topic goes on";
    EXPECT_EQ(stats_.circuit.load(), core::Circuit::State::kClosed);
    step(50);
    EXPECT_EQ(destination_->records().size(), 120U);
    EXPECT_EQ(stats_.circuit.load(), core::Circuit::State::kClosed);
    EXPECT_EQ(failed_.size(), 40U) << "told once for each key";
    EXPECT_LE(destination_->refused(), 40U + 55U) << "one key at a time is tried";
    destination_->set_topic_down("down", false);
    step(20);
    EXPECT_EQ(destination_->records().size(), 240U);
    EXPECT_EQ(dead_, 0U);
    for (const spi::Delivery& failed : failed_) EXPECT_EQ(failed.attempts, 0U);
    EXPECT_EQ(std::count(noted.begin(), noted.end(), "part_down"), 1);
    EXPECT_EQ(std::count(noted.begin(), noted.end(), "part_up"), 1);
    EXPECT_EQ(std::count(noted.begin(), noted.end(), "circuit_open"), 0);
    std::map<std::string, std::string> last;  // of each key
    for (const auto& record : destination_->records()) {
        EXPECT_LT(last[*record.key], record.id);
        last[*record.key] = record.id;
    }
}

// As a queue that is full, and from which somebody takes a message now and then.
TEST_F(PipelineTest, ATopicThatIsDownAgainAsSoonAsItIsBackFillsNoLog) {
    MemorySink sink(destination_, {.across_topics = false});
    std::vector<std::string> noted;
    notify_ = [&](const Note& note) {
        if (note.what.starts_with("part_") || note.what.starts_with("circuit_")) {
            noted.emplace_back(note.what);
        }
    };
    table_.insert("other", "o", "up");
    open(sink);
    for (int round = 0; round < 60; ++round) {
        table_.insert(std::to_string(round), "k", "down");
        destination_->set_topic_down("down", round % 2 == 0);
        step(6);  // its next trial is at most five seconds away
    }
    EXPECT_EQ(destination_->records().size(), 61U);
    EXPECT_EQ(noted, (std::vector<std::string>{"part_down", "part_up", "part_down"}));
    step(12);
    EXPECT_EQ(noted, (std::vector<std::string>{"part_down", "part_up", "part_down", "part_up"}));
    destination_->set_topic_down("down", true);
    table_.insert("last", "k", "down");
    step(3);
    EXPECT_EQ(noted.back(), "part_down") << "it is said at once";
}

// Each by itself would be sent again every few seconds, which is more than the destination can do.
TEST_F(PipelineTest, MorePartsThatAreDownThanASlowDestinationCanBeAskedForDelayNoOther) {
    constexpr int kDown = 3'000;
    constexpr int kUp = 200;
    for (int i = 0; i < kDown; ++i) {
        const std::string n = std::to_string(i);
        table_.insert("down-" + n, "k" + n, "down-" + n);
    }
    for (int i = 0; i < kUp; ++i) {
        const std::string n = std::to_string(i);
        table_.insert("up-" + n, "u" + n, "up");
    }
    std::map<std::string, int> noted;
    notify_ = [&](const Note& note) { ++noted[note.what]; };
    SlowSink sink(20);
    open(sink);
    step(kDown / 20);
    EXPECT_LE(sink.refused - static_cast<int>(failed_.size()), sink.refused / 4)
        << "a share of what is sent is for those that are known to be down";
    step(80);
    EXPECT_EQ(sink.passed, kUp);
    EXPECT_EQ(failed_.size(), kDown) << "told once for each";
    step(600);
    EXPECT_EQ(noted["part_down"], core::DownParts::kMaxParts);
    EXPECT_EQ(noted["many_parts_down"], 1);
    sink.is_down = false;
    step(2 * kDown / 20 + 300);
    EXPECT_EQ(sink.passed, kUp + kDown);
    EXPECT_EQ(dead_, 0U);
    EXPECT_EQ(noted["part_up"], core::DownParts::kMaxParts);
}

TEST_F(PipelineTest, ManyEventsThatFailForTheDestinationDoNotKeepTheRouteFromOthers) {
    for (int i = 0; i < 40; ++i) {
        const std::string id = "bad-" + std::to_string(i);
        table_.insert(id, "k" + std::to_string(i));
        destination_->fail(id, {ErrorCode::kSinkTimeout, Advice::kRetryDestination, {}, "no"},
                           1'000'000);
    }
    for (int i = 0; i < 20; ++i) table_.insert("good-" + std::to_string(i), "g");
    MemorySink sink(destination_, {});
    options_.batch_size = 10;
    open(sink);
    step(500);
    EXPECT_EQ(destination_->records().size(), 20U);
}

// A key with all that may be sent and not recorded, and more events at fault behind it.
TEST_F(PipelineTest, AnEventAtFaultWithManyBehindItLeavesProbesToTheRoute) {
    const auto time_out = [this](const std::string& id) {
        destination_->fail(id, {ErrorCode::kSinkTimeout, Advice::kRetryDestination, {}, "no"},
                           1'000'000);
    };
    time_out("hot-0");
    for (int i = 0; i < 150; ++i) table_.insert("hot-" + std::to_string(i), "hot");
    for (int i = 0; i < 5; ++i) {
        const std::string id = "bad-" + std::to_string(i);
        table_.insert(id, id);
        time_out(id);
    }
    MemorySink sink(destination_, {});
    open(sink);
    for (int i = 0; i < 200; ++i) {
        const std::string id = "good-" + std::to_string(i);
        table_.insert(id, id);
        step(5);
    }
    step(200);
    EXPECT_EQ(destination_->records().size(), 149U + 200U);
    EXPECT_EQ(dead_, 6U);
}

// Where positions are made up a letter has none; elsewhere a table that began anew may have given
// its position to another event.
class PipelineWithALetter : public PipelineTest,
                            public testing::WithParamInterface<spi::Position> {};
TEST_P(PipelineWithALetter, ThatTimesOutLeavesProbesToTheRoute) {
    const spi::Position position = GetParam();
    const std::string bad = "bad";
    destination_->fail(bad, {ErrorCode::kSinkTimeout, Advice::kRetryDestination, {}, "no"},
                       1'000'000);
    MemorySink sink(destination_, {});
    open(sink);
    step(5);
    const auto look = [&] {
        Feedback feedback;
        feedback.look = queue_.begin_look();
        feedback.redeliver.push_back(letter_of(7, bad, position));
        queue_.answer(0, std::move(feedback));
    };
    look();
    step();
    ASSERT_EQ(stats_.redelivering.load(), 1);
    for (int i = 0; i < 20; ++i) {
        look();
        table_.insert("good-" + std::to_string(i), "g" + std::to_string(i));
        step(10);
    }
    step(50);
    EXPECT_EQ(destination_->records().size(), 20U);
}
// It fills the memory, so that nothing could be read that shows whose fault it is.
TEST_F(PipelineTest, ALargeLetterThatTimesOutLeavesMemoryToTheRoute) {
    const std::string bad(3'000, 'x');
    destination_->fail(bad, {ErrorCode::kSinkTimeout, Advice::kRetryDestination, {}, "no"}, 100);
    options_.max_in_flight_bytes = 2'000;
    MemorySink sink(destination_, {});
    open(sink);
    std::size_t written = 20;
    for (std::size_t i = 0; i < written; ++i) table_.insert("good-" + std::to_string(i), "g");
    std::size_t given_up = 0;
    for (int turns = 0; turns < 400 && given_up == 0; ++turns) {
        Feedback feedback;
        feedback.look = queue_.begin_look();
        feedback.redeliver.push_back(letter_of(7, bad));
        queue_.answer(0, std::move(feedback));
        clock_.now_us += 1'000'000;
        ASSERT_TRUE(pipeline_->step().ok());
        std::vector<Outcomes> taken(1);
        queue_.take(1, 0ms, taken);
        given_up = taken[0].failed_again.size();
        Feedback recorded;
        recorded.recorded = taken[0].finished;
        if (!recorded.empty()) queue_.answer(0, std::move(recorded));
        if (turns % 10 != 0) continue;
        table_.insert("more-" + std::to_string(turns), "m");
        ++written;
    }
    EXPECT_EQ(given_up, 1U) << "it is known to be at fault";
    step(20);
    EXPECT_EQ(destination_->records().size(), written);
}

TEST_F(PipelineTest, LettersWaitForMemory) {
    constexpr int kLetters = 20;
    const std::string large(1'000, 'x');
    options_.max_in_flight_bytes = 2'000;
    destination_->set_paused(true);
    MemorySink sink(destination_, {});
    open(sink);
    Feedback feedback;
    feedback.look = queue_.begin_look();
    for (int i = 1; i <= kLetters; ++i) {
        feedback.redeliver.push_back(letter_of(i, large));
    }
    queue_.answer(0, std::move(feedback));
    step(3);
    EXPECT_GE(stats_.held_bytes.load(), 2'000);
    EXPECT_LT(stats_.held_bytes.load(), 4'000);
}

// Memory and what may be sent are scarce, and fail what may: in the end nothing stands still. Of
// what gets no answer there is no more than is spared for probes.
class PipelineInNeed : public PipelineTest, public testing::WithParamInterface<int> {
  protected:
    int between(int least, int most) {
        return std::uniform_int_distribution<int>(least, most)(random_);
    }
    bool chance(double share) { return std::bernoulli_distribution(share)(random_); }

    ErrorInfo failure(ErrorCode code, Advice advice) { return {code, advice, {}, "as it is"}; }
    void fail_some(const std::string& id) {
        if (chance(0.1)) {
            destination_->fail(id, failure(ErrorCode::kRecordRefused, Advice::kRetryEvent),
                               static_cast<std::size_t>(between(1, 6)));
        } else if (hanging_ > 0 && chance(0.05)) {
            --hanging_;
            destination_->fail(id, failure(ErrorCode::kSinkTimeout, Advice::kRetryDestination),
                               static_cast<std::size_t>(between(1, 20)));
        }
    }
    void write_some() {
        const std::string key = keys_ > 0 && chance(0.8) ? "k" + std::to_string(between(1, keys_))
                                                         : std::to_string(written_);
        const bool large = chance(large_);
        for (int i = between(1, 12); i > 0; --i) {
            std::string id = std::to_string(++written_);
            if (large) id += std::string(1'000, 'x');
            fail_some(id);
            table_.insert(id, key);
        }
    }
    // One that an operator wants sent again.
    void make_letter() {
        const std::string id =
            "letter " + std::to_string(letters_.size()) + std::string(chance(0.5) ? 1'000 : 1, 'x');
        fail_some(id);
        letters_.push_back(id);
    }
    // As the housekeeper offers it, each time until its retry is on disk.
    void look(bool blocks) {
        Feedback feedback;
        feedback.look = queue_.begin_look();
        feedback.keys_look = feedback.look;
        for (std::size_t i = 0; i < letters_.size(); ++i) {
            const auto dead_id = static_cast<std::int64_t>(i + 1);
            if (settled_.contains(dead_id)) continue;
            feedback.redeliver.push_back(letter_of(dead_id, letters_[i]));
        }
        feedback.dead_keys.emplace();
        if (blocks) {
            for (int key = 1; key <= keys_; ++key) {
                if (chance(0.3)) feedback.dead_keys->push_back({"", "k" + std::to_string(key)});
            }
        }
        queue_.answer(0, std::move(feedback));
    }
    // As `step`, and what is settled of letters is heard of.
    void turn(bool recording) {
        clock_.now_us += between(1, 1'000) * 1'000;
        const Status status = pipeline_->step();
        ASSERT_TRUE(status.ok()) << describe(status.error());
        if (!recording) return;
        std::vector<Outcomes> taken(1);
        queue_.take(1, 0ms, taken);
        dead_ += taken[0].dead.size();
        Feedback feedback;
        feedback.recorded = taken[0].finished;
        feedback.dead_lanes = taken[0].dead_lanes;
        feedback.settled = taken[0].redelivered;
        settled_.insert(feedback.settled.begin(), feedback.settled.end());
        if (!feedback.empty()) queue_.answer(0, std::move(feedback));
    }

    std::mt19937_64 random_{static_cast<std::uint64_t>(GetParam())};
    int keys_ = between(0, 5);
    double large_ = between(0, 10) / 10.0;
    int written_ = 0;
    int hanging_ = 0;
    std::vector<std::string> letters_;
    std::set<std::int64_t> settled_;
};

TEST_P(PipelineInNeed, BringsAllOfIt) {
    max_unrecorded_ = static_cast<std::size_t>(between(8, 24));
    options_.max_in_flight_bytes = static_cast<std::size_t>(between(1'000, 4'000));
    options_.batch_size = static_cast<std::size_t>(between(1, 20));
    hanging_ = static_cast<int>(max_unrecorded_ / 4);
    retry_ = {between(100, 2'000), 20'000, 1'000};
    const bool in_order = chance(0.7);
    MemorySink sink(destination_, {.fail_stop_order = in_order});
    open(sink, OnDeadLetter::kBlockKey);
    for (int turns = between(10, 80); turns > 0; --turns) {
        if (chance(0.5)) write_some();
        if (chance(0.05)) make_letter();
        if (chance(0.1)) destination_->set_paused(chance(0.5));
        if (chance(0.1)) destination_->set_down(chance(0.3));
        if (chance(0.2)) look(true);
        turn(chance(0.8));
    }
    destination_->set_paused(false);
    destination_->set_down(false);
    const std::size_t all = static_cast<std::size_t>(written_) + letters_.size();
    for (int turns = 0; turns < 20'000; ++turns) {
        if (turns % 50 == 0 && destination_->records().size() == all) break;
        if (turns % 10 == 0) look(false);
        turn(true);
    }
    EXPECT_EQ(destination_->records().size(), all);
    EXPECT_EQ(dead_, 0U);
    for (int turns = 0; turns < 10; ++turns) turn(true);
    EXPECT_EQ(stats_.held_bytes.load(), 0);
}
INSTANTIATE_TEST_SUITE_P(From, PipelineInNeed, testing::Range(0, 40));

INSTANTIATE_TEST_SUITE_P(From, PipelineWithALetter, testing::Values(0, 1), [](const auto& chosen) {
    return chosen.param == 0 ? std::string("NoPosition") : std::string("AnothersPosition");
});

}  // namespace
}  // namespace outbox::relay
