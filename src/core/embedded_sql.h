#pragma once

#include <span>
#include <string_view>

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

}  // namespace outbox
