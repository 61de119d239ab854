#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/table_mapping.h"

namespace outbox::postgres {

/// What becomes of a row that every route has published.
enum class AfterPublish : std::uint8_t {
    kDefault,  ///< Mark where the table has a column for it, else delete.
    kDelete,
    kMark,
};

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
};

}  // namespace outbox::postgres
