// The sink suite against a real Pulsar.

#include "brokers/pulsar/sink.h"
#include "tests/brokers/pulsar/server.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

class PulsarFixture : public SinkFixture {
  public:
    explicit PulsarFixture(bool mixed_batches, int partitions)
        : mixed_batches_(mixed_batches), partitions_(partitions) {}

    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config = pulsar::make_config(shared_pulsar().url(), {}).value_or_throw();
        config.mixed_batches = mixed_batches_;
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return std::make_unique<pulsar::PulsarSink>(config);
    }
    std::string new_topic() override {
        static int names = 0;
        const std::string name = "conformance-" + std::to_string(++names);
        if (partitions_ > 0) shared_pulsar().make_partitions(name, partitions_);
        return name;
    }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        auto records = shared_pulsar().arrived(topic, count);
        const bool is_clear = std::all_of(records.begin(), records.end(),
                                          [](const Arrived& record) { return !!record.key; });
        // The Python client shows an empty key and none alike.
        return is_clear ? records : shared_pulsar().arrived_in_java(topic, count);
    }
    [[nodiscard]] bool keeps_header_order() const override { return false; }
    void go_down() override { shared_pulsar().stop(); }
    void come_back() override { shared_pulsar().start(); }

  private:
    bool mixed_batches_;
    int partitions_;
};

SinkFixtureFactory pulsar(bool mixed_batches, int partitions) {
    return [=] { return std::make_unique<PulsarFixture>(mixed_batches, partitions); };
}

const auto kBoth = testing::Values(pulsar(false, 0), pulsar(true, 3));
INSTANTIATE_TEST_SUITE_P(Pulsar, SinkConformance, kBoth);
INSTANTIATE_TEST_SUITE_P(Pulsar, SinkReadBack, kBoth);
INSTANTIATE_TEST_SUITE_P(Pulsar, SinkOutage, testing::Values(pulsar(true, 3)));

}  // namespace
}  // namespace outbox::test
