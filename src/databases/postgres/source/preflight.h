#pragma once

#include <cstdint>
#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// From where on something is worth a warning.
struct HealthLimits {
    std::int64_t transaction_s = 300;                      ///< Open for as long.
    std::int64_t kept_log_bytes = std::int64_t{1} << 30U;  ///< For a slot that nobody reads.
};

/// Whether the server's clock and ours are together, as it was read between two looks at ours.
/// All are milliseconds since the Unix epoch. Pure.
spi::Finding judge_clock(std::int64_t before_ms, std::int64_t theirs_ms, std::int64_t after_ms);

/// Appends what of the server may break a promise or fill a disk later: clock, durability, vacuum
/// and bloat of the table, transactions that hold events and dead rows, slots that nobody reads.
/// What the role may not see is left out. Changes nothing; blocks on the database.
Status look_at_health(Connection& connection, const Table& table,
                      std::vector<spi::Finding>& findings, const HealthLimits& limits = {});

}  // namespace outbox::postgres
