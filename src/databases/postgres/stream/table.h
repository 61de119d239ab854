#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/decode.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/stream/value_text.h"

namespace outbox::postgres {

/// What the decoder must know of an outbox table besides the messages; `describe_for_stream` makes
/// it.
struct StreamTable {
    std::uint32_t oid = 0;
    std::string schema;
    std::string name;
    std::string id_prefix;                              ///< As `Table::id_prefix`.
    std::array<std::string, kAvailableAt + 1> columns;  ///< By RowColumn; empty: none.
    std::vector<std::string> metadata_columns;          ///< As in the mapping.
    bool metadata_as_text = false;                      ///< Likewise.
    std::vector<std::string> tenants;                   ///< Empty: all.
    std::string default_tenant;                         ///< Of rows that name none.
    std::map<std::uint32_t, WireType> types;            ///< Of types not built in.

    /// Why this table cannot be streamed, each with what would change that; empty: it can be.
    std::vector<std::string> obstacles;
    /// The publication needs publish_via_partition_root (the table is partitioned).
    bool needs_partition_root = false;
    /// The publication needs publish_generated_columns = stored (PostgreSQL 18).
    bool needs_generated_columns = false;
};

/// What `RowDecoder` needs, from the catalog as it is now, with the reasons why the table cannot be
/// streamed (`StreamTable::obstacles`), for the fallback to polling and for `relay --check`. Looks
/// at the table and its columns alone; slots, rights, wal_level and the publication are not looked
/// at. Blocks on the database. Call it after the publication exists and before the slot is created
/// or right after: DDL behind it is followed by `RowDecoder`, or told as an error.
Result<StreamTable> describe_for_stream(Connection& connection, const Table& table,
                                        const PostgresSourceConfig& config);

}  // namespace outbox::postgres
