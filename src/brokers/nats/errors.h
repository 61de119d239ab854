#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

#include "net/socket.h"

namespace outbox::nats {

/// What the server or the connection reports, in its own words.
struct Fault {
    /// What the table knows it by: the number of JetStream's own error ("10077"), a word for an
    /// error of the protocol ("PERMISSIONS"), or what happened to the connection ("TLS").
    std::string name;
    std::string text;
    std::string subject = {};  ///< That a permission is missing for; empty: the fault is another.
};

/// An error of the protocol: "Permissions Violation for Publish to "orders.new"".
[[nodiscard]] Fault fault_of_error(std::string_view text);
[[nodiscard]] Fault fault_of_socket(net::SocketFault fault);

/// The one table from such faults to ours. `what` says what failed ("NATS at host:4222").
[[nodiscard]] ErrorInfo to_error(const Fault& fault, std::string_view what);

}  // namespace outbox::nats
