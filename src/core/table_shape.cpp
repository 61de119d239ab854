#include "core/table_shape.h"

#include <algorithm>
#include <array>

namespace outbox {
namespace {

constexpr std::array<TableShape, 6> kShapes{{
    {"pending-published", "status PENDING/PUBLISHED/FAILED with retry_count and published_at"},
    {"new-sent", "status NEW/PUBLISHING/SENT/FAILED/DEAD with retry_after; event_type or topic"},
    {"processed-at", "processed_at is null until the event is sent"},
    {"delete-when-sent", "id, event_type, payload, created_at; rows are removed when sent"},
    {"camel-case", "quoted CamelCase columns with a boolean \"Processed\""},
    {"debezium", "id, aggregatetype, aggregateid, type, payload; rows are removed when sent"},
}};

class Columns {
  public:
    explicit Columns(std::span<const std::string> names) : names_(names) {}
    [[nodiscard]] bool have(std::string_view name) const {
        return std::find(names_.begin(), names_.end(), name) != names_.end();
    }
    template <typename... Names>
    [[nodiscard]] bool have_all(Names... names) const {
        return (have(names) && ...);
    }

  private:
    std::span<const std::string> names_;
};

}  // namespace

std::span<const TableShape> table_shapes() {
    return kShapes;
}

bool is_native_table(std::span<const std::string> names) {
    const Columns columns(names);
    return columns.have_all("position", "id", "aggregate_type", "aggregate_id", "event_type",
                            "payload", "headers", "tenant_id", "occurred_at", "topic", "key");
}

std::optional<TableShape> recognise_table_shape(std::span<const std::string> names) {
    const Columns columns(names);
    if (columns.have_all("Id", "EventType", "Payload", "CreatedAt", "Processed")) return kShapes[4];
    if (columns.have_all("id", "aggregatetype", "aggregateid", "type", "payload")) {
        return kShapes[5];
    }
    if (!columns.have_all("id", "payload") || is_native_table(names)) return {};
    // Where no column says what happened, the topic does.
    if (columns.have_all("status", "retry_after") &&
        (columns.have("event_type") || columns.have("topic"))) {
        return kShapes[1];
    }
    if (!columns.have("event_type")) return {};
    if (columns.have_all("status", "published_at")) return kShapes[0];
    if (columns.have("status")) return {};
    if (columns.have("processed_at")) return kShapes[2];
    if (columns.have("created_at") && !columns.have("published_at")) return kShapes[3];
    return {};
}

std::string misplaced_index(const std::string& what) {
    return what + ", where the outbox's own belongs: give it another name, or drop it";
}

}  // namespace outbox
