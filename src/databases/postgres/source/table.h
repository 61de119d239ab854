#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/row_shape.h>

#include "core/table_layout.h"
#include "databases/postgres/connection.h"
#include "databases/postgres/source/config.h"

namespace outbox::postgres {

/// A column as the catalog has it.
struct Column {
    std::string type;      ///< typname of the base type: "uuid", "int8", "jsonb", ...
    std::string sql_type;  ///< The same with its schema where that is not the catalog.
    bool not_null = false;
    bool identity_always = false;
    std::int64_t sequence_cache = 0;  ///< Of the identity's sequence; 0: no identity.
    std::int64_t sequence_step = 0;
    std::int64_t sequence_min = 0;
    int max_length = 0;      ///< varchar(n): n; else 0.
    int time_digits = 6;     ///< Of a second, where it is a time.
    std::string by_default;  ///< SQL; or empty.
    int modifier = -1;       ///< What the type was declared with, as the catalog has it.
    std::string labels;      ///< Of an enum, with commas between.
    int place = 0;           ///< Among the columns.
};

/// How an outbox table is read and written: the configuration resolved against the catalog.
struct Table : TableLayout {
    std::string schema;
    std::string name;
    std::string sql;     ///< Quoted, with schema.
    std::string side;    ///< Before the name of a side table: their schema, quoted, and a dot.
    std::string source;  ///< The `source` column of the side tables: schema.table[/tenant,...]
    std::map<std::string, Column> catalog;

    /// Not empty: the role's search path, for sessions that touch the rows. Triggers of the owner
    /// and operators of types from outside the catalog need it.
    std::string path;

    bool partitioned = false;
    bool has_scheduled = false;  ///< outbox_scheduled stands beside it.
    bool has_side_tables = true;

    /// Positions come from an identity that proves when a hole is closed, and rows only go away:
    /// read by position. Else every read scans the unfinished rows.
    bool by_position = false;
    std::string position;  ///< Identity or other integer column that gives the order; or empty.
    bool uuid_id = false;
    bool integer_id = false;
    bool unique_id = false;  ///< By an index, or as far as one can be made.

    [[nodiscard]] std::string quoted(const std::string& field) const;  ///< t."column"
    [[nodiscard]] const Column* find(const std::string& field) const;
    /// Reads owner's attempts or metadata columns, so that rows have three more columns.
    [[nodiscard]] bool has_extras() const;
    [[nodiscard]] std::string id_prefix() const { return schema + "." + name + ":"; }
};

/// How its rows look, for formats.
[[nodiscard]] spi::RowShape shape_of(const Table& table);

/// Finds the table, resolves the mapping and says what is missing. Blocks on the database.
Result<Table> resolve_table(Connection& connection, const PostgresSourceConfig& config);

/// Number of columns that `select_list` gives.
inline constexpr std::size_t kBaseColumns = 15;
inline constexpr std::size_t kAllColumns = 18;

/// What a relay does with its rows: "SELECT, UPDATE, DELETE".
[[nodiscard]] std::string_view rights_to(const Table& table);
/// The same of all tables that it uses, as `hides_rows_sql` takes them.
[[nodiscard]] std::string all_rights_to(const Table& table);

/// What is said where an adopted table's ids are not unique; empty: they are.
[[nodiscard]] std::string repeated_ids(const Table& table);
/// What lets no two rows have one id. Not to be run in a transaction.
[[nodiscard]] std::string unique_ids_sql(const Table& table);

/// The SQL of a table's rows, aliased t. Rows of other tenants come with a null id.
[[nodiscard]] std::string select_list(const Table& table, const PostgresSourceConfig& config);
/// Whose a row is, and the condition of rows that are this relay's to send.
[[nodiscard]] std::string tenant_name(const Table& table, const std::string& default_tenant);
[[nodiscard]] std::string tenant_condition(const Table& table, const PostgresSourceConfig& config);

/// A column of a time as timestamptz; NULL for infinite times and those far behind all others.
[[nodiscard]] std::string finite_time(const Table& table, const std::string& field);

/// By what `outbox_route_done` names a row: `raw_id`, a text expression, or a digest of one that
/// no index takes.
[[nodiscard]] std::string done_id(const Table& table, const std::string& raw_id);

/// Conditions that together select every unfinished row and exclude each other. Status values are
/// literals: the owner's partial index is used only then.
[[nodiscard]] std::vector<std::string> unfinished_conditions(const Table& table);
/// The same in one condition.
[[nodiscard]] std::string any_unfinished(const Table& table);
[[nodiscard]] std::string order_by(const Table& table);
/// That a route of a source (both SQL) has not finished the row by outbox_route_done.
[[nodiscard]] std::string not_done(const Table& table, const std::string& source,
                                   const std::string& route);
/// The same for statements over many rows. The server puts what is done into a hash table, once for
/// each statement, as long as that fits its work_mem; else it is slow beyond measure.
[[nodiscard]] std::string not_among_done(const Table& table, const std::string& source,
                                         const std::string& route);
/// That a row lies above what route $2 of source $1 has settled; true where rows do not stay.
[[nodiscard]] std::string above_settled(const Table& table);

}  // namespace outbox::postgres
