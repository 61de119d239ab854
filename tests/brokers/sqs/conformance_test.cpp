// The sink suite against a real ElasticMQ, with FIFO queues.

#include "brokers/sqs/sink.h"
#include "tests/brokers/sqs/server.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

// As the service is now: it takes messages up to 1 MiB, and ElasticMQ by itself up to 256 KiB.
AwsServer& server() {
    static AwsServer sqs("sqs", "started in", "rest-sqs.sqs-limits = relaxed");
    return sqs;
}

Way& way() {
    static Way one(server());
    return one;
}

class SqsFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config = sqs::make_config(way().url(), {}).value_or_throw();
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return std::make_unique<sqs::SqsSink>(config);
    }
    std::string new_topic() override {
        static int names = 0;
        const std::string name = "conformance-" + std::to_string(++names) + ".fifo";
        server().make(name);
        return name;
    }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        return server().arrived(topic, count);
    }
    [[nodiscard]] bool keeps_header_order() const override { return false; }
    // A message and its attributes have so much together.
    [[nodiscard]] std::size_t largest_value() const override { return 1'000'000; }
    // ElasticMQ itself forgets what it has acknowledged.
    void go_down() override { way().cut(); }
    void come_back() override { way().open(); }
};

const auto kSqs = testing::Values([] { return std::make_unique<SqsFixture>(); });
INSTANTIATE_TEST_SUITE_P(Sqs, SinkConformance, kSqs);
INSTANTIATE_TEST_SUITE_P(Sqs, SinkReadBack, kSqs);
INSTANTIATE_TEST_SUITE_P(Sqs, SinkOutage, kSqs);

}  // namespace
}  // namespace outbox::test
