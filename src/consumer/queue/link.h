#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <outbox/consumer/message_format.h>

#include "consumer/queue/inlet.h"
#include "consumer/workers/delivery.h"

namespace outbox::consumer {

/// Wakes who waits for it.
class WakeUp {
  public:
    /// Throws `Error` when the process has no file descriptor left.
    WakeUp();
    ~WakeUp();
    WakeUp(const WakeUp&) = delete;
    WakeUp& operator=(const WakeUp&) = delete;

    void ring() noexcept;
    void clear() noexcept;
    [[nodiscard]] int fd() const { return fd_; }

  private:
    int fd_;
};

/// One connection of an inlet: what was taken over it can be told over no other. Guarded by the
/// hub's mutex.
class Link final : public Origin {
  public:
    /// `wake_up` outlives it.
    explicit Link(WakeUp& wake_up) : wake_up_(wake_up) {}

    void take() { ++unfinished_; }
    void finish(std::uint64_t number) override;
    /// Those that are finished and were not told.
    [[nodiscard]] std::vector<std::uint64_t> to_tell() { return std::exchange(finished_, {}); }
    [[nodiscard]] std::size_t unfinished() const { return unfinished_; }

  private:
    WakeUp& wake_up_;
    std::vector<std::uint64_t> finished_;
    std::size_t unfinished_ = 0;
};

/// A message of a queue on its way.
class QueueDelivery final : public Delivery {
  public:
    QueueDelivery(Arrival arrival, MessageFormat format, bool is_suspect);

    [[nodiscard]] spi::EventView event() const override;
    [[nodiscard]] std::vector<std::string> other_ids() const override {
        return consumer::other_ids(came_id_, name_);
    }
    [[nodiscard]] bool has_own_name() const override { return name_ == arrival_.id; }
    [[nodiscard]] std::optional<ErrorInfo> fault() const override;
    [[nodiscard]] bool is_suspect() const override { return is_suspect_; }
    [[nodiscard]] std::string lane() const override;
    [[nodiscard]] std::size_t bytes() const override;

  private:
    struct Read {
        Arrival arrival;
        std::string fault;
        std::string came_id;
    };
    static Read read(Arrival arrival, MessageFormat format);
    QueueDelivery(Read read, bool is_suspect);

    const Arrival arrival_;  // as its format has it
    const std::string fault_;
    const std::string came_id_;  // before that
    const std::string name_;
    const bool is_suspect_;
};

}  // namespace outbox::consumer
