#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/error.h>

#include "net/socket.h"

namespace outbox::mqtt {

/// What the broker or the connection reports, in its own words.
struct Fault {
    /// A reason code of MQTT 5 as "0x87", or what happened to the connection ("TLS").
    std::string name;
    std::string text;
};

/// `said` is the broker's reason string, which it need not give.
[[nodiscard]] Fault fault_of_code(std::uint8_t code, std::string_view said);
[[nodiscard]] Fault fault_of_socket(net::SocketFault fault);

/// The one table from such faults to ours. `what` says what failed ("MQTT broker at host:1883").
[[nodiscard]] ErrorInfo to_error(const Fault& fault, std::string_view what);

}  // namespace outbox::mqtt
