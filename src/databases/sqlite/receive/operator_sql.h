#pragma once

#include <memory>
#include <string>

#include "consumer/operator_sql.h"

namespace outbox::consumer {

/// Opens the SQLite file of a consumer, which must be there. `busy_timeout_s`: how long to wait for
/// another writer.
Result<std::unique_ptr<Sql>> open_sqlite_sql(const std::string& path, int busy_timeout_s);

}  // namespace outbox::consumer
