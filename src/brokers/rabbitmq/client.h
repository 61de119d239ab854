#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/sink.h>

#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/errors.h"

namespace outbox::rabbitmq {

/// A message that the broker sends back, as far as it tells one event's from another's.
struct Returned {
    std::string id = {};
    std::string routing_key = {};
    std::string type = {};
    std::vector<std::pair<std::string, std::string>> headers = {};  ///< Those that are texts.
    std::string body = {};

    /// Whether it is what `Client::publish` sends of the record.
    [[nodiscard]] bool is_of(const spi::Record& record) const;
};

/// What the broker says, in its order.
struct Word {
    enum class Kind : std::uint8_t {
        kAck,        ///< `tag`, with `multiple` also all below it.
        kNack,       ///< The same; it did not take them.
        kReturned,   ///< `returned` goes to no queue; its ack follows. `fault` says why.
        kBlocked,    ///< It takes no more messages; `fault` says why.
        kUnblocked,  ///< It does again.
        kClosed,     ///< The channel is closed, until `open_channel`. `fault` says why.
        kEnded       ///< The connection is closed; nothing else follows. `fault` says why.
    };
    Kind kind = Kind::kAck;
    std::uint16_t channel = 0;  ///< Which it is about; 0: the connection.
    std::uint64_t tag = 0;
    bool multiple = false;
    Returned returned = {};
    Fault fault = {};
};

/// One connection with a few channels in confirm mode: the n-th message published on a channel has
/// the tag n there. The first is open from the start. Not thread-safe, but for `cut`.
class Client {
  public:
    static constexpr std::uint16_t kMostChannels = 3;

    /// Connects to one of the hosts, the one at `first` before the others; blocks up to the connect
    /// timeout for each. Makes the exchange where it should. Errors: those of the table.
    static Result<std::unique_ptr<Client>> open(const RabbitmqConfig& config, std::size_t first);
    ~Client();
    Client(const Client&) = delete;
    Client& operator=(const Client&) = delete;

    /// Asks whether the exchange is there; closes the channel where it is not. Blocks.
    Status look_for_exchange();
    /// What the cluster calls itself.
    [[nodiscard]] std::string cluster_name() const;
    [[nodiscard]] std::size_t host() const { return host_; }  ///< Its place in the configuration.
    [[nodiscard]] std::size_t max_frame_bytes() const;

    /// Channels that the broker allows, at most `kMostChannels`.
    [[nodiscard]] std::uint16_t channels() const;
    /// Opens a channel for the first time, or after `kClosed`, without waiting for the broker's
    /// word. Blocks as `publish` does. A fault ends the connection.
    std::optional<Fault> open_channel(std::uint16_t channel);

    /// Sends a message on a channel that is open. Blocks while the broker takes no bytes, until
    /// `cut`. A fault ends the connection.
    std::optional<Fault> publish(const spi::Record& record, std::uint16_t channel);
    /// Sends what follows in as few packets as it can, until it is called with false.
    void gather(bool on);

    /// Appends what has come in, without waiting, and sends heartbeats that are due.
    void hear(std::vector<Word>& out);
    /// Waits until there is something to hear, or bytes can be sent if `to_send`, or `wake_fd` can
    /// be read, or the time is over. True: bytes can be sent.
    bool wait(std::chrono::milliseconds most, bool to_send, int wake_fd);

    /// Ends the connection, so that whatever blocks on it fails. Thread-safe.
    void cut() const noexcept;

  private:
    struct Parts;
    Client(const RabbitmqConfig& config, std::unique_ptr<Parts> parts, std::size_t host);

    [[nodiscard]] std::string where() const;

    const RabbitmqConfig& config_;
    std::unique_ptr<Parts> parts_;
    std::size_t host_;
};

}  // namespace outbox::rabbitmq
