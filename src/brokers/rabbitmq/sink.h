#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/worker.h"

namespace outbox::rabbitmq {

inline const spi::SinkCapabilities kCapabilities{"rabbitmq",
                                                 spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/false,
                                                 /*durable=*/true,
                                                 /*across_topics=*/true,
                                                 {"cloudEvents_", /*content_type=*/{}}};

/// Publishes to an exchange with publisher confirms. README.md says how. Not thread-safe.
class RabbitmqSink final : public spi::Sink {
  public:
    explicit RabbitmqSink(RabbitmqConfig config);

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;
    void report(spi::SinkReport& out) override { worker_.report(out); }

  private:
    const RabbitmqConfig config_;
    std::vector<Item> batch_;  // not handed over yet
    std::size_t records_ = 0;  // under way
    std::size_t bytes_ = 0;
    Outcomes outcomes_;
    Worker worker_;
};

}  // namespace outbox::rabbitmq
