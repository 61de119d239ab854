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

#include "brokers/nats/config.h"
#include "brokers/nats/errors.h"
#include "brokers/nats/login.h"
#include "brokers/nats/protocol.h"
#include "net/socket.h"

namespace outbox::nats {

/// One connection, logged in, with an inbox that answers come to. Once it stands nothing blocks but
/// `wait` and `ask`. Used by one thread at a time.
class Connection {
  public:
    /// To one of the hosts, the one at `first` before the others; blocks up to the connect timeout
    /// for each. `as` is the name that the server lists. Errors: those of the table.
    static Result<std::unique_ptr<Connection>> open(const NatsConfig& config, std::size_t first,
                                                    std::string_view as);

    [[nodiscard]] std::size_t host() const { return host_; }  ///< Its place in the configuration.
    [[nodiscard]] const ServerInfo& server() const { return server_; }

    /// What is sent with this reply subject is answered to the inbox.
    [[nodiscard]] std::string_view reply_subject(std::uint64_t number);
    /// The number of such a subject, of either kind.
    [[nodiscard]] std::optional<std::uint64_t> number_of(std::string_view reply_subject) const;

    /// For `exchange`. Headers begin with `kHeadersBegin` and end with an empty line, or are empty.
    void publish(std::string_view subject, std::string_view reply, std::string_view headers,
                 std::string_view payload);
    /// The server is to answer, whatever it does otherwise: `heard` grows then.
    void ping() { socket_->write("PING\r\n"); }
    /// What is sent with such a reply subject may be answered by many messages, until
    /// `stop_series`; answers that are on their way still come.
    [[nodiscard]] std::string_view series_subject(std::uint64_t number);
    void stop_series();
    [[nodiscard]] std::size_t unsent() const { return socket_->unsent(); }
    /// Bytes that have come.
    [[nodiscard]] std::uint64_t heard() const { return heard_; }

    /// Sends and receives what can be at once.
    std::optional<Fault> exchange();
    /// The next message of the inbox that has come, whose views live until the next call; nothing:
    /// there is none yet, or the server complains. A missing permission (`Fault::subject`) is no
    /// end; any other fault is.
    std::optional<Frame> next(std::optional<Fault>& fault);
    void wait(std::chrono::milliseconds most, int wake_fd = -1) const {
        socket_->wait(most, wake_fd);
    }

    /// A request and its answer. What else comes meanwhile stays for `next`. Blocks up to `most`.
    std::optional<std::string> ask(std::string_view subject, std::string_view payload,
                                   std::chrono::milliseconds most, std::optional<Fault>& fault);
    /// Until the server has taken all that was sent. Blocks up to `most`.
    std::optional<Fault> flush(std::chrono::milliseconds most);

  private:
    struct Kept {
        std::string subject;
        std::string reply;
        std::string headers;
        std::string payload;
    };

    Connection(std::unique_ptr<net::Socket> socket, std::size_t host);
    std::optional<Fault> begin(const NatsConfig& config, std::string_view as);
    std::optional<Fault> greet(const NatsConfig& config);
    std::optional<Frame> read(std::optional<Fault>& fault);

    std::unique_ptr<net::Socket> socket_;
    std::size_t host_;
    Reader reader_;
    ServerInfo server_;
    std::string inbox_;   // "_INBOX.xyz."
    std::string series_;  // "_INBOX.xyz.s.", once it is subscribed to
    std::string reply_;
    std::string line_;
    std::uint64_t heard_ = 0;
    std::uint64_t pongs_ = 0;
    std::uint64_t questions_ = 0;
    std::deque<Kept> kept_;  // came while something was asked
    Kept shown_;             // the one that `next` has returned
};

}  // namespace outbox::nats
