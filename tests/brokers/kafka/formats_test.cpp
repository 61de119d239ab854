// CloudEvents through a real Kafka: written by the relay, read by the official SDK and by our own
// consumer.

#include <gtest/gtest.h>
#include <thread>

#include <outbox/adapters/sqlite_kafka.h>
#include <outbox/producer/migrate.h>

#include "tests/brokers/relay_suite.h"
#include "tests/brokers/sdk_reader.h"
#include "tests/support/eventually.h"
#include "tests/support/kafka_client.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;

class KafkaFormats : public RelaySuite, public testing::WithParamInterface<const char*> {
  protected:
    KafkaFormats() { create_topic(shared_kafka().bootstrap(), topic_); }

    void publish(const std::string& payload = R"({"total": 99.990})") {
        publish_one("kafka://" + shared_kafka().bootstrap(), topic_, GetParam(), payload);
    }
    [[nodiscard]] KafkaRecord record() const {
        KafkaReader reader(shared_kafka().bootstrap(), topic_);
        return reader.read(1, 120s).at(0);
    }

    const std::string topic_ = [] {
        static int number = 0;
        return "formats-" + std::to_string(++number);
    }();
};

TEST_P(KafkaFormats, TheOfficialSdkReadsWhatTheRelayWrites) {
    publish();
    const KafkaRecord got = record();
    EXPECT_EQ(got.key, kAggregateId);
    EXPECT_EQ(got.header("x-request-id"), "r 1");
    EXPECT_EQ(got.header("traceparent"), "00-ab-cd-01");
    const json event = read_by_sdk("kafka", {got.headers, got.key, got.value.value(), ""});
    EXPECT_EQ(event.at("attributes"),
              (json{{"specversion", "1.0"},
                    {"id", kEventId},
                    {"source", "/outbox/outbox_events"},
                    {"type", "OrderPlaced"},
                    {"time", "2023-11-14T22:13:20.000042+00:00"},
                    {"subject", kAggregateId},
                    {"partitionkey", kAggregateId},
                    {"dataschema", "outbox:/subjects/orders-value/versions/3"},
                    {"aggregatetype", "Order"},
                    {"tenantid", "t-1"},
                    {"schemaid", "orders-value"},
                    {"schemaversion", "3"},
                    {"traceparent", "00-ab-cd-01"},
                    {"datacontenttype", "application/json"}}));
    EXPECT_EQ(event.at("data"), json({{"total", 99.99}}));
}

TEST_P(KafkaFormats, TextIsDataAsItIs) {
    publish("plain \"text\"");
    const KafkaRecord got = record();
    const json event = read_by_sdk("kafka", {got.headers, got.key, got.value.value(), ""});
    EXPECT_EQ(event.at("attributes").at("datacontenttype"), "text/plain; charset=utf-8");
    EXPECT_EQ(event.at("data"), "plain \"text\"");
}

// A consumer needs no option for it, and drops as a repeat what came in another format before.
TEST_P(KafkaFormats, OurConsumerSeesTheSameMessageInEachFormat) {
    publish();
    const std::string effects = "sqlite://" + outbox_.file("effects.db").string();
    ASSERT_EQ(outbox_.run({"migrate", "--db", effects, "--only", "consumer"}).status.code, 0);
    KafkaConsumerOptions options;
    options.brokers = shared_kafka().bootstrap();
    options.group = "group-" + topic_;
    options.consumer = "formats";
    options.topics = {topic_};
    options.kafka = {{"auto.offset.reset", "earliest"}};
    struct Seen {
        std::string id, key, payload;
        Headers headers;
    };
    std::vector<Seen> seen;
    auto consumer = sqlite_kafka_consumer(
        effects,
        [&](sqlite3*, const Message& message) {
            seen.push_back({std::string(message.id), std::string(message.key),
                            std::string(message.payload), message.headers()});
        },
        options);
    std::thread running([&] { consumer.run(); });
    EXPECT_TRUE(eventually(60s, "it is applied", [&] { return consumer.stats().applied == 1; }));
    publish();  // the same event once more
    EXPECT_TRUE(
        eventually(60s, "the repeat is dropped", [&] { return consumer.stats().repeats == 1; }));
    consumer.stop();
    running.join();
    ASSERT_EQ(seen.size(), 1U);
    EXPECT_EQ(seen[0].id, kEventId);
    EXPECT_EQ(seen[0].key, kAggregateId);
    EXPECT_EQ(seen[0].payload, R"({"total": 99.990})");
    std::map<std::string, std::string> headers(seen[0].headers.begin(), seen[0].headers.end());
    for (const auto& [name, value] :
         std::map<std::string, std::string>{{"type", "OrderPlaced"},
                                            {"aggregate_type", "Order"},
                                            {"occurred_at", "2023-11-14T22:13:20.000042Z"},
                                            {"tenant_id", "t-1"},
                                            {"schema_id", "orders-value"},
                                            {"schema_version", "3"},
                                            {"traceparent", "00-ab-cd-01"},
                                            {"x-request-id", "r 1"}}) {
        EXPECT_EQ(headers[name], value) << name;
    }
}

INSTANTIATE_TEST_SUITE_P(Formats, KafkaFormats,
                         testing::Values("cloudevents", "cloudevents-structured"),
                         [](const auto& tested) {
                             return std::string(tested.param) == "cloudevents" ? "Binary"
                                                                               : "Structured";
                         });

}  // namespace
}  // namespace outbox::test
