#include "core/embedded_sql.h"

#include <algorithm>
#include <charconv>
#include <string>

namespace outbox {

std::string_view embedded_sql_text(std::string_view path) {
    for (const EmbeddedSql& file : embedded_sql()) {
        if (file.path == path) return file.text;
    }
    return {};
}

int newest_migration(std::string_view folder) {
    int newest = 0;
    for (const EmbeddedSql& file : embedded_sql()) {
        if (!file.path.starts_with(folder) || file.path.size() <= folder.size() + 1) continue;
        const std::string_view name = file.path.substr(folder.size() + 1);
        int number = 0;
        std::from_chars(name.data(), name.data() + name.size(), number);
        newest = std::max(newest, number);
    }
    return newest;
}

Status check_producer_version(std::string_view folder, std::int64_t recorded) {
    const int known = newest_migration(folder);
    if (recorded <= known) return {};
    return {ErrorCode::kMigrationRefused, Advice::kStop,
            "the outbox's tables are newer than this build: they have migration " +
                std::to_string(recorded) + ", this build knows up to " + std::to_string(known) +
                "; start a newer build of the relay"};
}

}  // namespace outbox
