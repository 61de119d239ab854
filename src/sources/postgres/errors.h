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

/// Of a statement over several rows: whether it may succeed without some of them, as somebody holds
/// those (SQLSTATE 55P03), or as a value, a constraint or a trigger of the owner's is in the way.
[[nodiscard]] bool concerns_rows(const ErrorInfo& error);

}  // namespace outbox::postgres
