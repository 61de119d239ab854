#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/producer/migrate.h>

namespace outbox::producer {

/// How one database is migrated: what its folder exports as `const Migrator& NAME_migrator()`, and
/// the build collects. Errors are thrown.
struct Migrator {
    std::span<const std::string_view> schemes;  ///< Of its URLs.
    std::string_view urls;                      ///< As messages show them.
    std::vector<Migration> (*migrate)(const std::string& url, const MigrateOptions& options);
    /// Removes what `migrate` made of `options.side`. Gives the names.
    std::vector<std::string> (*uninstall)(const std::string& url, const MigrateOptions& options);
    std::string (*migration_sql)(const MigrateOptions& options);
    std::string (*uninstall_sql)(const MigrateOptions& options);
};

/// Those of the databases that the library was built with.
std::span<const Migrator* const> migrators();

}  // namespace outbox::producer
