#pragma once

#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// The tables beside the event table, as the catalog has them.
struct SideTables {
    std::string schema;   ///< Where they are or belong: the first of the role's path with a lease.
    std::string missing;  ///< Their names in one text; empty: all are there.
    bool none = false;    ///< Not one is there.
    std::string indexes;  ///< Names of those indexes that are missing and not needed.
};
/// `table_schema`: the schema of the event table, which is looked at last.
Result<SideTables> look_for_side_tables(Connection& connection, const std::string& table_schema);

/// The refusal where relays of an adopted `table` have their side tables in another schema than
/// `tables`: one leads there now, or these are yet to be made. Each would send every event.
Status require_one_place(Connection& connection, const Table& table, const SideTables& tables);

/// Creates the side tables that are `missing`, if the role may; else the error prints their SQL.
Status make_side_tables(Connection& connection, const SideTables& tables,
                        const PostgresSourceConfig& config);

/// `kNoRights` naming the owner where a side table in `schema` belongs to a role that is not
/// trusted; with a native `table` also what belongs to that.
Status require_owners(Connection& connection, const std::string& schema,
                      const PostgresSourceConfig& config, const Table* table = nullptr);

/// `kMigrationRefused` where the tables of a native `table` are newer than this build.
Status require_known_version(Connection& connection, const Table& table);

/// `kNoRights` with the GRANTs that mend it, where a right is missing.
Status require_rights(Connection& connection, const Table& table);

/// What a relay meets at this table: shape, order, index, rights, pooler.
Result<std::vector<spi::Finding>> check_table(Connection& connection, const Table& table,
                                              const PostgresSourceConfig& config);

}  // namespace outbox::postgres
