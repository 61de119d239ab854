#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/table_mapping.h"

namespace outbox::sqlite {

/// What becomes of a row that every route has published.
enum class AfterPublish : std::uint8_t {
    kDefault,  ///< Delete.
    kDelete,
    kMark,  ///< Refused: the table has no column to mark.
};

struct SqliteSourceConfig {
    /// sqlite:///absolute/path
    std::string url;
    std::string table = "outbox_events";
    /// Only events of these tenants; empty: all.
    std::vector<std::string> tenants;
    AfterPublish after_publish = AfterPublish::kDefault;
    TableMapping mapping;  ///< Refused unless empty: only tables of `outbox migrate` are read.
    /// How long a statement waits for another writer.
    int busy_timeout_ms = 5'000;
    /// Make the side tables that are missing.
    bool make_side_tables = true;
};

}  // namespace outbox::sqlite
