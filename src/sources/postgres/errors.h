#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::postgres {

/// What an error message is about, for the remedy.
struct ErrorContext {
    std::string user;
    std::string database;
    std::string host;  ///< "host:port" or the folder of the socket.
};

/// Our error for an SQLSTATE and the server's message. An empty state means that the connection
/// broke or was never made.
[[nodiscard]] ErrorInfo map_error(std::string_view sqlstate, std::string_view message,
                                  const ErrorContext& context);

}  // namespace outbox::postgres
