#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <outbox/producer/migrate.h>

namespace outbox::producer {

inline constexpr std::string_view kStillNeededState = "OB004";

/// Removes what `migrate` made of `options.side`. Gives the names.
std::vector<std::string> uninstall_postgres(const std::string& url, const MigrateOptions& options);
std::vector<std::string> uninstall_sqlite(const std::string& path, const MigrateOptions& options);

/// The statements between the lock and COMMIT. Raises `kStillNeededState` while events wait or a
/// relay runs; the message is a list of what.
std::string postgres_uninstall_body(std::string_view schema, std::string_view quoted_schema,
                                    MigrationSide side);
std::string postgres_uninstall_sql(const MigrateOptions& options);
std::string sqlite_uninstall_sql(const MigrateOptions& options);

/// The error of an uninstallation that would lose something. `what`: "3 events, 1 dead letter".
[[noreturn]] void refuse_uninstall(const std::string& where, const std::string& what);

}  // namespace outbox::producer
