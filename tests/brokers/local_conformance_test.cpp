// The sink suite against the sinks that need no server.

#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "brokers/memory/sink.h"
#include "brokers/null/sink.h"
#include "brokers/stdout/sink.h"
#include "tests/conformance/sink_suite.h"
#include "tests/support/files.h"

namespace outbox::test {
namespace {

class MemoryFixture : public SinkFixture {
  public:
    explicit MemoryFixture(bool fail_stop_order) : fail_stop_order_(fail_stop_order) {}

    std::unique_ptr<spi::Sink> open(bool small) override {
        memory::MemoryOptions options;
        options.fail_stop_order = fail_stop_order_;
        if (small) options.max_records = 100;
        return std::make_unique<memory::MemorySink>(destination_, options);
    }
    std::string new_topic() override { return "topic-" + std::to_string(++topics_); }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t) override {
        std::vector<Arrived> found;
        for (const auto& record : destination_->records()) {
            if (record.topic != topic) continue;
            found.push_back({record.id, record.key, record.value, record.headers});
        }
        return found;
    }
    void go_down() override { destination_->set_down(true); }
    void come_back() override { destination_->set_down(false); }

  private:
    bool fail_stop_order_;
    std::shared_ptr<memory::Destination> destination_ = std::make_shared<memory::Destination>();
    int topics_ = 0;
};

class NullFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        constexpr std::size_t kSmall = 100;
        return small ? std::make_unique<null::NullSink>(kSmall)
                     : std::make_unique<null::NullSink>();
    }
    std::string new_topic() override { return "nowhere"; }
    std::vector<Arrived> arrived(const std::string&, std::size_t) override { return {}; }
};

// Standard output as a file, read back line by line.
class StdoutFixture : public SinkFixture {
  public:
    StdoutFixture() : fd_(::open(file_.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600)) {}
    ~StdoutFixture() override { ::close(fd_); }

    std::unique_ptr<spi::Sink> open(bool) override {
        return std::make_unique<stdout_::StdoutSink>(fd_);
    }
    std::string new_topic() override { return "topic-" + std::to_string(++topics_); }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t) override {
        std::vector<Arrived> found;
        std::ifstream lines(file_);
        for (std::string line; std::getline(lines, line);) {
            const auto json = nlohmann::ordered_json::parse(line);
            if (json.at("topic") != topic) continue;
            Arrived record;
            record.id = json.at("id");
            if (!json.at("key").is_null()) record.key = json.at("key");
            if (!json.at("payload").is_null()) record.value = json.at("payload");
            for (const auto& [name, value] : json.at("headers").items()) {
                record.headers.emplace_back(name, value);
            }
            found.push_back(std::move(record));
        }
        return found;
    }

  private:
    TemporaryFolder folder_{"stdout"};
    std::string file_ = folder_ / "lines";
    int fd_;
    int topics_ = 0;
};

SinkFixtureFactory memory(bool fail_stop_order) {
    return [fail_stop_order] { return std::make_unique<MemoryFixture>(fail_stop_order); };
}
const SinkFixtureFactory kNull = [] { return std::make_unique<NullFixture>(); };
const SinkFixtureFactory kStdout = [] { return std::make_unique<StdoutFixture>(); };

INSTANTIATE_TEST_SUITE_P(Memory, SinkConformance, testing::Values(memory(true), memory(false)));
INSTANTIATE_TEST_SUITE_P(Memory, SinkReadBack, testing::Values(memory(true), memory(false)));
INSTANTIATE_TEST_SUITE_P(Memory, SinkOutage, testing::Values(memory(true), memory(false)));
INSTANTIATE_TEST_SUITE_P(Null, SinkConformance, testing::Values(kNull));
INSTANTIATE_TEST_SUITE_P(Stdout, SinkConformance, testing::Values(kStdout));
INSTANTIATE_TEST_SUITE_P(Stdout, SinkReadBack, testing::Values(kStdout));

using memory::Destination;
using memory::MemorySink;

TEST(MemorySink, WithFailStopOrderAcceptsNothingBehindAFailureAndNamesTheSuspect) {
    const auto destination = std::make_shared<Destination>();
    destination->fail("id-2", {ErrorCode::kRecordRefused, Advice::kDeadLetter, {}, "bad"}, 2);
    MemorySink sink(destination, {});
    const auto sent = letters("t", 5, 1);
    Courier courier(sink);
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.suspects(), 1U);
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(courier.dead()[0].index, 2U);
    EXPECT_EQ(destination->records().size(), 4U);
}

TEST(MemorySink, WithoutFailStopOrderFailsOnlyTheRecordItself) {
    const auto destination = std::make_shared<Destination>();
    destination->fail("id-2", {ErrorCode::kRecordRefused, Advice::kRetryEvent, {}, "bad"}, 1);
    MemorySink sink(destination, {.fail_stop_order = false, .max_records = 10});
    const auto sent = letters("t", 5, 5);
    for (std::size_t i = 0; i < sent.size(); ++i) ASSERT_TRUE(sink.publish(sent[i].record(i)));
    spi::Completions completions;
    sink.poll(std::chrono::milliseconds(0), completions);
    EXPECT_EQ(completions.acknowledged, (std::vector<std::uint64_t>{0, 1, 3, 4}));
    ASSERT_EQ(completions.failed.size(), 1U);
    EXPECT_EQ(completions.failed[0].token, 2U);
}

TEST(MemorySink, GivesNoOutcomeWhilePaused) {
    const auto destination = std::make_shared<Destination>();
    destination->set_paused(true);
    MemorySink sink(destination, {});
    const auto sent = letters("t", 1, 1);
    ASSERT_TRUE(sink.publish(sent[0].record(0)));
    spi::Completions completions;
    sink.poll(std::chrono::milliseconds(1), completions);
    EXPECT_TRUE(completions.empty());
    destination->set_paused(false);
    sink.poll(std::chrono::milliseconds(1), completions);
    EXPECT_EQ(completions.acknowledged.size(), 1U);
}

}  // namespace
}  // namespace outbox::test
