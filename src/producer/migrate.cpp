#include <algorithm>

#include <outbox/producer/migrate.h>

#include "core/url.h"
#include "producer/migrator.h"

namespace outbox {
namespace {

const producer::Migrator& migrator_of(const std::string& url) {
    const Url parsed = parse_url(url).value_or_throw();
    std::string known;
    for (const producer::Migrator* one : producer::migrators()) {
        if (std::ranges::find(one->schemes, parsed.scheme) != one->schemes.end()) return *one;
        known += (known.empty() ? "" : " or ") + std::string(one->urls);
    }
    throw Error(ErrorCode::kConfigInvalid, Advice::kStop,
                "'" + redact(url) + "' names no database that migrate knows: write " + known);
}

}  // namespace

std::vector<Migration> migrate(const std::string& url, const MigrateOptions& options) {
    return migrator_of(url).migrate(url, options);
}

std::vector<std::string> uninstall(const std::string& url, const MigrateOptions& options) {
    return migrator_of(url).uninstall(url, options);
}

std::string uninstall_sql(const std::string& url, const MigrateOptions& options) {
    return migrator_of(url).uninstall_sql(options);
}

std::string migration_sql(const std::string& url, const MigrateOptions& options) {
    return migrator_of(url).migration_sql(options);
}

}  // namespace outbox
