// Records that something is done for before their sink has them.

#include "prepare/prepared_sink.h"

#include <algorithm>
#include <atomic>
#include <gtest/gtest.h>
#include <memory>
#include <optional>
#include <set>

#include "brokers/memory/sink.h"
#include "core/mutex.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using memory::Destination;
using memory::MemorySink;
using prepare::Preparation;
using prepare::Preparations;
using prepare::PreparedSink;

// What all steps of a sink share: a server that is there, away, or does not answer.
class Server {
  public:
    void set_down(bool down) {
        const core::Lock lock(mutex_);
        down_ = down;
    }
    void set_silent(bool silent) {
        const core::Lock lock(mutex_);
        silent_ = silent;
        changed_.notify_all();
    }
    // So many answers, however silent it is.
    void answer(std::size_t times) {
        const core::Lock lock(mutex_);
        answers_ = times;
    }
    void refuse(const std::string& id) {
        const core::Lock lock(mutex_);
        refused_.insert(id);
    }
    Status serve(std::string_view id, const std::stop_token& stop) {
        const core::Lock lock(mutex_);
        ++asked_;
        while (silent_ && answers_ == 0 && !stop.stop_requested()) {
            changed_.wait_for(mutex_, 10ms, [&]() OUTBOX_REQUIRES(mutex_) { return !silent_; });
        }
        if (answers_ > 0) --answers_;
        if (down_) return {ErrorCode::kSinkUnavailable, Advice::kRetryDestination, "it is away"};
        if (refused_.contains(std::string(id))) {
            return {ErrorCode::kPayloadTooLarge, Advice::kDeadLetter, "not this one"};
        }
        served_.insert(std::string(id));
        return {};
    }
    std::size_t asked() {
        const core::Lock lock(mutex_);
        return asked_;
    }
    bool has_served(const std::string& id) {
        const core::Lock lock(mutex_);
        return served_.contains(id);
    }

  private:
    core::Mutex mutex_;
    core::Condition changed_;
    bool down_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool silent_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::size_t asked_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::size_t answers_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::set<std::string> refused_ OUTBOX_GUARDED_BY(mutex_);
    std::set<std::string> served_ OUTBOX_GUARDED_BY(mutex_);
};

// Concerns every third letter, and where it is asked to writes another value.
class EveryThird final : public Preparation {
  public:
    EveryThird(Server& server, bool rewrites) : server_(server), rewrites_(rewrites) {}

    static bool takes(std::string_view id) {
        return std::stoi(std::string(id.substr(id.rfind('-') + 1))) % 3 == 0;
    }
    const std::string& needs() const override { return needs_; }
    bool concerns(const spi::Record& record) const override { return takes(record.id); }
    Status prepare(spi::Record& record, prepare::Prepared& out,
                   const std::stop_token& stop) override {
        Status status = server_.serve(record.id, stop);
        if (!status.ok() || !rewrites_) return status;
        out.bytes = "prepared " + std::string(record.id);
        record.value = out.bytes;
        return {};
    }

  private:
    Server& server_;
    const bool rewrites_;
    const std::string needs_ = "test server";
};

std::unique_ptr<PreparedSink> prepared(const std::shared_ptr<Destination>& destination,
                                       Server& server, std::size_t max_records = 256,
                                       bool rewrites = false) {
    const auto make = [&server, rewrites] {
        Preparations steps;
        steps.push_back(std::make_unique<EveryThird>(server, rewrites));
        return steps;
    };
    return std::make_unique<PreparedSink>(
        std::make_unique<MemorySink>(destination, memory::MemoryOptions{.max_records = 100}), make,
        prepare::PreparedSinkOptions{.max_records = max_records});
}

std::vector<Arrived> arrived_at(const Destination& destination, const std::string& topic) {
    std::vector<Arrived> found;
    for (const auto& record : destination.records()) {
        if (record.topic != topic) continue;
        found.push_back({record.id, record.key, record.value, record.headers});
    }
    return found;
}

// The suite of all sinks holds for one with steps before it.
class PreparedFixture final : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        return prepared(destination_, server_, small ? 20 : 256);
    }
    std::string new_topic() override { return "topic-" + std::to_string(++topics_); }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t) override {
        return arrived_at(*destination_, topic);
    }
    void go_down() override { destination_->set_down(true); }
    void come_back() override { destination_->set_down(false); }

  private:
    Server server_;
    std::shared_ptr<Destination> destination_ = std::make_shared<Destination>();
    int topics_ = 0;
};

const SinkFixtureFactory kPrepared = [] { return std::make_unique<PreparedFixture>(); };
INSTANTIATE_TEST_SUITE_P(Prepared, SinkConformance, testing::Values(kPrepared));
INSTANTIATE_TEST_SUITE_P(Prepared, SinkReadBack, testing::Values(kPrepared));
INSTANTIATE_TEST_SUITE_P(Prepared, SinkOutage, testing::Values(kPrepared));

// Knows by itself what to do for even letters, and asks the server for the others.
class KnowsEven final : public Preparation {
  public:
    explicit KnowsEven(Server& server) : server_(server) {}

    const std::string& needs() const override { return needs_; }
    bool concerns(const spi::Record&) const override { return true; }
    std::optional<Status> prepare_at_once(spi::Record& record, prepare::Prepared& out) override {
        if (record.token % 2 != 0) return std::nullopt;
        if (record.token == 2) {
            out.part = "letter 2";
            return Status(ErrorCode::kSchemaUnknown, Advice::kRetryDestination, "not yet");
        }
        out.bytes = "known " + std::string(record.id);
        record.value = out.bytes;
        return Status();
    }
    Status prepare(spi::Record& record, prepare::Prepared&, const std::stop_token& stop) override {
        return server_.serve(record.id, stop);
    }

  private:
    Server& server_;
    const std::string needs_ = "test server";
};

// Waits for the server where a letter is odd, for which it may have no answer.
class DoubtsOdd final : public Preparation {
  public:
    explicit DoubtsOdd(Server& server) : server_(server) {}

    const std::string& needs() const override { return needs_; }
    bool concerns(const spi::Record&) const override { return true; }
    bool is_doubtful(const spi::Record& record) override { return record.token % 2 != 0; }
    Status prepare(spi::Record& record, prepare::Prepared&, const std::stop_token& stop) override {
        return record.token % 2 == 0 ? Status() : server_.serve(record.id, stop);
    }

  private:
    Server& server_;
    const std::string needs_ = "test server";
};

class PreparedSinkTest : public testing::Test {
  protected:
    std::function<Preparations()> known_even() {
        return [this] {
            Preparations steps;
            steps.push_back(std::make_unique<KnowsEven>(server_));
            return steps;
        };
    }

    Server server_;
    std::shared_ptr<Destination> destination_ = std::make_shared<Destination>();
};

// The letters outlive the sink, which may still be at some.
TEST_F(PreparedSinkTest, NothingReachesTheSinkBeforeWhatItNeedsIsDone) {
    const auto sent = letters("t", 3'000, 300);
    const auto sink = prepared(destination_, server_, 256, true);
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    for (const auto& record : destination_->records()) {
        const bool concerned = EveryThird::takes(record.id);
        EXPECT_EQ(server_.has_served(record.id), concerned) << record.id;
        EXPECT_EQ(record.value == "prepared " + record.id, concerned) << record.id;
    }
}

TEST_F(PreparedSinkTest, WhileWhatSomeNeedIsAwayOthersGoOnAndNoAttemptIsCounted) {
    const auto sent = letters("t", 600, 600);
    const auto sink = prepared(destination_, server_);
    Courier courier(*sink);
    courier.max_part_failures = 1'000'000;
    server_.set_down(true);
    bool was_down = false;
    courier.after_poll = [&](const Courier& now) {
        if (was_down || now.acknowledged() < 400 || now.failures() == 0) return;
        was_down = true;
        EXPECT_EQ(now.acknowledged(), 400U) << "all but every third";
        EXPECT_TRUE(sink->check().ok()) << "the circuit of the others may close";
        server_.set_down(false);
    };
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_TRUE(was_down);
    EXPECT_EQ(courier.counted_attempts(), 0U);
    EXPECT_EQ(courier.destination_failures(), 0U) << "the route's circuit stays closed";
    EXPECT_EQ(courier.failures_by_part().count("test server"), 1U);
    EXPECT_TRUE(courier.dead().empty());
    EXPECT_EQ(missing_or_reordered(sent, arrived_at(*destination_, "t")), "");
}

TEST_F(PreparedSinkTest, ARefusalConcernsItsRecordAlone) {
    server_.refuse("id-3");
    const auto sent = letters("t", 300, 30);
    const auto sink = prepared(destination_, server_);
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 3U);
    EXPECT_EQ(courier.dead()[0].error.code, ErrorCode::kPayloadTooLarge);
    EXPECT_EQ(courier.failures(), 1U);
    EXPECT_EQ(destination_->records().size(), sent.size() - 1);
}

TEST_F(PreparedSinkTest, RecordsThatNeedNothingGoPastThoseThatWaitForAnAnswer) {
    const auto sent = letters("t", 30, 30);
    const auto sink = prepared(destination_, server_);
    server_.set_silent(true);
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink->publish(sent[i].record(i)));
    spi::Completions completions;
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (completions.acknowledged.size() < 20 && std::chrono::steady_clock::now() < end) {
        sink->poll(10ms, completions);
    }
    EXPECT_EQ(completions.acknowledged.size(), 20U);
    for (const auto token : completions.acknowledged) EXPECT_NE(token % 3, 0U);
    server_.set_silent(false);
    while (completions.acknowledged.size() < 30 && std::chrono::steady_clock::now() < end) {
        sink->poll(10ms, completions);
    }
    EXPECT_EQ(completions.acknowledged.size(), 30U);
}

TEST_F(PreparedSinkTest, WhatIsDoneAtOnceGoesPastThoseThatWaitForAnAnswer) {
    const auto sent = letters("t", 40, 40);
    PreparedSink sink(std::make_unique<MemorySink>(destination_, memory::MemoryOptions{}),
                      known_even(), {});
    server_.set_silent(true);
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink.publish(sent[i].record(i)));
    spi::Completions completions;
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (completions.acknowledged.size() + completions.failed.size() < 20 &&
           std::chrono::steady_clock::now() < end) {
        sink.poll(10ms, completions);
    }
    EXPECT_EQ(completions.acknowledged.size(), 19U);
    for (const auto token : completions.acknowledged) EXPECT_EQ(token % 2, 0U);
    ASSERT_EQ(completions.failed.size(), 1U);
    EXPECT_EQ(completions.failed[0].token, 2U);
    EXPECT_EQ(completions.failed[0].part, "letter 2") << "a part of its own";
    for (const auto& record : destination_->records()) {
        EXPECT_EQ(record.value, "known " + record.id);
    }
    server_.set_silent(false);
    while (completions.acknowledged.size() < 39 && std::chrono::steady_clock::now() < end) {
        sink.poll(10ms, completions);
    }
    EXPECT_EQ(completions.acknowledged.size(), 39U);
}

TEST_F(PreparedSinkTest, HowManyWaitForAnAnswerIsNothingToTheOthers) {
    constexpr std::size_t kMany = 1'000;
    const auto sent = letters("t", 2 * kMany, 2 * kMany);
    PreparedSink sink(std::make_unique<MemorySink>(destination_, memory::MemoryOptions{}),
                      known_even(), {.max_records = 20});
    server_.set_silent(true);
    for (std::size_t i = 1; i < sent.size(); i += 2) ASSERT_TRUE(sink.publish(sent[i].record(i)));
    spi::Completions completions;
    for (std::size_t i = 4; i < 14; i += 2) ASSERT_TRUE(sink.publish(sent[i].record(i)));
    const auto end = std::chrono::steady_clock::now() + 60s;
    while (completions.acknowledged.size() < 5 && std::chrono::steady_clock::now() < end) {
        sink.poll(10ms, completions);
    }
    EXPECT_EQ(completions.acknowledged.size(), 5U);
    server_.set_silent(false);
}

TEST_F(PreparedSinkTest, WhatMayBeAskedForInVainWaitsOneByOneAndHoldsNothingElseBack) {
    constexpr std::size_t kMany = 100;
    for (const std::size_t threads : {2U, 4U}) {
        Server server;
        const auto sent = letters("t", 2 * kMany, 2 * kMany);
        PreparedSink sink(std::make_unique<MemorySink>(destination_, memory::MemoryOptions{}),
                          [&server] {
                              Preparations steps;
                              steps.push_back(std::make_unique<DoubtsOdd>(server));
                              return steps;
                          },
                          {.threads = threads});
        server.set_silent(true);
        for (std::size_t i = 1; i < sent.size(); i += 2) {
            ASSERT_TRUE(sink.publish(sent[i].record(i)));
        }
        for (std::size_t i = 0; i < sent.size(); i += 2) {
            ASSERT_TRUE(sink.publish(sent[i].record(i)));
        }
        spi::Completions completions;
        const auto end = std::chrono::steady_clock::now() + 60s;
        const auto acknowledge = [&](std::size_t count) {
            while (completions.acknowledged.size() < count &&
                   std::chrono::steady_clock::now() < end) {
                sink.poll(10ms, completions);
            }
            return completions.acknowledged.size();
        };
        EXPECT_EQ(acknowledge(kMany), kMany);
        EXPECT_EQ(server.asked(), 1U);
        server.set_silent(false);
        EXPECT_EQ(acknowledge(2 * kMany), 2 * kMany);
    }
}

TEST_F(PreparedSinkTest, HoldsAsManyAsItMayForTheSinkAndNoMore) {
    constexpr std::size_t kMost = 20;
    constexpr std::size_t kUnderWay = 100;
    const auto sent = letters("t", 3 * (kMost + kUnderWay), 1'000);
    PreparedSink sink(
        std::make_unique<MemorySink>(destination_, memory::MemoryOptions{.max_records = kUnderWay}),
        known_even(), {.max_records = kMost});
    destination_->set_paused(true);
    std::size_t taken = 0;
    for (std::size_t i = 4; i < sent.size() && sink.publish(sent[i].record(i)); i += 2) ++taken;
    EXPECT_EQ(taken, kUnderWay + kMost);
    destination_->set_paused(false);
}

// A server that hangs costs its timeout once and not for each record that waits for it.
TEST_F(PreparedSinkTest, WhatWaitsForTheSameServerIsToldAtOnceThatItIsAway) {
    const auto sent = letters("t", 300, 300);
    const auto sink = prepared(destination_, server_);
    server_.set_silent(true);
    server_.set_down(true);
    std::size_t offered = 0;
    for (std::size_t i = 0; i < sent.size(); i += 3) {
        ASSERT_TRUE(sink->publish(sent[i].record(i)));
        ++offered;
    }
    while (server_.asked() < 4) std::this_thread::yield();
    server_.answer(1);
    spi::Completions completions;
    const auto end = std::chrono::steady_clock::now() + 60s;
    // All but those that a thread is at.
    while (completions.failed.size() < offered - 4 && std::chrono::steady_clock::now() < end) {
        sink->poll(10ms, completions);
    }
    EXPECT_GE(completions.failed.size(), offered - 4);
    for (const auto& failed : completions.failed) EXPECT_EQ(failed.part, "test server");
    EXPECT_LE(server_.asked(), 5U);
}

TEST_F(PreparedSinkTest, EndsWhileAServerDoesNotAnswer) {
    const auto sent = letters("t", 30, 30);
    auto sink = prepared(destination_, server_);
    server_.set_silent(true);
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink->publish(sent[i].record(i)));
    while (server_.asked() < 4) std::this_thread::yield();
    sink.reset();
    EXPECT_LT(destination_->records().size(), sent.size());
}

}  // namespace
}  // namespace outbox::test
