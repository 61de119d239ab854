#pragma once

#include <memory>
#include <string>

#include <outbox/result.h>

#include "core/operations.h"
#include "databases/postgres/source/config.h"

namespace outbox::postgres {

/// What operators ask about `table` (schema.table, as `Source::table_name` says). Connects.
Result<std::unique_ptr<Operations>> open_operations(const PostgresSourceConfig& config,
                                                    const std::string& table);

}  // namespace outbox::postgres
