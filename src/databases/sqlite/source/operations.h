#pragma once

#include <memory>
#include <string>

#include <outbox/result.h>

#include "core/operations.h"
#include "databases/sqlite/source/config.h"

namespace outbox::sqlite {

/// What operators ask about `table` (as `Source::table_name` says). Opens the file.
Result<std::unique_ptr<Operations>> open_operations(const SqliteSourceConfig& config,
                                                    const std::string& table);

}  // namespace outbox::sqlite
