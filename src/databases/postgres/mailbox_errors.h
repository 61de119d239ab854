#pragma once

#include <string_view>

#include <outbox/error.h>

namespace outbox::mailbox {

/// Our error for an SQLSTATE and the server's message. An empty state means that the connection
/// broke or was never made. Advice `retry_event` and `dead_letter` mean that a message of the batch
/// is at fault, anything else that the destination is.
[[nodiscard]] ErrorInfo postgres_error(std::string_view sqlstate, std::string_view message);

}  // namespace outbox::mailbox
