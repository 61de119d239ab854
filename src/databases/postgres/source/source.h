#pragma once

#include <memory>

#include <outbox/result.h>
#include <outbox/spi/source.h>

#include "databases/postgres/source/config.h"

namespace outbox::postgres {

/// Connects, finds the table and resolves its mapping, and creates the side tables that are
/// missing. Blocks up to the connect timeout and a few statements. Errors name what is wrong and
/// the remedy, never the password.
Result<std::unique_ptr<spi::Source>> make_postgres_source(const PostgresSourceConfig& config);

}  // namespace outbox::postgres
