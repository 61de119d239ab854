#pragma once

#include <map>
#include <string>
#include <vector>

namespace outbox {

/// How an outbox table that a team brings along maps to events: `[source.table]` in outbox.toml.
/// What is left empty is recognised from the table's columns.
struct TableMapping {
    /// The name of a known shape; "" recognises it by the columns.
    std::string preset;

    /// Event field or state -> column, names exactly as in the catalog. Fields: position, id,
    /// aggregate_type, aggregate_id, event_type, payload, headers, tenant_id, schema_id,
    /// schema_version, occurred_at, topic, key, routing_key. States: status, retry_count,
    /// retry_after, error_message, published_at, processed_at, processed.
    std::map<std::string, std::string> columns;

    /// Columns that become record headers under their own names.
    std::vector<std::string> metadata_columns;
    /// Their values are texts as the database prints them, for formats that know the types.
    bool metadata_as_text = false;

    /// Values of the status column; they are written into SQL as literals.
    std::vector<std::string> pending_values;  ///< Unsent; more than one name is possible.
    std::vector<std::string> sending_values;  ///< Left by a former worker; count as unsent.
    std::string sent_value;
    std::string failed_value;
    std::string dead_value;

    [[nodiscard]] bool empty() const {
        return preset.empty() && columns.empty() && metadata_columns.empty() && !metadata_as_text &&
               pending_values.empty() && sending_values.empty() && sent_value.empty() &&
               failed_value.empty() && dead_value.empty();
    }
};

}  // namespace outbox
