#include "core/embedded_sql.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <outbox/error.h>

namespace outbox {

std::string_view embedded_sql_text(std::string_view path) {
    for (const EmbeddedSql& file : embedded_sql()) {
        if (file.path == path) return file.text;
    }
    return {};
}

std::string fill_template(std::string_view text, std::span<const TemplateValue> values) {
    std::string filled;
    std::size_t pos = 0;
    while (true) {
        const auto open = text.find("{{", pos);
        const auto close = open == std::string_view::npos ? open : text.find("}}", open);
        if (close == std::string_view::npos) return filled.append(text.substr(pos));
        filled.append(text.substr(pos, open - pos));
        const std::string_view name = text.substr(open + 2, close - open - 2);
        const auto match = std::find_if(values.begin(), values.end(),
                                        [&](const auto& value) { return value.name == name; });
        if (match == values.end()) {
            throw Error(ErrorCode::kInternal, Advice::kStop,
                        "an SQL file uses the unknown name " + std::string(name));
        }
        filled += match->value;
        pos = close + 2;
    }
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
