#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <outbox/consumer/queue.h>

#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/errors.h"
#include "consumer/queue/inlet.h"

namespace outbox::rabbitmq {

/// A consumer of one queue, over one connection and channel.
class RabbitmqInlet final : public consumer::Inlet {
  public:
    RabbitmqInlet(RabbitmqConfig config, const Queue::Limits& limits);
    ~RabbitmqInlet() override;

    Status connect() override;
    void disconnect() override;
    Status fetch(consumer::Amount room, std::chrono::milliseconds most, int wake_fd,
                 std::vector<consumer::Arrival>& out) override;
    Status acknowledge(std::span<const std::uint64_t> numbers) override;
    [[nodiscard]] std::string queue() const override;
    Result<std::optional<std::int64_t>> waiting() override;

  private:
    struct Parts;
    [[nodiscard]] ErrorInfo error_of(const Fault& fault) const;
    Status keep_alive(std::chrono::milliseconds most, int wake_fd);
    std::optional<Fault> begin();

    const RabbitmqConfig config_;
    const std::size_t prefetch_;
    std::size_t next_host_ = 0;
    std::unique_ptr<Parts> parts_;  // none: not connected
};

}  // namespace outbox::rabbitmq
