#pragma once

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"
#include "databases/postgres/stream/row_decoder.h"

namespace outbox::postgres {

/// What `RowDecoder` needs, from the catalog as it is now, with the reasons why the table cannot be
/// streamed (`StreamTable::obstacles`), for the fallback to polling and for `relay --check`. Looks
/// at the table and its columns alone; slots, rights, wal_level and the publication are not looked
/// at. Blocks on the database. Call it after the publication exists and before the slot is created
/// or right after: DDL behind it is followed by `RowDecoder`, or told as an error.
Result<StreamTable> describe_for_stream(Connection& connection, const Table& table,
                                        const PostgresSourceConfig& config);

}  // namespace outbox::postgres
