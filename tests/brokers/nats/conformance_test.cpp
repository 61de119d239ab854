// The sink suite against a real NATS.

#include "brokers/nats/sink.h"
#include "tests/brokers/nats/server.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

class NatsFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config = nats::make_config(shared_nats().url(), {}).value_or_throw();
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return std::make_unique<nats::NatsSink>(config);
    }
    std::string new_topic() override {
        static int names = 0;
        const std::string name = "conformance-" + std::to_string(++names);
        shared_nats().make_stream(name, name);
        return name;
    }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        return shared_nats().arrived(topic, count);
    }
    [[nodiscard]] bool takes_any_header_name() const override { return false; }
    void go_down() override { shared_nats().kill(); }
    void come_back() override { shared_nats().start(); }
};

const auto kNats = testing::Values([] { return std::make_unique<NatsFixture>(); });
INSTANTIATE_TEST_SUITE_P(Nats, SinkConformance, kNats);
INSTANTIATE_TEST_SUITE_P(Nats, SinkReadBack, kNats);
INSTANTIATE_TEST_SUITE_P(Nats, SinkOutage, kNats);

}  // namespace
}  // namespace outbox::test
