// The sink suite against a real Kafka broker.

#include "brokers/kafka/sink.h"
#include "tests/brokers/kafka/admin.h"
#include "tests/conformance/sink_suite.h"
#include "tests/support/kafka_client.h"
#include "tests/support/servers.h"

namespace outbox::test {
namespace {

class KafkaFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config =
            kafka::make_config("kafka://" + shared_kafka().bootstrap(), {}).value_or_throw();
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return kafka::KafkaSink::open(config).value_or_throw();
    }
    std::string new_topic() override {
        static int topics = 0;
        const std::string topic = "conformance-" + std::to_string(++topics);
        create_topic(shared_kafka().bootstrap(), topic, 4, {{"max.message.bytes", "2000000"}});
        return topic;
    }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        return kafka_arrived(shared_kafka().bootstrap(), topic, count);
    }
    // It knows the topic's limit.
    void spoil(Letter& letter) override { letter.value = std::string(2'100'000, 'x'); }
    void go_down() override { shared_kafka().kill(); }
    void come_back() override { shared_kafka().start(); }
};

const SinkFixtureFactory kKafka = [] { return std::make_unique<KafkaFixture>(); };
INSTANTIATE_TEST_SUITE_P(Kafka, SinkConformance, testing::Values(kKafka));
INSTANTIATE_TEST_SUITE_P(Kafka, SinkReadBack, testing::Values(kKafka));
INSTANTIATE_TEST_SUITE_P(Kafka, SinkRefusal, testing::Values(kKafka));
INSTANTIATE_TEST_SUITE_P(Kafka, SinkOutage, testing::Values(kKafka));

}  // namespace
}  // namespace outbox::test
