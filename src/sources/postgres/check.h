#pragma once

#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "sources/postgres/client.h"
#include "sources/postgres/config.h"
#include "sources/postgres/table.h"

namespace outbox::postgres {

struct SideTables {
    std::string missing;  ///< Their names in one text; empty: all are there.
    bool none = false;    ///< Not one is there.
};
Result<SideTables> look_for_side_tables(Connection& connection);

/// Creates the side tables that are `missing`, if the role may; else the error prints their SQL.
Status make_side_tables(Connection& connection, const std::string& missing);

/// `kNoRights` with the GRANTs that mend it, where a right is missing.
Status require_rights(Connection& connection, const Table& table);

/// What a relay meets at this table: shape, order, index, rights, pooler.
Result<std::vector<spi::Finding>> check_table(Connection& connection, const Table& table,
                                              const PostgresSourceConfig& config);

}  // namespace outbox::postgres
