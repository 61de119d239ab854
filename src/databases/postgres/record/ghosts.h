#pragma once

#include <vector>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "databases/postgres/identity.h"
#include "databases/postgres/source/config.h"
#include "databases/postgres/source/table.h"

namespace outbox::postgres {

/// Events that were published and that the server, which changed since, lost with the end of the
/// old one's log; none where it did not change. Tells of a change once. Blocks on the database.
///
/// Exact for events removed in the last part of the log, as far as `Published` remembers, where the
/// relay may replicate; without that right the place where the logs part is not known, and only
/// what lies behind the new server's log is found.
Result<std::vector<spi::Ghost>> find_ghosts(const PostgresSourceConfig& config, const Table& table,
                                            Identity& identity);

}  // namespace outbox::postgres
