#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/event.h>
#include <outbox/producer/emit.h>

namespace outbox::producer {

enum class FieldKind : std::uint8_t { kText, kPayload, kTime };

/// A column of the row that an event becomes. Columns not named take their defaults.
struct EventField {
    std::string_view column;
    FieldKind kind = FieldKind::kText;
    std::string text;               ///< kText. The payload stays in the event.
    std::int64_t microseconds = 0;  ///< kTime: since the Unix epoch.
};

/// The row that an event becomes. The payload stays in the event, which outlives this.
struct EventFields {
    std::string id;
    std::string_view table;
    std::vector<EventField> fields;
};

/// Checks the event and lays out its row. Throws `Error` as `insert_command` says.
[[nodiscard]] EventFields event_fields(const Event& event, const EmitOptions& options);

/// "INSERT INTO table (columns) ", for the VALUES or SELECT that follows.
[[nodiscard]] std::string insert_clause(const EventFields& row);

/// What order is kept by: the key, else the aggregate id.
[[nodiscard]] const std::string& lane_key(const Event& event);

}  // namespace outbox::producer
