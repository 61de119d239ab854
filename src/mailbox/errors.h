#pragma once

#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::mailbox {

/// An error with the backend's message, without secrets, and what to do.
[[nodiscard]] ErrorInfo destination_error(ErrorCode code, Advice advice, std::string backend_code,
                                          std::string_view message, std::string_view remedy);

/// The table is missing and could not be made: says so with the SQL, on one line.
[[nodiscard]] ErrorInfo no_table(const std::string& where, const ErrorInfo& cause,
                                 std::string_view sql);

/// True when the error is one message's own.
[[nodiscard]] constexpr bool blames_a_message(Advice advice) {
    return advice == Advice::kRetryEvent || advice == Advice::kDeadLetter;
}

/// True when the server says that it ended the statement: fewer rows may do. One that says nothing
/// is down.
[[nodiscard]] inline bool took_too_long(const ErrorInfo& error) {
    return error.code == ErrorCode::kSinkTimeout && !error.backend_code.empty();
}

}  // namespace outbox::mailbox
