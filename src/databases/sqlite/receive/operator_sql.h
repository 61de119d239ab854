#pragma once

#include <memory>
#include <string>

#include "consumer/env.h"
#include "consumer/operator_sql.h"

namespace outbox::consumer {

/// Opens the SQLite file of a consumer, which must be there. `busy_timeout_s`: how long to wait for
/// another writer. `clock`: what is old is so by it; it outlives what is given.
Result<std::unique_ptr<Sql>> open_sqlite_sql(const std::string& path, int busy_timeout_s,
                                             const core::Clock& clock = machine_clock());

}  // namespace outbox::consumer
