#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <hiredis/hiredis.h>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "brokers/redis/config.h"
#include "brokers/redis/errors.h"
#include "net/socket.h"

// What both sides need of hiredis, which frames and reads the protocol. Included by those who use
// it themselves.
namespace outbox::redis {

struct FreeReply {
    void operator()(redisReply* reply) const { freeReplyObject(reply); }
};
using Reply = std::unique_ptr<redisReply, FreeReply>;

[[nodiscard]] std::string_view text_of(const redisReply* reply);
[[nodiscard]] std::span<redisReply* const> elements_of(const redisReply& reply);

/// Begins a command of `parts` arguments in `out` (RESP: the array's length).
void append_command(std::string& out, std::size_t parts);
void append_argument(std::string& out, std::string_view text);
void append_argument(std::string& out, std::int64_t number);

/// One connection, logged in. Used by one thread at a time.
class Connection {
  public:
    /// To one of the hosts, the one at `first` before the others; blocks up to the connect timeout
    /// for each. `is_wanted` looks at one that has logged in, and leaves it for the next with a
    /// fault.
    using Look = std::function<std::optional<Fault>(Connection&)>;
    static Result<std::unique_ptr<Connection>> open(const RedisConfig& config, std::size_t first,
                                                    const Look& is_wanted);

    [[nodiscard]] std::size_t host() const { return host_; }  ///< Its place in the configuration.
    /// For `exchange`; the text of whole commands.
    void write(std::string_view commands) { socket_->write(commands); }
    [[nodiscard]] std::size_t unsent() const { return socket_->unsent(); }
    /// Sends and receives what can be at once.
    std::optional<Fault> exchange();
    /// The next whole reply that has come; null: none yet, or `fault` says why there never will be.
    Reply next(std::optional<Fault>& fault);
    void wait(std::chrono::milliseconds most, int wake_fd = -1) const {
        socket_->wait(most, wake_fd);
    }
    /// One command and its reply; an error of the server is a fault. Nothing else may be under way.
    Reply ask(std::span<const std::string_view> command, std::chrono::milliseconds most,
              std::optional<Fault>& fault);
    Reply ask(std::initializer_list<std::string_view> command, std::chrono::milliseconds most,
              std::optional<Fault>& fault) {
        return ask(std::span(command.begin(), command.size()), most, fault);
    }

  private:
    struct FreeReader {
        void operator()(redisReader* reader) const { redisReaderFree(reader); }
    };
    Connection(std::unique_ptr<net::Socket> socket, std::size_t host);
    std::optional<Fault> log_in(const RedisConfig& config, const std::string& password);

    std::unique_ptr<net::Socket> socket_;
    std::unique_ptr<redisReader, FreeReader> reader_;
    std::size_t host_;
    std::string in_;
};

}  // namespace outbox::redis
