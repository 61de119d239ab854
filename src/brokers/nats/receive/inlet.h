#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <outbox/consumer/queue.h>

#include "brokers/nats/answers.h"
#include "brokers/nats/config.h"
#include "brokers/nats/connection.h"
#include "consumer/queue/inlet.h"

namespace outbox::nats {

/// A member of a pull consumer. It asks for messages, a request at a time, and the server sends
/// them to its inbox. What a member was given belongs to it for the consumer's `ack_wait`, so this
/// one says now and then that it is still at work, and gives back what it has not begun.
class NatsInlet final : public consumer::Inlet {
  public:
    explicit NatsInlet(NatsConfig config);
    ~NatsInlet() override;

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

    std::optional<ConsumerInfo> look(std::chrono::milliseconds most, std::optional<Fault>& fault);
    std::optional<ConsumerInfo> look_at_ours(std::chrono::milliseconds most,
                                             std::optional<Fault>& fault);
    Fault made_anew();
    std::optional<Fault> join();
    bool settle_what_broke(const std::string& created);
    void give_back();
    ErrorInfo broken(const Fault& fault);
    void forget_old_words();
    void request(consumer::Amount room);
    std::optional<Fault> listen();
    std::optional<Fault> take(const Frame& frame);
    void say_that_we_work();
    [[nodiscard]] ErrorInfo error_of(const Fault& fault) const;

    const NatsConfig config_;
    std::size_t host_ = 0;
    std::unique_ptr<Connection> connection_;  // none: not connected
    bool reading_ = false;                    // a request is under way
    std::uint64_t request_ = 0;               // its number
    Time asked_at_;                           // when it began
    std::size_t asked_for_ = 0;               // messages
    std::size_t came_ = 0;                    // of them
    std::size_t most_ = 0;                    // messages that a request may ask for
    std::size_t largest_ = 0;                 // bytes of a message of the last request
    Time begin_at_;                           // not before: others' messages come first
    std::chrono::nanoseconds work_every_{0};
    Time work_at_;                         // when it is to be said again that we work
    std::deque<consumer::Arrival> taken_;  // not fetched yet
    std::uint64_t next_number_ = 1;
    std::map<std::uint64_t, std::string> replies_;     // not acknowledged: where to say it
    std::deque<std::pair<Time, std::string>> recent_;  // acknowledged: said again after a break
    std::vector<std::string> lost_;  // of a connection that broke: to be given back on the next
    std::string created_;            // of the consumer that these three are of; empty: of none
    Time looked_at_;                 // at it
    std::uint64_t last_given_ = 0;   // the number of the last delivery on this connection
};

}  // namespace outbox::nats
