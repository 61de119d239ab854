#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

namespace outbox {

/// An SQL file that the build put into the library.
struct EmbeddedSql {
    std::string_view path;    ///< "producer/postgres/0001_producer.sql"
    std::string_view sha256;  ///< Of `text`, in hexadecimal.
    std::string_view text;    ///< {{names}} are still to be filled in.
};

/// All of them, sorted by path.
[[nodiscard]] std::span<const EmbeddedSql> embedded_sql();

/// The text of one file; empty where there is none. "producer/postgres/side_tables.sql" holds what
/// the relay keeps beside an adopted table, "consumer/postgres/mailbox.sql" the table that the
/// mailbox sink needs; their statements say IF NOT EXISTS. "producer/postgres/publication.sql"
/// makes what the relay's stream needs, if it may.
[[nodiscard]] std::string_view embedded_sql_text(std::string_view path);

/// Replaces every {{name}}.
struct TemplateValue {
    std::string_view name;
    std::string value;
};
[[nodiscard]] std::string fill_template(std::string_view text,
                                        std::span<const TemplateValue> values);

/// The highest number of a migration in a folder: "producer/postgres".
[[nodiscard]] int newest_migration(std::string_view folder);

/// The error where the producer's tables have a migration that this build does not know.
/// `recorded`: the highest that they have. Code `kMigrationRefused`, advice `kStop`.
Status check_producer_version(std::string_view folder, std::int64_t recorded);

}  // namespace outbox
