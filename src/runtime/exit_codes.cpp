#include "runtime/exit_codes.h"

#include <array>

namespace outbox::runtime {
namespace {

constexpr std::array kExitCodes{
    ExitCodeSpec{kExitOk, "done; a relay was asked to stop and handed over"},
    ExitCodeSpec{kExitFailed,
                 "the command ran and the answer is no (verify found something, `relay --check` "
                 "found a problem, nothing matched), or an operation failed"},
    ExitCodeSpec{kExitUsage,
                 "wrong command, option, value or configuration file; the address given with "
                 "--admin is in use"},
    ExitCodeSpec{kExitUnreachable, "the database cannot be reached, or refuses the login"},
    ExitCodeSpec{kExitDatabase,
                 "the database is not as needed: no such database or table, missing columns or "
                 "rights, a newer or changed migration"},
    ExitCodeSpec{kExitStopped, "the relay stopped because going on would be unsafe or pointless"},
    ExitCodeSpec{kExitNotInTime,
                 "`wait`: not applied before --timeout; events that are on their way and those of "
                 "a transaction that was rolled back look alike"},
    ExitCodeSpec{kExitDead,
                 "`wait`: an event is a dead letter of the consumer, or was discarded there"},
    ExitCodeSpec{kExitForgotten,
                 "`wait`: an event is from before the floor of the consumer's inbox, which may "
                 "have forgotten it (a token that is none is 2)"},
};

}  // namespace

std::span<const ExitCodeSpec> exit_code_table() {
    return kExitCodes;
}

ExitCode exit_code_of(ErrorCode code) {
    switch (code) {
        case ErrorCode::kConfigInvalid:
        case ErrorCode::kGuaranteeRefused:
        case ErrorCode::kUnsupported:
            return kExitUsage;
        case ErrorCode::kConnectFailed:
        case ErrorCode::kAuthFailed:
        case ErrorCode::kConnectionLost:
            return kExitUnreachable;
        case ErrorCode::kNoSuchDatabase:
        case ErrorCode::kNoSuchTable:
        case ErrorCode::kTableShape:
        case ErrorCode::kNoRights:
        case ErrorCode::kMigrationRefused:
            return kExitDatabase;
        case ErrorCode::kSinkClosed:
        case ErrorCode::kLeaseLost:
        case ErrorCode::kServerChanged:
        case ErrorCode::kWrongServer:
        case ErrorCode::kDestinationChanged:
        case ErrorCode::kRouteGone:
        case ErrorCode::kTableReset:
            return kExitStopped;
        default:
            return kExitFailed;
    }
}

}  // namespace outbox::runtime
