// The sink suite against a real RabbitMQ: a topic exchange, and queues of each kind.

#include "brokers/rabbitmq/sink.h"
#include "tests/brokers/rabbitmq/server.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

class RabbitmqFixture : public SinkFixture {
  public:
    explicit RabbitmqFixture(std::string kind) : kind_(std::move(kind)) {
        static const bool made = [] {
            shared_rabbitmq().make_exchange("events");
            return true;
        }();
        static_cast<void>(made);
    }
    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config = rabbitmq::make_config(shared_rabbitmq().url() + "?exchange=events", {})
                          .value_or_throw();
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return std::make_unique<rabbitmq::RabbitmqSink>(config);
    }
    std::string new_topic() override {
        static int topics = 0;
        std::string topic = "conformance-" + std::to_string(++topics) + "-" + kind_;
        shared_rabbitmq().make_queue(topic, "events", "", "{\"x-queue-type\":\"" + kind_ + "\"}");
        return topic;
    }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        return shared_rabbitmq().arrived(topic, count);
    }
    [[nodiscard]] bool keeps_header_order() const override { return kind_ != "stream"; }
    void go_down() override { shared_rabbitmq().kill(); }
    void come_back() override { shared_rabbitmq().start(); }

  private:
    std::string kind_;
};

SinkFixtureFactory queue(const std::string& kind) {
    return [kind] { return std::make_unique<RabbitmqFixture>(kind); };
}
std::string name_of(const testing::TestParamInfo<SinkFixtureFactory>& info) {
    return std::array{"Classic", "Quorum", "Stream"}.at(info.index);
}

const auto kKinds = testing::Values(queue("classic"), queue("quorum"), queue("stream"));
INSTANTIATE_TEST_SUITE_P(Rabbitmq, SinkConformance, kKinds, name_of);
INSTANTIATE_TEST_SUITE_P(Rabbitmq, SinkReadBack, kKinds, name_of);
// One node alone elects no leader for a quorum queue after a restart (RabbitMQ 3.10).
INSTANTIATE_TEST_SUITE_P(Rabbitmq, SinkOutage, testing::Values(queue("classic")));
INSTANTIATE_TEST_SUITE_P(RabbitmqStream, SinkOutage, testing::Values(queue("stream")));

}  // namespace
}  // namespace outbox::test
