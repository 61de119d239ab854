#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <outbox/producer/migrate.h>

namespace outbox::producer {

inline constexpr std::string_view kStillNeededState = "OB004";

/// The statements between the lock and COMMIT. Raises `kStillNeededState` while events wait or a
/// relay runs; the message is a list of what.
std::string postgres_uninstall_body(std::string_view schema, std::string_view quoted_schema,
                                    MigrationSide side);

/// The error of an uninstallation that would lose something. `what`: "3 events, 1 dead letter".
[[noreturn]] void refuse_uninstall(const std::string& where, const std::string& what);

}  // namespace outbox::producer
