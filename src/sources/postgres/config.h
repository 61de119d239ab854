#pragma once

#include <string>
#include <vector>

#include "core/table_layout.h"

namespace outbox::postgres {

using outbox::AfterPublish;

struct PostgresSourceConfig {
    /// postgresql://user@host:port/database
    std::string url;
    /// Exact name, case kept: "table" (found by the search path) or "schema.table".
    std::string table = "outbox_events";
    /// Only events of these tenants; empty: all.
    std::vector<std::string> tenants;
    /// The tenant of rows that name none.
    std::string default_tenant = "default";
    AfterPublish after_publish = AfterPublish::kDefault;
    /// For tables that were not made by `outbox migrate`.
    TableMapping mapping;
    int connect_timeout_s = 5;
    /// Make the side tables that are missing.
    bool make_side_tables = true;
};

}  // namespace outbox::postgres
