#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::mailbox {

/// Our error for an SQLSTATE and the server's message. An empty state means that the connection
/// broke or was never made. Advice `retry_event` and `dead_letter` mean that a message of the batch
/// is at fault, anything else that the destination is.
[[nodiscard]] ErrorInfo postgres_error(std::string_view sqlstate, std::string_view message);

/// The same for an extended result code of SQLite.
[[nodiscard]] ErrorInfo sqlite_error(int code, std::string_view message);

/// The table is missing and could not be made: says so with the SQL, on one line.
[[nodiscard]] ErrorInfo no_table(const std::string& where, const ErrorInfo& cause,
                                 std::string_view sql);

/// True when the error is one message's own.
[[nodiscard]] constexpr bool blames_a_message(Advice advice) {
    return advice == Advice::kRetryEvent || advice == Advice::kDeadLetter;
}

}  // namespace outbox::mailbox
