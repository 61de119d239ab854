#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

#include "net/socket.h"

namespace outbox::redis {

/// What the server or the connection reports, in its own words.
struct Fault {
    /// The first word of an error of the server ("OOM"), or what happened to the connection
    /// ("RESOLVE", "TLS", ...).
    std::string name;
    std::string text;
};

/// An error as the server writes it: "OOM command not allowed ...", where a script failed "ERR
/// Error running script ... -OOM command ...".
[[nodiscard]] Fault fault_of_reply(std::string_view reply);
[[nodiscard]] Fault fault_of_socket(net::SocketFault fault);

/// The one table from such faults to ours. `what` says what failed ("Redis at host:6379").
[[nodiscard]] ErrorInfo to_error(const Fault& fault, std::string_view what);

/// The server takes no writes, and another of the URL's may.
[[nodiscard]] bool is_replicas(const Fault& fault);

}  // namespace outbox::redis
