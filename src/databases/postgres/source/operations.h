#pragma once

#include <memory>
#include <string>

#include <outbox/result.h>

#include "core/operations.h"
#include "databases/postgres/source/config.h"

namespace outbox::postgres {

/// Who a row of outbox_audit is by.
inline constexpr const char* kAuditedBy =
    "CASE WHEN os_user = '' OR os_user = role THEN role ELSE os_user || ' as ' || role END";

/// What operators ask about `table` (schema.table, as `Source::table_name` says). Connects.
Result<std::unique_ptr<Operations>> open_operations(const PostgresSourceConfig& config,
                                                    const std::string& table);

}  // namespace outbox::postgres
