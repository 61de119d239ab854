// The sink suite against a real mosquitto.

#include "brokers/mqtt/sink.h"
#include "tests/brokers/mqtt/server.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

class MqttFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config = mqtt::make_config(shared_mqtt().url(), {}).value_or_throw();
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return std::make_unique<mqtt::MqttSink>(config);
    }
    std::string new_topic() override {
        static int names = 0;
        const std::string name = "conformance/" + std::to_string(++names);
        shared_mqtt().subscribe(name);
        return name;
    }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        return shared_mqtt().arrived(topic, count);
    }
    // One that is killed forgets what it has acknowledged.
    void go_down() override { shared_mqtt().stop(); }
    void come_back() override { shared_mqtt().start(); }
};

const auto kMqtt = testing::Values([] { return std::make_unique<MqttFixture>(); });
INSTANTIATE_TEST_SUITE_P(Mqtt, SinkConformance, kMqtt);
INSTANTIATE_TEST_SUITE_P(Mqtt, SinkReadBack, kMqtt);
INSTANTIATE_TEST_SUITE_P(Mqtt, SinkOutage, kMqtt);

}  // namespace
}  // namespace outbox::test
