#pragma once

#include <string_view>

#include <outbox/error.h>

namespace outbox::mailbox {

/// Our error for an extended result code of SQLite and its message. Advice `retry_event` and
/// `dead_letter` mean that a message of the batch is at fault, anything else that the destination
/// is.
[[nodiscard]] ErrorInfo sqlite_error(int code, std::string_view message);

}  // namespace outbox::mailbox
