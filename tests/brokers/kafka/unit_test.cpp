// What of the Kafka sink needs no broker.

#include <gtest/gtest.h>

#include "brokers/kafka/config.h"
#include "brokers/kafka/errors.h"
#include "brokers/kafka/record_size.h"
#include "brokers/kafka/refusal.h"
#include "brokers/kafka/sink.h"
#include "brokers/kafka/under_way.h"
#include "tests/conformance/courier.h"

namespace outbox::kafka {
namespace {

TEST(KafkaConfig, TakesBrokersFromTheUrlAndOptionsFromBothPlaces) {
    const auto config = make_config("kafka://a:9092,b:9093?linger.ms=7",
                                    {{"kafka.compression.codec", "lz4"}, {"client.id", "shop"}});
    ASSERT_TRUE(config.ok()) << describe(config.error());
    const auto settings = librdkafka_settings(*config, 1000);
    EXPECT_EQ(settings.at("bootstrap.servers"), "a:9092,b:9093");
    EXPECT_EQ(settings.at("linger.ms"), "7");
    EXPECT_EQ(settings.at("compression.type"), "lz4");
    EXPECT_EQ(settings.at("client.id"), "shop");
    EXPECT_EQ(settings.at("batch.size"), "1000");
    EXPECT_TRUE(compresses(*config));
}

TEST(KafkaConfig, AnOptionThatIsGivenTwiceInOnePlaceIsRefusedWhateverItIsCalledThere) {
    const auto refusal = [](std::string_view url, const std::map<std::string, std::string>& table) {
        const auto config = make_config(url, table);
        return config.ok() ? std::string("taken") : config.error().message;
    };
    const std::string twice = "kafka.linger.ms is given twice; leave one of them out";
    EXPECT_EQ(refusal("kafka://a:1?linger.ms=5&kafka.linger.ms=6", {}), twice);
    EXPECT_EQ(refusal("kafka://a:1?linger.ms=5&queue.buffering.max.ms=6", {}), twice);
    EXPECT_EQ(refusal("kafka://a:1", {{"linger.ms", "5"}, {"kafka.linger.ms", "6"}}), twice);
    // The table is over the URL.
    EXPECT_EQ(refusal("kafka://a:1?linger.ms=5", {{"linger.ms", "6"}}), "taken");
}

TEST(KafkaConfig, KeepsThePromisesInTheSettings) {
    const auto settings = librdkafka_settings(make_config("kafka://a:1", {}).value_or_throw(), 9);
    EXPECT_EQ(settings.at("acks"), "all");
    EXPECT_EQ(settings.at("enable.idempotence"), "true");
    EXPECT_EQ(settings.at("enable.gapless.guarantee"), "true");
    EXPECT_EQ(settings.at("max.in.flight"), "1");
    EXPECT_EQ(settings.at("message.timeout.ms"), "0");
    EXPECT_EQ(settings.at("partitioner"), "murmur2_random");
    EXPECT_EQ(settings.at("socket.nagle.disable"), "true");
}

TEST(KafkaConfig, RefusesOptionsThatBreakAPromiseAndNamesIt) {
    for (const char* name :
         {"acks", "request.required.acks", "enable.idempotence", "enable.gapless.guarantee",
          "message.timeout.ms", "delivery.timeout.ms", "partitioner", "retries",
          "max.in.flight.requests.per.connection", "bootstrap.servers", "transactional.id"}) {
        const auto config = make_config("kafka://a:1", {{"kafka." + std::string(name), "1"}});
        ASSERT_FALSE(config.ok()) << name;
        EXPECT_EQ(config.error().code, ErrorCode::kGuaranteeRefused);
        EXPECT_EQ(config.error().advice, Advice::kStop);
        EXPECT_NE(config.error().message.find("promises that"), std::string::npos);
        EXPECT_NE(config.error().message.find(name), std::string::npos);
    }
}

TEST(KafkaConfig, RefusesUrlsWithoutBrokerWithPathOrWithPassword) {
    for (const char* url : {"kafka://", "kafka://a:1/topic", "kafka://u:hunter2@a:1"}) {
        const auto config = make_config(url, {});
        ASSERT_FALSE(config.ok()) << url;
        EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
        EXPECT_EQ(config.error().message.find("hunter2"), std::string::npos);
    }
}

TEST(KafkaConfig, PrintsNothingThatMayBeTheRestOfASecret) {
    for (const char* rest : {"Zq7sEcReT", "zq7=sEcReT", "x=1&Zq7sEcReT", "linger.ms=5&zq7=x"}) {
        const std::string url = "kafka://a:1?client.id=b&kafka.sasl.password=a&";
        const auto config = make_config(url + rest, {});
        ASSERT_FALSE(config.ok()) << rest;
        EXPECT_EQ(config.error().code, ErrorCode::kConfigInvalid);
        EXPECT_EQ(config.error().message,
                  "an option behind kafka.sasl.password in the Kafka URL is none of librdkafka's; "
                  "write an & in a value as %26");
    }
    for (const char* known : {"kafka.linger.ms=5", "client.id=a", "compression.codec=gzip",
                              "message.timeout.ms=1", "sasl.username=b"}) {
        const auto config = make_config("kafka://a:1?sasl.password=a&" + std::string(known), {});
        EXPECT_TRUE(config.ok() || config.error().code == ErrorCode::kGuaranteeRefused) << known;
    }
}

TEST(KafkaSink, RefusesOptionsThatTheLibraryDoesNotTakeWithoutPrintingSecrets) {
    const auto unknown = make_kafka_sink("kafka://a:1", {{"kafka.linger", "5"}});
    ASSERT_FALSE(unknown.ok());
    EXPECT_EQ(unknown.error().code, ErrorCode::kConfigInvalid);
    EXPECT_NE(unknown.error().message.find("'linger'"), std::string::npos);
    const auto bad = make_kafka_sink("kafka://a:1", {{"kafka.linger.ms", "soon"}});
    ASSERT_FALSE(bad.ok());
    EXPECT_NE(bad.error().message.find("linger.ms"), std::string::npos);
    const auto secret = make_kafka_sink(
        "kafka://a:1", {{"kafka.security.protocol", "ssl"}, {"kafka.ssl.key.pem", "hunter2"}});
    ASSERT_FALSE(secret.ok());
    EXPECT_EQ(secret.error().message.find("hunter2"), std::string::npos) << secret.error().message;
}

// librdkafka calls it the one or the other, by the moment at which it notices.
TEST(KafkaErrors, WhatTlsRefusesIsNoBrokerThatIsAway) {
    constexpr int kOtherHost = 62;
    constexpr int kVersion = 0x020000ff;
    for (const char* name : {"_SSL", "_TRANSPORT"}) {
        const std::string text =
            "ssl://k:1/bootstrap: SSL handshake failed: certificate verify failed";
        EXPECT_EQ(outbox::kafka::explain(name, text, kOtherHost, kVersion).name, "_SSL");
        EXPECT_EQ(outbox::kafka::explain(name, "SSL alert number 116", 0, kVersion).name, "_SSL");
    }
    EXPECT_EQ(outbox::kafka::explain("_TRANSPORT", "Connection refused", 0, kVersion).name,
              "_TRANSPORT");
}

TEST(KafkaErrors, HaveTheAdviceThatFits) {
    const auto advice = [](const char* name) { return to_error({name, "text"}, "x").advice; };
    EXPECT_EQ(advice("MSG_SIZE_TOO_LARGE"), Advice::kDeadLetter);
    EXPECT_EQ(advice("INVALID_RECORD"), Advice::kDeadLetter);
    EXPECT_EQ(advice("UNKNOWN_TOPIC_OR_PART"), Advice::kRetryEvent);
    EXPECT_EQ(advice("TOPIC_AUTHORIZATION_FAILED"), Advice::kRetryDestination);
    EXPECT_EQ(advice("_TRANSPORT"), Advice::kRetryDestination);
    EXPECT_EQ(advice("_GAPLESS_GUARANTEE"), Advice::kRetryDestination);
    EXPECT_EQ(advice("SOMETHING_NEW"), Advice::kRetryEvent);
    EXPECT_NE(to_error({"_AUTHENTICATION", "bad"}, "Kafka at a:1").message.find("sasl.password"),
              std::string::npos);
}

TEST(UnderWay, KeepsTheOrderOfPublishingWhenSlotsAreReused) {
    UnderWay under_way(3);
    Topic topic;
    const auto a = under_way.add(1, 10, topic);
    const auto b = under_way.add(2, 10, topic);
    under_way.add(3, 10, topic);
    EXPECT_TRUE(under_way.full());
    under_way.remove(b);
    under_way.remove(a);
    under_way.add(4, 5, topic);
    EXPECT_EQ(under_way[under_way.oldest()].token, 3U);
    EXPECT_EQ(under_way.bytes(), 15U);
    EXPECT_EQ(topic.under_way, 2U);
    under_way.remove(under_way.oldest());
    EXPECT_EQ(under_way[under_way.oldest()].token, 4U);
    under_way.remove(under_way.oldest());
    EXPECT_TRUE(under_way.empty());
    EXPECT_EQ(under_way.oldest(), kNoSlot);
}

TEST(KafkaSink, FailsRecordsForTheDestinationWhenNoBrokerAnswers) {
    auto config = make_config("kafka://127.0.0.1:1", {}).value_or_throw();
    config.down_after = std::chrono::milliseconds(50);
    config.connect_timeout = std::chrono::seconds(60);
    const auto sink = KafkaSink::open(config).value_or_throw();
    std::vector<test::Letter> sent(3);
    for (std::size_t i = 0; i < sent.size(); ++i) {
        sent[i].topic = "orders";
        sent[i].key = "k";
        ASSERT_TRUE(sink->publish(sent[i].record(i)));
    }
    spi::Completions completions;
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (completions.empty() && std::chrono::steady_clock::now() < deadline) {
        sink->poll(std::chrono::milliseconds(20), completions);
    }
    ASSERT_EQ(completions.failed.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(completions.failed[i].token, i);
        EXPECT_FALSE(completions.failed[i].suspect);
        EXPECT_EQ(completions.failed[i].error.code, ErrorCode::kSinkUnavailable);
        EXPECT_EQ(completions.failed[i].error.advice, Advice::kRetryDestination);
    }
    const Status status = sink->check();
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("127.0.0.1:1"), std::string::npos);
    EXPECT_NE(status.error().message.find("refused"), std::string::npos) << status.error().message;
}

TEST(KafkaTopicName, HasTheAlphabetOfKafka) {
    for (const char* good : {"a", "_one", "A.b-c_9", "..."}) {
        EXPECT_TRUE(check_topic_name(good).ok()) << good;
    }
    EXPECT_TRUE(check_topic_name(std::string(249, 'a')).ok());
    for (const std::string bad : {"", ".", "..", "__consumer_offsets", "a/b", "a b", "\xc3\xbc"}) {
        EXPECT_FALSE(check_topic_name(bad).ok()) << bad;
    }
    EXPECT_FALSE(check_topic_name(std::string(250, 'a')).ok());
}

}  // namespace
}  // namespace outbox::kafka
