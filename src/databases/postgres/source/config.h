#pragma once

#include <string>
#include <vector>

#include <outbox/limits.h>

#include "core/defaults.h"
#include "core/table_layout.h"

namespace outbox::postgres {

using outbox::AfterPublish;

/// Where events come from.
enum class Mode : std::uint8_t {
    kAuto,     ///< Polling; from three routes on the stream, where the server allows it.
    kStream,   ///< The stream; a source that cannot have it is refused.
    kPolling,  ///< The table alone.
};

/// Which outbox table is read, and how.
struct PostgresSourceConfig {
    /// postgresql://user@host:port/database
    std::string url;
    /// Exact name, case kept: "table" (found by the search path) or "schema.table".
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
    int connect_timeout_s = kConnectTimeoutS;
    /// Roles that may own our tables, views and functions, besides the current one, superusers and
    /// the owners of database and schema.
    std::vector<std::string> owners;
    /// Make the side tables that are missing.
    bool make_side_tables = true;
    Mode mode = Mode::kAuto;
    /// Bytes of its log that the server may keep for the stream before it is left. A server keeps
    /// what it writes in half a minute, whoever reads its log.
    std::int64_t max_kept_log = std::int64_t{4} << 30;
};

}  // namespace outbox::postgres
