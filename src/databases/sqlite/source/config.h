#pragma once

#include <string>
#include <vector>

#include "core/defaults.h"
#include "core/table_layout.h"

namespace outbox::sqlite {

using outbox::AfterPublish;

/// Which outbox table is read, and how.
struct SqliteSourceConfig {
    /// sqlite:///absolute/path
    std::string url;
    std::string table = kEventTable;
    /// Only events of these tenants; empty: all.
    std::vector<std::string> tenants;
    /// The tenant of rows that name none.
    std::string default_tenant = kDefaultTenant;
    /// Else the relays of the table may have another.
    bool default_tenant_given = false;
    AfterPublish after_publish = AfterPublish::kDefault;
    /// For tables that were not made by `outbox migrate`.
    TableMapping mapping;
    /// How long a statement waits for another writer.
    int busy_timeout_ms = 5'000;
    /// Make the side tables that are missing.
    bool make_side_tables = true;
};

}  // namespace outbox::sqlite
