#pragma once

namespace outbox::core {

/// Says what does not hold on stderr and ends the process.
[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               const char* message);

}  // namespace outbox::core

/// Ends the process with file, line and `message` unless `condition` holds, in every build. For
/// what only a fault of this program can break: with its own books wrong the relay could record an
/// event that it has not sent. Nothing is lost by ending: what the ledger does not have is sent
/// again by the relay that takes over. What a backend or a user can cause is an `ErrorInfo`, not
/// this.
#define OUTBOX_CHECK(condition, message)                                         \
    do {                                                                         \
        if (!(condition)) [[unlikely]] {                                         \
            outbox::core::check_failed(__FILE__, __LINE__, #condition, message); \
        }                                                                        \
    } while (false)
