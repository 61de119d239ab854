#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/consumer/queue.h>

#include "brokers/redis/config.h"
#include "brokers/redis/connection.h"
#include "consumer/queue/inlet.h"

namespace outbox::redis {

/// A member of a group, with a new name for each pair of connections: an entry that is pending for
/// a name that no connection has any more belongs to nobody. One connection reads, and may wait in
/// the server; the other does what cannot wait.
class RedisInlet final : public consumer::Inlet {
  public:
    RedisInlet(RedisConfig config, const Queue::Limits& limits);
    ~RedisInlet() override;

    Status connect() override;
    void disconnect() override;
    Status fetch(consumer::Amount room, std::chrono::milliseconds most, int wake_fd,
                 std::vector<consumer::Arrival>& out) override;
    Status acknowledge(std::span<const std::uint64_t> numbers) override;
    [[nodiscard]] std::string queue() const override;
    Result<std::optional<std::int64_t>> waiting() override;
    [[nodiscard]] std::size_t taken() const override { return taken_.size(); }

  private:
    using Time = std::chrono::steady_clock::time_point;

    std::optional<Fault> join();
    std::optional<Fault> take_over();
    std::optional<Fault> claim_from(const std::string& member);
    void request(consumer::Amount room);
    std::optional<Fault> listen();
    void take(const redisReply& entry, std::uint32_t deliveries);
    Reply ask(std::span<const std::string_view> command, std::optional<Fault>& fault);
    Reply ask(std::initializer_list<std::string_view> command, std::optional<Fault>& fault) {
        return ask(std::span(command.begin(), command.size()), fault);
    }
    [[nodiscard]] ErrorInfo error_of(const Fault& fault) const;

    const RedisConfig config_;
    std::size_t host_ = 0;
    std::string member_;
    std::unique_ptr<Connection> reader_;  // none: not connected
    std::unique_ptr<Connection> asker_;
    bool reading_ = false;  // a request is under way
    Time asked_at_;         // when it began
    std::size_t asked_for_ = 0;
    std::size_t most_ = 0;                 // entries that a request may ask for
    std::size_t largest_ = 0;              // bytes of an entry of the last answer
    Time next_look_;                       // for members that have gone
    std::deque<consumer::Arrival> taken_;  // not fetched yet
    std::uint64_t next_number_ = 1;
    std::map<std::uint64_t, std::string> entries_;  // not acknowledged: their ids
};

}  // namespace outbox::redis
