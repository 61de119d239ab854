#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/error.h>

#include "net/socket.h"

namespace outbox::pulsar {

/// What the broker or the connection reports, in its own words.
struct Fault {
    /// What the table knows it by: a ServerError as "TopicNotFound", or what happened to the
    /// connection ("TLS").
    std::string name;
    std::string text;
};

/// Of a number of ServerError in the answer to a request.
[[nodiscard]] Fault fault_of_request(std::uint32_t error, std::string_view said);
/// The same in the answer to a message.
[[nodiscard]] Fault fault_of_send(std::uint32_t error, std::string_view said);
[[nodiscard]] Fault fault_of_socket(net::SocketFault fault);

/// A topic that is on its way to another broker: to be looked up again in a moment.
[[nodiscard]] bool is_moving(const Fault& fault);

/// The one table from such faults to ours. `what` says what failed ("Pulsar at host:6650").
[[nodiscard]] ErrorInfo to_error(const Fault& fault, std::string_view what);

}  // namespace outbox::pulsar
