#pragma once

#include <algorithm>
#include <chrono>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <outbox/spi/sink.h>

#include "tests/conformance/courier.h"
#include "tests/conformance/letters.h"
#include "tests/support/logs.h"

// What every sink must do. A backend's test includes this file, writes a `SinkFixture`, and
// instantiates the suites that its destination allows:
//   SinkConformance   every sink
//   SinkReadBack      destinations whose records can be read back
//   SinkRefusal       those with fail-stop order that refuse a record themselves
//   SinkOutage        destinations that can go down and come back

namespace outbox::test {

/// One destination and how to look into it.
class SinkFixture {
  public:
    SinkFixture() = default;
    SinkFixture(const SinkFixture&) = delete;
    SinkFixture& operator=(const SinkFixture&) = delete;
    virtual ~SinkFixture() = default;

    /// A sink for this destination. `small`: with limits so low that 2,000 records of 1 kB under
    /// way do not fit.
    virtual std::unique_ptr<spi::Sink> open(bool small) = 0;
    /// A topic that nobody used before and that takes values of 1 MiB.
    virtual std::string new_topic() = 0;
    /// Everything that arrived in the topic, repeats included, once `count` different ids are
    /// there; what came until a deadline of the fixture otherwise. Order holds per key.
    virtual std::vector<Arrived> arrived(const std::string& topic, std::size_t count) = 0;
    /// False: the destination keeps headers as a map.
    [[nodiscard]] virtual bool keeps_header_order() const { return true; }
    /// False: names of headers are ASCII there.
    [[nodiscard]] virtual bool takes_any_header_name() const { return true; }
    /// Where it is less than the largest payload by default, which is 1 MiB.
    [[nodiscard]] virtual std::size_t largest_value() const { return std::size_t{1} << 20; }
    /// Makes it a letter that the sink itself refuses, where it looks for such.
    virtual void spoil(Letter& /*letter*/) {}
    virtual void go_down() {}
    virtual void come_back() {}
};

using SinkFixtureFactory = std::function<std::unique_ptr<SinkFixture>()>;

class SinkSuite : public testing::TestWithParam<SinkFixtureFactory> {
  protected:
    void SetUp() override { fixture_ = GetParam()(); }
    std::unique_ptr<SinkFixture> fixture_;
};

class SinkConformance : public SinkSuite {};
class SinkReadBack : public SinkSuite {};
class SinkRefusal : public SinkSuite {};
class SinkOutage : public SinkSuite {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SinkReadBack);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SinkRefusal);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(SinkOutage);

TEST_P(SinkConformance, CompletesEveryTokenExactlyOnce) {
    const auto sink = fixture_->open(false);
    const auto sent = letters(fixture_->new_topic(), 3'000, 50);
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.acknowledged(), sent.size());
    EXPECT_TRUE(courier.dead().empty());
}

TEST_P(SinkConformance, TakesRecordsAgainAfterItWasFull) {
    const auto sink = fixture_->open(true);
    const auto sent = letters(fixture_->new_topic(), 2'000, 2'000, 1'000);
    Courier courier(*sink);
    EXPECT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.acknowledged(), sent.size());
    EXPECT_GT(courier.times_full(), 0U);
}

TEST_P(SinkConformance, HasNoOutcomesWithoutRecords) {
    const auto sink = fixture_->open(false);
    spi::Completions completions;
    for (int i = 0; i < 3; ++i) sink->poll(std::chrono::milliseconds(1), completions);
    EXPECT_TRUE(completions.empty());
}

TEST_P(SinkConformance, PassesItsCheckWhenTheDestinationIsUp) {
    const auto sink = fixture_->open(false);
    const Status status = sink->check();
    EXPECT_TRUE(status.ok()) << describe(status.error());
}

TEST_P(SinkConformance, CanBeDestroyedWithRecordsUnderWay) {
    const auto sent = letters(fixture_->new_topic(), 1'000, 7, 1'000);
    for (const bool poll_once : {false, true}) {
        auto sink = fixture_->open(false);
        std::size_t next = 0;
        while (next < sent.size() && sink->publish(sent[next].record(next))) ++next;
        EXPECT_GT(next, 0U);
        spi::Completions completions;
        if (poll_once) sink->poll(std::chrono::milliseconds(0), completions);
        sink.reset();
    }
}

TEST_P(SinkReadBack, KeepsTheOrderOfEachKey) {
    const auto sink = fixture_->open(false);
    const std::string topic = fixture_->new_topic();
    const auto sent = letters(topic, 5'000, 30);
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    const auto arrived = fixture_->arrived(topic, sent.size());
    EXPECT_EQ(missing_or_reordered(sent, arrived), "");
    EXPECT_EQ(arrived.size(), sent.size()) << "repeats without a failure";
}

TEST_P(SinkReadBack, TellsNullFromEmptyInKeyAndValue) {
    const auto sink = fixture_->open(false);
    const std::string topic = fixture_->new_topic();
    auto sent = letters(topic, 4, 1);
    sent[0].key = std::nullopt;
    sent[0].value = std::nullopt;
    sent[1].key = "";
    sent[1].value = "";
    sent[2].value = std::nullopt;
    sent[3].key = std::nullopt;
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    std::map<std::string, Arrived> by_id;
    for (const Arrived& record : fixture_->arrived(topic, sent.size())) by_id[record.id] = record;
    for (const Letter& letter : sent) {
        ASSERT_TRUE(by_id.contains(letter.id)) << letter.id;
        EXPECT_EQ(by_id[letter.id].key, letter.key) << letter.id;
        EXPECT_EQ(by_id[letter.id].value, letter.value) << letter.id;
    }
}

TEST_P(SinkReadBack, CarriesHeadersInOrder) {
    const auto sink = fixture_->open(false);
    const std::string topic = fixture_->new_topic();
    auto sent = letters(topic, 2, 1);
    sent[0].headers = {
        {"id", sent[0].id}, {"empty", ""}, {"caf\xC3\xA9", "\"quoted\"\n\xE2\x82\xAC"}};
    if (!fixture_->takes_any_header_name()) sent[0].headers[2].first = "cafe";
    sent[1].headers = {{"id", sent[1].id}};
    for (int i = 0; i < 50; ++i) {
        sent[1].headers.emplace_back("name-" + std::to_string(i), std::string(100, 'h'));
    }
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    auto arrived = fixture_->arrived(topic, sent.size());
    ASSERT_EQ(arrived.size(), 2U);
    if (!fixture_->keeps_header_order()) {
        for (std::size_t i = 0; i < 2; ++i) {
            std::sort(sent[i].headers.begin(), sent[i].headers.end());
            std::sort(arrived[i].headers.begin(), arrived[i].headers.end());
        }
    }
    EXPECT_EQ(arrived[0].headers, sent[0].headers);
    EXPECT_EQ(arrived[1].headers, sent[1].headers);
}

TEST_P(SinkReadBack, CarriesAValueOfOneMebibyte) {
    const auto sink = fixture_->open(false);
    const std::string topic = fixture_->new_topic();
    auto sent = letters(topic, 3, 1);
    sent[1].value = std::string(fixture_->largest_value(), 'x');
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    const auto arrived = fixture_->arrived(topic, sent.size());
    ASSERT_EQ(arrived.size(), 3U);
    EXPECT_TRUE(arrived[1].value == sent[1].value);
    EXPECT_EQ(missing_or_reordered(sent, arrived), "");
}

TEST_P(SinkRefusal, NothingOfAKeyIsAcceptedBehindARecordThatItRefusesItself) {
    const auto sink = fixture_->open(false);
    ASSERT_TRUE(sink->capabilities().fail_stop_order);
    const std::string topic = fixture_->new_topic();
    constexpr std::size_t kRefused = 5;
    auto sent = letters(topic, 30, 1);
    fixture_->spoil(sent[kRefused]);
    fixture_->spoil(sent[2 * kRefused]);
    // So that the sink knows the topic, too.
    ASSERT_EQ(Courier(*sink).deliver({sent[0]}), "");
    std::size_t next = 1;
    std::size_t done = 1;
    bool failed = false;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(120);
    while (!failed || done < next) {
        ASSERT_LT(std::chrono::steady_clock::now(), deadline);
        while (!failed && next < sent.size() && sink->publish(sent[next].record(next))) ++next;
        spi::Completions completions;
        sink->poll(std::chrono::milliseconds(10), completions);
        for (const std::uint64_t token : completions.acknowledged) EXPECT_LT(token, kRefused);
        for (const spi::FailedRecord& one : completions.failed) {
            EXPECT_GE(one.token, kRefused) << describe(one.error);
            failed = true;
        }
        done += completions.acknowledged.size() + completions.failed.size();
    }
    EXPECT_EQ(fixture_->arrived(topic, kRefused).size(), kRefused);
    // And goes on when its caller does.
    Courier courier(*sink);
    const std::vector<Letter> rest(sent.begin() + kRefused + 1, sent.end());
    ASSERT_EQ(courier.deliver(rest), "");
    ASSERT_EQ(courier.dead().size(), 1U);
    EXPECT_EQ(rest[courier.dead()[0].index].id, sent[2 * kRefused].id);
    EXPECT_EQ(courier.acknowledged(), rest.size() - 1);
}

TEST_P(SinkOutage, LosesNothingWhenTheDestinationGoesDownAndComesBack) {
    const auto sink = fixture_->open(false);
    const std::string topic = fixture_->new_topic();
    const auto sent = letters(topic, 4'000, 20);
    Courier courier(*sink);
    bool down = false;
    bool failed_while_down = false;
    courier.after_poll = [&](const Courier& now) {
        if (!down && now.acknowledged() >= 1'000) {
            fixture_->go_down();
            down = true;
        } else if (down && !failed_while_down && now.failures() > 0) {
            failed_while_down = true;
            EXPECT_FALSE(sink->check().ok());
            fixture_->come_back();
        }
    };
    courier.max_publish_per_poll = 100;            // so that it goes down with work left
    courier.max_part_failures = SIZE_MAX;          // as the relay
    courier.deadline = std::chrono::seconds(300);  // some take long to start
    ASSERT_EQ(courier.deliver(sent), "") << all_log_tails();
    EXPECT_TRUE(failed_while_down);
    EXPECT_TRUE(courier.dead().empty()) << describe(courier.dead()[0].error);
    EXPECT_EQ(courier.counted_attempts(), 0U) << "an outage must burn no attempts";
    EXPECT_EQ(missing_or_reordered(sent, fixture_->arrived(topic, sent.size())), "");
    EXPECT_TRUE(sink->check().ok());
}

}  // namespace outbox::test
