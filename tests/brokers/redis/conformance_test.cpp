// The sink suite against a real Redis.

#include "brokers/redis/sink.h"
#include "tests/brokers/redis/server.h"
#include "tests/conformance/sink_suite.h"

namespace outbox::test {
namespace {

class RedisFixture : public SinkFixture {
  public:
    std::unique_ptr<spi::Sink> open(bool small) override {
        auto config = redis::make_config(shared_redis().url(), {{"producer", new_name()}}, 10'000)
                          .value_or_throw();
        config.connect_timeout = std::chrono::seconds(60);
        if (small) config.max_bytes = 100'000;
        return std::make_unique<redis::RedisSink>(config);
    }
    std::string new_topic() override { return new_name(); }
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count) override {
        return shared_redis().arrived(topic, count);
    }
    // A field of an entry bears the name.
    void spoil(Letter& letter) override { letter.headers.emplace_back("key", "x"); }
    void go_down() override { shared_redis().kill(); }
    void come_back() override { shared_redis().start(); }

  private:
    static std::string new_name() {
        static int names = 0;
        return "conformance-" + std::to_string(++names);
    }
};

const auto kRedis = testing::Values([] { return std::make_unique<RedisFixture>(); });
INSTANTIATE_TEST_SUITE_P(Redis, SinkConformance, kRedis);
INSTANTIATE_TEST_SUITE_P(Redis, SinkReadBack, kRedis);
INSTANTIATE_TEST_SUITE_P(Redis, SinkRefusal, kRedis);
INSTANTIATE_TEST_SUITE_P(Redis, SinkOutage, kRedis);

}  // namespace
}  // namespace outbox::test
