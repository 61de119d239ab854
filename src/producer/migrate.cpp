#include <outbox/producer/migrate.h>

#include "core/url.h"
#include "producer/migration_plan.h"
#include "producer/uninstall.h"

namespace outbox {
namespace {

// The path of a SQLite URL, or empty for PostgreSQL.
std::string sqlite_path(const std::string& url) {
    const Url parsed = parse_url(url).value_or_throw();
    if (parsed.scheme == "postgresql" || parsed.scheme == "postgres") return {};
    if (parsed.scheme != "sqlite" || parsed.path.empty() || !parsed.authority.empty()) {
        throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                    "'" + redact(url) +
                        "' names no database that migrate knows: write "
                        "postgresql://user@host/database or sqlite:///absolute/path");
    }
    return parsed.path;
}

}  // namespace

std::vector<Migration> migrate(const std::string& url, const MigrateOptions& options) {
    const std::string path = sqlite_path(url);
    return path.empty() ? producer::migrate_postgres(url, options)
                        : producer::migrate_sqlite(path, options);
}

std::vector<std::string> uninstall(const std::string& url, const MigrateOptions& options) {
    const std::string path = sqlite_path(url);
    return path.empty() ? producer::uninstall_postgres(url, options)
                        : producer::uninstall_sqlite(path, options);
}

std::string uninstall_sql(const std::string& url, const MigrateOptions& options) {
    return sqlite_path(url).empty() ? producer::postgres_uninstall_sql(options)
                                    : producer::sqlite_uninstall_sql(options);
}

std::string migration_sql(const std::string& url, const MigrateOptions& options) {
    return sqlite_path(url).empty() ? producer::postgres_migration_sql(options)
                                    : producer::sqlite_migration_sql(options);
}

}  // namespace outbox
