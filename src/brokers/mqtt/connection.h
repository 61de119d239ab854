#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <outbox/result.h>

#include "brokers/mqtt/config.h"
#include "brokers/mqtt/errors.h"
#include "brokers/mqtt/protocol.h"
#include "net/socket.h"

namespace outbox::mqtt {

/// One connection, accepted by the broker. Nothing blocks but `wait`. Used by one thread at a time.
class Connection {
  public:
    /// To one of the hosts, the one at `first` before the others; blocks up to the connect timeout
    /// for each. Errors: those of the table.
    static Result<std::unique_ptr<Connection>> open(const MqttConfig& config, std::size_t first);
    ~Connection();
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    [[nodiscard]] std::size_t host() const { return host_; }  ///< Its place in the configuration.
    /// Messages that the broker takes without having answered one.
    [[nodiscard]] std::size_t receive_max() const { return receive_max_; }
    [[nodiscard]] std::size_t max_packet() const { return max_packet_; }  ///< Bytes; 0: no limit.

    /// For `exchange`.
    void publish(const Publish& message);
    void ping();
    [[nodiscard]] std::size_t unsent() const { return socket_->unsent(); }
    /// Bytes that have come.
    [[nodiscard]] std::uint64_t heard() const { return heard_; }

    /// Sends and receives what can be at once; says now and then that we are there.
    std::optional<Fault> exchange();
    /// The next answer that has come; nothing: there is none yet, or a fault ends the connection.
    std::optional<Packet> next(std::optional<Fault>& fault);
    void wait(std::chrono::milliseconds most) const { socket_->wait(most); }

  private:
    using Time = std::chrono::steady_clock::time_point;
    Connection(std::unique_ptr<net::Socket> socket, std::size_t host);
    std::optional<Fault> begin(const MqttConfig& config, const std::string& password);
    void write(const std::string& bytes);

    std::unique_ptr<net::Socket> socket_;
    std::size_t host_;
    Reader reader_;
    std::string line_;
    std::uint64_t heard_ = 0;
    std::size_t receive_max_ = 0;
    std::size_t max_packet_ = 0;
    std::chrono::seconds keep_alive_;
    Time spoke_at_;
};

}  // namespace outbox::mqtt
