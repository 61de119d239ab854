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

/// The text of a file for PostgreSQL with `values`, `{{schema}}` and, for what stands in E'...',
/// `{{schema_text}}` filled in. `schema` is quoted where it needs that, and may have any
/// characters. To be run behind `kCatalogPath`.
[[nodiscard]] std::string fill_postgres(std::string_view text, std::string_view schema,
                                        std::vector<TemplateValue> values = {});

/// With a path that names a schema, an operator or function of somebody else there whose arguments
/// fit exactly is chosen before the server's own that needs a cast, wherever it stands in the path.
inline constexpr std::string_view kCatalogPath = "SET LOCAL search_path = pg_catalog, pg_temp;\n";

/// The highest number of a migration in a folder: "producer/postgres".
[[nodiscard]] int newest_migration(std::string_view folder);

/// The error where the producer's tables have a migration that this build does not know.
/// `recorded`: the highest that they have. Code `kMigrationRefused`, advice `kStop`.
Status check_producer_version(std::string_view folder, std::int64_t recorded);

}  // namespace outbox
