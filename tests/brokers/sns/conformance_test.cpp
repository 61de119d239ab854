// The sink suite against moto, with FIFO topics.

#include "brokers/sns/sink.h"
#include "tests/brokers/sns/server.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

Way& way() {
    static Way one(shared_sns());
    return one;
}

class SnsFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config = sns::make_config(way().url(), {}).value_or_throw();
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return std::make_unique<sns::SnsSink>(config);
    }
    std::string new_topic() override {
        static int names = 0;
        const std::string name = "conformance-" + std::to_string(++names) + ".fifo";
        shared_sns().make(name);
        return name;
    }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        return shared_sns().arrived(topic, count);
    }
    [[nodiscard]] bool keeps_header_order() const override { return false; }
    // moto knows of no topic that takes more, as Amazon's do when they are told to.
    [[nodiscard]] std::size_t largest_value() const override { return 250'000; }
    // moto forgets everything when it ends.
    void go_down() override { way().cut(); }
    void come_back() override { way().open(); }
};

const auto kSns = testing::Values([] { return std::make_unique<SnsFixture>(); });
INSTANTIATE_TEST_SUITE_P(Sns, SinkConformance, kSns);
INSTANTIATE_TEST_SUITE_P(Sns, SinkReadBack, kSns);
INSTANTIATE_TEST_SUITE_P(Sns, SinkOutage, kSns);

}  // namespace
}  // namespace outbox::test
