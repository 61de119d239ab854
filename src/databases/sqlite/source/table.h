#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "core/table_layout.h"
#include "databases/sqlite/client.h"
#include "databases/sqlite/source/config.h"

namespace outbox::sqlite {

/// The outbox table as reader, recorder and lease need it.
struct Table : TableLayout {
    std::string path;  ///< Of the database file.
    std::string name;
    std::string sql;     ///< The name, quoted.
    std::string source;  ///< The `source` column of the side tables: name[/tenant,...]
    std::vector<std::string> tenants;
    std::string default_tenant;
    int busy_timeout_ms = 0;
    bool has_side_tables = true;

    std::map<std::string, std::string> catalog;  ///< Column -> declared type, in lower case.
    /// What rows are ordered by: the mapped position or the rowid. One writer at a time makes
    /// either the order of commits.
    std::string order;
    /// Tells two rows of one position apart: the rowid, in a table without one the id. Empty where
    /// `order` does.
    std::string tie;
    bool integer_id = false;     ///< The id is the rowid itself.
    bool autoincrement = false;  ///< No id is given twice, unless the table begins anew.

    [[nodiscard]] std::string quoted(const std::string& field) const;  ///< t."column"
    [[nodiscard]] std::string id_prefix() const { return name + ":"; }
    /// Whose a row is that has `tenant`, '' for NULL: as `tenant_or` says in SQL.
    [[nodiscard]] std::string_view tenant_of(std::string_view tenant) const {
        return tenant.empty() ? std::string_view(default_tenant) : tenant;
    }
    [[nodiscard]] bool wants(std::string_view tenant) const {
        return tenants.empty() ||
               std::find(tenants.begin(), tenants.end(), tenant_of(tenant)) != tenants.end();
    }
};

/// The file that a sqlite:///path URL names.
Result<std::string> database_path(const std::string& url);

/// Path, name, source and tenants, as the configuration gives them.
Result<Table> name_table(const SqliteSourceConfig& config);

/// Fills in what the database knows of it; says what is missing or cannot work.
Status resolve_table(Database& database, const SqliteSourceConfig& config, Table& table);

/// `kMigrationRefused` where the tables of a native `table` are newer than this build.
Status require_known_version(Database& database, const Table& table);

/// Of the table's rows, aliased t: conditions that together select every unfinished row and
/// exclude each other. Status values are literals: the owner's partial index is used only then.
[[nodiscard]] std::vector<std::string> unfinished_conditions(const Table& table);
[[nodiscard]] std::string any_unfinished(const Table& table);
[[nodiscard]] std::string tenant_condition(const Table& table);

/// A time column, whatever its form, as microseconds since the Unix epoch.
[[nodiscard]] std::string microseconds_of(const std::string& column);
/// `value` (microseconds) in the form in which the row has its own time: text or number.
[[nodiscard]] std::string time_for(const Table& table, const std::string& field,
                                   const std::string& value);

/// Whether the row's id gives no event id but only the digest by which its dead letter is known.
[[nodiscard]] bool is_too_long(const Table& table, std::string_view raw_id);

/// An id as the table has it, with its type in front: the name of a row. The rowid is none, as
/// VACUUM may change it.
[[nodiscard]] std::string raw_id_of(const Statement& row, int type_column, int id_column);
void bind_raw_id(Statement& statement, std::string_view raw_id);
[[nodiscard]] std::string event_id_of(const Table& table, std::string_view raw_id);
/// The ids under which the event of a row may be known, long ones aside, as SQL.
[[nodiscard]] std::array<std::string, 2> event_ids(const Table& table);

/// How outbox_route_done names a row, of a raw id and as SQL; and the condition that a route of
/// `sources` (both SQL) has not finished the row, nor were it all of them ('').
[[nodiscard]] std::string done_name(std::string_view raw_id);
[[nodiscard]] std::string done_name_sql(const Table& table);
[[nodiscard]] std::string not_done(const Table& table, const std::string& sources,
                                   const std::string& route);

}  // namespace outbox::sqlite
