#pragma once

#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// Appends what of the server may break a promise or fill a disk later: clock, durability, vacuum
/// and bloat of the table, transactions that hold events and dead rows, slots that nobody reads.
/// What the role may not see is left out. Changes nothing; blocks on the database.
Status look_at_health(Connection& connection, const Table& table,
                      std::vector<spi::Finding>& findings);

}  // namespace outbox::postgres
