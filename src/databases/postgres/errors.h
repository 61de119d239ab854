#pragma once

#include <cstdint>
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

/// Of a statement over several rows: whether it may succeed without some of them.
enum class Concerns : std::uint8_t {
    kRows,     ///< Somebody holds those (SQLSTATE 55P03), or a value or a constraint is in the way.
    kPerhaps,  ///< A function of the owner's that runs for each row may have raised it.
    kAll,      ///< The server, the connection.
};
[[nodiscard]] Concerns what_concerns(const ErrorInfo& error);
/// It does or may.
[[nodiscard]] inline bool concerns_rows(const ErrorInfo& error) {
    return what_concerns(error) != Concerns::kAll;
}

/// The server's words alone, without our remedy, which is for errors of whole statements.
[[nodiscard]] std::string words_of(const ErrorInfo& error);

}  // namespace outbox::postgres
