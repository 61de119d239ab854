#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::sqlite {

/// Whose statement failed. What a result code is does not depend on it; what to do about it does.
enum class Role : std::uint8_t {
    kRelay,    ///< The relay's, where it reads from: what a person must mend stops it.
    kRunning,  ///< The same once it runs: a file that cannot be opened is away, and no wrong path.
    kMailbox,  ///< The relay's, where it writes to: a destination, which may come right by itself.
    kReceive,  ///< A consumer's.
    kCaller,   ///< One in the transaction of whoever receives, which is run again as a whole.
    kEmit,     ///< One in the transaction of whoever writes an event; a migration's.
};

/// Our error for an (extended) result code of SQLite and its message. `where`: the file's path, or
/// what was being done ("writing an event"); empty where the message says it. Advice retry_event
/// (with kConflict: run the transaction again) and dead_letter: the event or message is at fault.
[[nodiscard]] ErrorInfo sqlite_error(Role role, int code, std::string_view message,
                                     const std::string& where);

/// Of the relay's statement over one row of the owner's: a constraint, a type or a trigger of the
/// owner's is in the way of that row alone. The statement has changed nothing.
[[nodiscard]] bool refuses_row(const ErrorInfo& error);

}  // namespace outbox::sqlite
