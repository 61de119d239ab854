#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <outbox/result.h>

#include "brokers/pulsar/config.h"
#include "brokers/pulsar/errors.h"
#include "brokers/pulsar/protocol.h"
#include "net/socket.h"

namespace outbox::pulsar {

/// One connection, accepted by the broker or proxy. Once it stands nothing blocks but `look_up`.
/// Used by one thread at a time.
class Connection {
  public:
    using Time = std::chrono::steady_clock::time_point;

    /// Blocks up to the connect timeout. `proxy_to` is the "host:port" of the broker that the
    /// server is to lead to; empty: the server itself. Errors: those of the table.
    static Result<std::unique_ptr<Connection>> open(const PulsarConfig& config,
                                                    const net::Host& host,
                                                    const std::string& proxy_to);
    /// To one of the configured hosts, the one at `first` before the others; blocks for each.
    static Result<std::unique_ptr<Connection>> open_any(const PulsarConfig& config,
                                                        std::size_t first);

    [[nodiscard]] const net::Host& host() const { return host_; }
    /// "Pulsar at host:6650".
    [[nodiscard]] std::string name() const { return name_of_host(host_); }
    [[nodiscard]] std::size_t max_bytes() const { return max_bytes_; }  ///< Of a message.

    /// For `exchange`.
    void write(const std::string& bytes) { socket_->write(bytes); }
    void ping();
    [[nodiscard]] std::size_t unsent() const { return socket_->unsent(); }
    /// Bytes that have come.
    [[nodiscard]] std::uint64_t heard() const { return heard_; }

    /// Whether the file of the token holds another one by now.
    [[nodiscard]] bool has_old_token(const PulsarConfig& config) const;

    /// Sends and receives what can be at once.
    std::optional<Fault> exchange();
    /// The next thing that the broker said, whose views live until the next `exchange`; nothing:
    /// there is none yet, or a fault ends the connection.
    std::optional<Command> next(std::optional<Fault>& fault);
    /// Whether the broker says nothing while it owes an answer (`waiting`); asks it now and then.
    std::optional<Fault> look_for_silence(bool waiting, std::chrono::milliseconds most);
    /// Whether the broker finds a topic, or would make it; nothing is made. Blocks up to `most`.
    std::optional<Fault> look_up(const std::string& topic, std::chrono::milliseconds most);
    [[nodiscard]] const net::Socket& socket() const { return *socket_; }

  private:
    Connection(std::unique_ptr<net::Socket> socket, const net::Host& host);
    std::optional<Fault> begin(const PulsarConfig& config, const std::string& proxy_to);
    // What `line_` asks for, once it has come; nothing: there is a fault.
    std::optional<Command> ask(Command::Kind kind, std::chrono::milliseconds most,
                               std::optional<Fault>& fault);

    const std::unique_ptr<net::Socket> socket_;
    const net::Host host_;
    std::string token_;  // that it was opened with
    Reader reader_;
    std::string line_;
    std::size_t max_bytes_ = 0;
    std::uint64_t heard_ = 0;
    Time heard_at_;
    Time asked_at_;
};

}  // namespace outbox::pulsar
