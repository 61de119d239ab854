#pragma once

#include <amqp.h>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <outbox/result.h>

#include "brokers/rabbitmq/config.h"
#include "brokers/rabbitmq/errors.h"

// What both sides need of librabbitmq. Included by those who use it themselves.
namespace outbox::rabbitmq {

constexpr amqp_channel_t kChannel = 1;  // the first, and a consumer's only one

struct Destroy {
    void operator()(amqp_connection_state_t connection) const {
        amqp_destroy_connection(connection);
    }
};
using Connection = std::unique_ptr<amqp_connection_state_t_, Destroy>;

[[nodiscard]] amqp_bytes_t bytes_of(std::string_view text);
[[nodiscard]] std::string text_of(amqp_bytes_t bytes);
[[nodiscard]] amqp_table_entry_t text_entry(std::string_view name, std::string_view value);
[[nodiscard]] amqp_table_entry_t flag_entry(std::string_view name);
[[nodiscard]] timeval timeval_of(std::chrono::milliseconds time);

[[nodiscard]] Fault fault_of_status(int status, Doing doing);
/// Of methods that end channel or connection.
[[nodiscard]] std::optional<Fault> fault_of_method(const amqp_method_t& method, Doing doing);
[[nodiscard]] std::optional<Fault> fault_of(const amqp_rpc_reply_t& reply, Doing doing);

/// A connection with its channel open; owns it.
struct Opened {
    Connection connection;
    std::size_t host = 0;  ///< Its place in the configuration.
};

/// Connects to one of the hosts, the one at `first` before the others, logs in as `name`, and opens
/// the channel; blocks up to the connect timeout for each. Errors: those of the table.
Result<Opened> open_connection(const RabbitmqConfig& config, std::size_t first,
                               std::string_view name);

/// Waits until there is something to read, or bytes can be sent if `to_send`, or `wake_fd` can be
/// read, or the time is over. True: bytes can be sent.
bool wait(amqp_connection_state_t connection, std::chrono::milliseconds most, bool to_send,
          int wake_fd);

/// Ends it in order, where that cannot block for long: a broker logs a warning of a client that
/// just goes.
void say_goodbye(amqp_connection_state_t connection);

}  // namespace outbox::rabbitmq
