#include "relay/pipeline.h"

#include <gtest/gtest.h>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "sinks/memory/sink.h"
#include "tests/relay/table.h"

namespace outbox::relay {
namespace {

using namespace std::chrono_literals;
using sinks::memory::Destination;
using sinks::memory::MemorySink;
using test::Table;

class ManualClock final : public core::Clock {
  public:
    [[nodiscard]] std::int64_t boot_us() const override { return now_us; }
    [[nodiscard]] std::int64_t wall_us() const override { return now_us; }
    std::int64_t now_us = 1'000'000;
};

// Takes nothing, as a program that does not read its input.
class FullSink final : public spi::Sink {
  public:
    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        static const spi::SinkCapabilities kCapabilities{"full", spi::Guarantee::kAtLeastOnce, true,
                                                         true};
        return kCapabilities;
    }
    Status check() override { return {}; }
    [[nodiscard]] bool publish(const spi::Record&) override {
        ++offers;
        return false;
    }
    void poll(std::chrono::milliseconds, spi::Completions&) override {}
    int offers = 0;
};

// One route that is stepped by hand.
class PipelineTest : public testing::Test {
  protected:
    void open(spi::Sink& sink, OnDeadLetter on_dead_letter = OnDeadLetter::kContinue) {
        RouteSpec route;
        route.topics = *core::TopicRule::make("events", {}, "events");
        route.on_dead_letter = on_dead_letter;
        routes_.push_back(std::move(route));
        options_.retry = {5, 20, 2};
        options_.max_unrecorded = 100;
        options_.poll_idle_ms = 1;
        lease_.extend(std::numeric_limits<std::int64_t>::max());
        reader_ = source_->open_reader("default").value_or_throw();
        pipeline_ = std::make_unique<Pipeline>(
            Pipeline::Deps{*reader_, sink, queue_, lease_, clock_, stats_, notify_}, 0, routes_,
            options_, Pipeline::Inheritance{}, 1);
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
            queue_.answer(0, {taken[0].finished, taken[0].dead_lanes, {}, std::nullopt, false});
        }
    }
    std::string arrived() const {
        std::string ids;
        for (const auto& record : destination_->records()) ids += record.id + " ";
        return ids;
    }

    Table table_;
    std::unique_ptr<spi::Source> source_ = table_.connect();
    std::shared_ptr<Destination> destination_ = std::make_shared<Destination>();
    OutcomeQueue queue_{1};
    LeaseView lease_;
    ManualClock clock_;
    RouteStats stats_;
    Notify notify_ = [](const Note&) {};
    RelayOptions options_;
    std::vector<RouteSpec> routes_;
    std::unique_ptr<spi::Reader> reader_;
    std::unique_ptr<Pipeline> pipeline_;
    std::vector<spi::Delivery> failed_;
    std::size_t dead_ = 0;
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
    options_.max_held_bytes = 500;
    open(sink);
    step(100);
    EXPECT_GE(stats_.held_bytes.load(), 500);
    EXPECT_LT(stats_.held_bytes.load(), 1'000);
    EXPECT_LT(stats_.queued.load(), 40);
}

TEST_F(PipelineTest, NoMoreEventsAreSentThanMayBeRepeatedAfterAKill) {
    for (int i = 0; i < 300; ++i) table_.insert("e" + std::to_string(i), "k" + std::to_string(i));
    MemorySink sink(destination_, {});
    options_.batch_size = 30;  // the fourth batch does not fit whole
    open(sink);
    step(100, false);
    EXPECT_LE(destination_->records().size(), options_.max_unrecorded);
    EXPECT_GE(destination_->records().size(), options_.max_unrecorded - 1);
    step(100);
    EXPECT_EQ(destination_->records().size(), 300U);
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

}  // namespace
}  // namespace outbox::relay
