#pragma once

#include <span>
#include <string_view>

#include <outbox/error.h>

namespace outbox::runtime {

/// What the process ends with; stable. The reference page is made from `exit_code_table`.
enum ExitCode : int {
    kExitOk = 0,
    kExitFailed = 1,       ///< The command ran and the answer is no, or an operation failed.
    kExitUsage = 2,        ///< Wrong option, value or file; the admin port is in use.
    kExitUnreachable = 3,  ///< The database cannot be reached or refuses the login.
    kExitDatabase = 4,     ///< The database is not as needed: table, columns, rights, version.
    kExitStopped = 5,      ///< The relay stopped because going on would be unsafe.
    kExitNotInTime = 6,    ///< `wait`, `tenant drain`: not done before the time was over.
    kExitDead = 7,         ///< `wait`: an event is a dead letter of the consumer, or was discarded.
    kExitForgotten = 8,    ///< `wait`: the consumer's inbox may have forgotten an event.
};

struct ExitCodeSpec {
    ExitCode code;
    std::string_view meaning;
};

[[nodiscard]] std::span<const ExitCodeSpec> exit_code_table();

/// The exit code of a command that ends with this error.
[[nodiscard]] ExitCode exit_code_of(ErrorCode code);

}  // namespace outbox::runtime
