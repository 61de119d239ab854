#pragma once

// What the server of a service of AWS does to the sink in mid-stream. A service's test includes
// this file and instantiates the suite.

#include <chrono>
#include <gtest/gtest.h>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "aws/config.h"
#include "net/id_suffix.h"
#include "net/sha256.h"
#include "tests/brokers/aws/server.h"
#include "tests/brokers/troubles.h"

namespace outbox::test {

/// A service, and what plays it.
struct AwsKind {
    AwsServer& (*server)();  ///< One for all tests of the program.
    Result<aws::Config> (*config)(std::string_view url,
                                  const std::map<std::string, std::string>& options);
    std::unique_ptr<spi::Sink> (*open)(const aws::Config& config);
};

class AwsFailure : public testing::TestWithParam<AwsKind> {
  protected:
    static AwsServer& server() { return GetParam().server(); }
    static aws::Config config(const std::string& url = server().url()) {
        return GetParam().config(url, {}).value_or_throw();
    }
    static std::unique_ptr<spi::Sink> open(const aws::Config& with = config()) {
        return GetParam().open(with);
    }
    static std::string new_name() {
        static int names = 0;
        return "failure-" + std::to_string(++names) + ".fifo";
    }
    static std::string new_topic() {
        std::string name = new_name();
        server().make(name);
        return name;
    }
    static std::string part(const std::string& topic) {
        return std::string(config().service->topic) + " " + topic;
    }
    static void expect_once_in_order(const std::string& topic, const std::vector<Letter>& sent) {
        test::expect_once_in_order(sent, server().arrived(topic, sent.size()));
    }
};

TEST_P(AwsFailure, AWayThatBreaksUnderLoadCostsNothingAndRepeatsNothing) {
    const std::string topic = new_topic();
    Way way(server());
    const auto sink = open(config(way.url()));
    const auto sent = letters(topic, 2'000, 100);
    deliver_through(*sink, sent, 500, [&] { way.cut(); }, [&] { way.open(); });
    expect_once_in_order(topic, sent);
}

// It keeps no messages.
TEST_P(AwsFailure, AServerThatIsKilledUnderLoadIsAnOutageAndNoAttempt) {
    const std::string topic = new_topic();
    const auto sink = open();
    deliver_through(
        *sink, letters(topic, 2'000, 100), 500, [] { server().kill(); },
        [&] {
            server().start();
            server().make(topic);  // where it keeps none
        });
}

TEST_P(AwsFailure, RepeatsAreDroppedByWhatIsFifoAndCountAsDone) {
    const std::string topic = new_topic();
    const auto sent = letters(topic, 500, 50);
    ASSERT_EQ(Courier(*open()).deliver(sent), "");
    ASSERT_EQ(Courier(*open()).deliver(sent), "");
    expect_once_in_order(topic, sent);
}

TEST_P(AwsFailure, ATopicThatIsMissingWaitsForOneAndDelaysNobodyElse) {
    const std::string topic = new_topic();
    const std::string missing = new_name();
    const auto sink = open();
    const auto sent = letters_to_two(topic, missing);
    deliver_while_one_waits(*sink, sent, part(missing), [&] { server().make(missing); });
    for (const std::string& one : {topic, missing}) {
        expect_once_in_order(one, letters_to(one, sent));
    }
}

TEST_P(AwsFailure, ATopicThatIsRemovedAndMadeAnewGoesOn) {
    const std::string topic = new_topic();
    const auto sink = open();
    ASSERT_EQ(Courier(*sink).deliver(letters(topic, 20, 10)), "");
    server().remove(topic);
    const auto failed = failure_of(*sink, topic);
    EXPECT_EQ(failed.error.code, ErrorCode::kTopicUnknown) << describe(failed.error);
    EXPECT_EQ(failed.part, part(topic));
    server().make(topic);
    const auto sent = letters(topic, 100, 10);
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    expect_once_in_order(topic, sent);
}

TEST_P(AwsFailure, AnEventThatIsTooLargeAloneIsDead) {
    const std::string topic = new_topic();
    const auto sink = open();
    auto sent = letters(topic, 200, 10);
    sent[50].value = std::string(300'000, 'x');  // for the server
    sent[60].value =
        std::string(std::size_t{1} << 20, 'x');  // for the service, with its attributes
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 2U);
    for (const auto& dead : courier.dead()) {
        EXPECT_EQ(dead.error.code, ErrorCode::kPayloadTooLarge) << describe(dead.error);
        EXPECT_NE(dead.error.message.find("MaximumMessageSize"), std::string::npos);
    }
    sent.erase(sent.begin() + 60);
    sent.erase(sent.begin() + 50);
    expect_once_in_order(topic, sent);
}

TEST_P(AwsFailure, LargeEventsGoInBatchesThatFit) {
    const std::string topic = new_topic();
    const auto sink = open();
    const auto sent = letters(topic, 40, 40, 60'000);  // ten of them are over 256 KiB
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    EXPECT_EQ(courier.failures(), 0U);
    expect_once_in_order(topic, sent);
}

TEST_P(AwsFailure, AHeaderThatIsTheRelaysAloneIsDead) {
    const std::string topic = new_topic();
    const auto sink = open();
    auto sent = letters(topic, 100, 10);
    sent[50].headers.emplace_back("outbox-key", "x");
    sent[60].headers.emplace_back("\xFF", "x");
    sent[70].id = "";
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(sent), "");
    ASSERT_EQ(courier.dead().size(), 3U);
    for (const auto& dead : courier.dead()) {
        EXPECT_EQ(dead.error.code, ErrorCode::kRecordRefused) << describe(dead.error);
    }
    for (const std::ptrdiff_t i : {70, 60, 50}) sent.erase(sent.begin() + i);
    expect_once_in_order(topic, sent);
}

TEST_P(AwsFailure, BytesThatAreNoTextArriveAsTheyWere) {
    const std::string topic = new_topic();
    const auto sink = open();
    auto sent = letters(topic, 4, 4);
    sent[0].value = std::string("\0\x01\xFF", 3);
    sent[1].value = "line\r\n\ttab \xE2\x82\xAC";
    sent[2].value = "\xEF\xBF\xBF";
    sent[3].headers.emplace_back("name", "a\x01");
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    std::map<std::string, Arrived> by_id;
    for (const Arrived& record : server().arrived(topic, 4)) by_id[record.id] = record;
    for (const Letter& letter : sent) {
        EXPECT_EQ(by_id[letter.id].value, letter.value) << letter.id;
    }
    EXPECT_EQ(by_id["id-3"].headers.back().second, "a\x01");
}

TEST_P(AwsFailure, AKeyIsTheGroupAndAnIdIsWhatRepeatsAreKnownBy) {
    const std::string topic = new_topic();
    const auto sink = open();
    auto sent = letters(topic, 3, 3);
    sent[1].key = std::nullopt;
    sent[2].key = "two words";
    sent[2].id = std::string(200, 'i');
    sent[2].headers = {{"id", sent[2].id}};
    ASSERT_EQ(Courier(*sink).deliver(sent), "");
    std::map<std::string, nlohmann::json> by_id;
    for (const std::string& text : server().read_lines(topic, 3)) {
        const auto line = nlohmann::json::parse(text);
        by_id[line["id"].get<std::string>()] = line;
    }
    EXPECT_EQ(by_id["id-0"]["group"], "key-0");
    const std::string mark = net::id_suffix("");
    EXPECT_EQ(by_id["id-0"]["dedup"], "id-0" + mark);
    EXPECT_EQ(by_id["id-1"]["group"], "id-1");
    EXPECT_EQ(by_id[sent[2].id]["group"], net::sha256_hex("two words"));
    EXPECT_EQ(by_id[sent[2].id]["dedup"], net::sha256_hex(sent[2].id + mark));
    EXPECT_EQ(by_id[sent[2].id]["key"], "two words");
}

TEST_P(AwsFailure, AServerThatHangsIsDownUntilItGoesOn) {
    const std::string topic = new_topic();
    auto impatient = config();
    impatient.stuck_after = std::chrono::seconds(2);
    impatient.connect_timeout = std::chrono::seconds(2);
    const auto sink = open(impatient);
    const auto sent = letters(topic, 1'000, 100, 1'000);
    deliver_through(*sink, sent, 300, [] { server().pause(); }, [] { server().resume(); });
    expect_once_in_order(topic, sent);
}

TEST_P(AwsFailure, TakesNoMoreThanItsLimitsWhileTheServerHangs) {
    auto limited = config();
    limited.max_bytes = 1'000'000;
    const auto sink = open(limited);
    expect_limits_while_it_hangs(
        *sink, new_topic(), [] { server().pause(); }, [] { server().resume(); });
}

TEST_P(AwsFailure, AnIdleConnectionThatWasClosedIsNoFailure) {
    const std::string topic = new_topic();
    const auto sink = open();
    expect_no_failure_after_idling(*sink, topic, [&] {
        server().stop();
        server().start();
        server().make(topic);  // where it keeps none
    });
}

}  // namespace outbox::test
