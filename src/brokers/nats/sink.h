#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/nats/config.h"
#include "brokers/nats/errors.h"
#include "brokers/nats/protocol.h"

namespace outbox::nats {

class Connection;

inline const spi::SinkCapabilities kCapabilities{"nats", spi::Guarantee::kAtLeastOnce,
                                                 /*fail_stop_order=*/false};

/// Publishes to streams of JetStream and takes their acknowledgements. README.md says how. `poll`
/// blocks up to the connect timeout of each host where there is no connection. Not thread-safe.
class NatsSink final : public spi::Sink {
  public:
    explicit NatsSink(NatsConfig config);
    ~NatsSink() override;

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override;
    Status check() override;
    Result<std::string> destination() override;
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;

  private:
    using Time = std::chrono::steady_clock::time_point;
    struct Item {
        spi::Record record;
        std::size_t bytes = 0;  // as they count against the limits
    };
    struct Sent {
        Item item;
        Time at;
        bool settled = false;
    };

    void connect(Time now, spi::Completions& out);
    void send(Time now, spi::Completions& out);
    bool refuse(const Item& item, spi::Completions& out);
    void receive(Time now, spi::Completions& out);
    void settle(const Frame& answer, spi::Completions& out);
    void settle(Sent& sent, const std::optional<Fault>& fault, spi::Completions& out);
    void drop_settled();
    void refuse_subject(const Fault& fault, spi::Completions& out);
    void look_for_silence(Time now, spi::Completions& out);
    void lose(const Fault& fault, Time now, spi::Completions& out);
    void fail_queue(const ErrorInfo& error, spi::Completions& out);
    void finish(const Item& item);
    [[nodiscard]] std::string where() const;

    const NatsConfig config_;
    std::unique_ptr<Connection> connection_;
    std::deque<Item> queue_;  // not sent yet
    std::deque<Sent> sent_;   // the first is the one with the number `first_`
    std::uint64_t first_ = 1;
    std::size_t records_ = 0;  // in both, without an outcome
    std::size_t bytes_ = 0;
    std::string headers_;      // of a message
    std::uint64_t heard_ = 0;  // bytes of the connection, and when they grew last
    Time heard_at_;
    Time asked_at_;                  // when it was last asked for a sign of life
    std::optional<ErrorInfo> down_;  // why there is no connection
    Time next_try_;
    std::uint32_t tries_ = 0;
    std::size_t host_ = 0;
};

}  // namespace outbox::nats
