#include "core/table_layout.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/ascii.h"
#include "core/table_shape.h"

namespace outbox {
namespace {

struct FieldNames {
    const char* field;
    std::array<const char*, 4> columns;  // the first that the table has is taken
};

constexpr std::array kFieldNames{
    FieldNames{"position", {"position"}},
    FieldNames{"id", {"id", "Id"}},
    FieldNames{"aggregate_type", {"aggregate_type", "aggregatetype", "AggregateType"}},
    FieldNames{"aggregate_id", {"aggregate_id", "aggregateid", "AggregateId"}},
    FieldNames{"event_type", {"event_type", "EventType", "type"}},
    FieldNames{"payload", {"payload", "Payload"}},
    FieldNames{"headers", {"headers", "Headers"}},
    FieldNames{"tenant_id", {"tenant_id", "TenantId"}},
    FieldNames{"schema_id", {"schema_id"}},
    FieldNames{"schema_version", {"schema_version"}},
    FieldNames{"occurred_at", {"occurred_at", "created_at", "CreatedAt", "timestamp"}},
    FieldNames{"topic", {"topic", "Topic"}},
    FieldNames{"key", {"key", "Key"}},
    FieldNames{"routing_key", {"routing_key"}},
    FieldNames{"status", {"status"}},
    FieldNames{"retry_count", {"retry_count"}},
    FieldNames{"retry_after", {"retry_after"}},
    FieldNames{"error_message", {"error_message"}},
    FieldNames{"published_at", {"published_at"}},
    FieldNames{"processed_at", {"processed_at", "ProcessedAt"}},
    FieldNames{"processed", {"Processed"}},
};

constexpr std::array kCreatedAtNames{"created_at", "CreatedAt", "occurred_at", "timestamp"};

ErrorInfo config_error(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(message)};
}

ErrorInfo shape_error(std::string message) {
    return {ErrorCode::kTableShape, Advice::kStop, {}, std::move(message)};
}

std::string known_presets() {
    std::string names;
    for (const TableShape& shape : table_shapes()) {
        if (!names.empty()) names += ", ";
        names += shape.preset;
    }
    return names;
}

class Resolver {
  public:
    Resolver(const TableMapping& given, std::span<const ColumnFacts> columns,
             const std::string& name, bool segments)
        : given_(given), columns_(columns), name_(name), segments_(segments) {
        out_.mapping = given;
    }

    Result<TableLayout> resolve(AfterPublish after_publish) {
        Status status = find_shape();
        if (status.ok()) {
            add_shape_values();
            status = find_columns();
        }
        if (status.ok()) status = settle_states(after_publish);
        if (!status.ok()) return status;
        return std::move(out_);
    }

  private:
    [[nodiscard]] const ColumnFacts* find(std::string_view column) const {
        const auto found = std::find_if(columns_.begin(), columns_.end(),
                                        [&](const ColumnFacts& c) { return c.name == column; });
        return found == columns_.end() ? nullptr : &*found;
    }

    Status find_shape() {
        std::vector<std::string> names;
        for (const ColumnFacts& column : columns_) names.push_back(column.name);
        std::sort(names.begin(), names.end());
        const bool mapped = !given_.columns.empty();
        if (!given_.preset.empty()) {
            const auto shapes = table_shapes();
            if (std::none_of(shapes.begin(), shapes.end(), [&](const TableShape& shape) {
                    return shape.preset == given_.preset;
                })) {
                return config_error("unknown preset '" + given_.preset + "': known are " +
                                    known_presets());
            }
            out_.preset = given_.preset;
        } else if (native_shape_ = is_native_table(names); native_shape_) {
            out_.native = !mapped;
        } else if (const auto shape = recognise_table_shape(names)) {
            out_.preset = shape->preset;
        } else if (!mapped) {
            std::string list;
            for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
            return shape_error("table " + name_ + " has none of the known shapes (" +
                               known_presets() + "); its columns are: " + list +
                               ". Map them under [source.table] in outbox.toml");
        }
        return {};
    }

    // The values that belong to a shape, where the configuration does not give others.
    void add_shape_values() {
        TableMapping& mapping = out_.mapping;
        if (!mapping.pending_values.empty() || !mapping.sent_value.empty()) return;
        if (out_.preset == "pending-published") {
            mapping.pending_values = {"PENDING"};
            mapping.sent_value = "PUBLISHED";
            mapping.dead_value = "FAILED";
        } else if (out_.preset == "new-sent") {
            mapping.pending_values = {"NEW"};
            mapping.sending_values = {"PUBLISHING"};
            mapping.sent_value = "SENT";
            mapping.failed_value = "FAILED";
            mapping.dead_value = "DEAD";
        }
        if (mapping.metadata_columns.empty() && find("event_metadata") != nullptr) {
            mapping.metadata_columns = {"event_metadata"};
        }
    }

    // "column?" is read where the table has it.
    void drop_missing_options() {
        std::vector<std::string> kept;
        for (std::string& column : out_.mapping.metadata_columns) {
            const bool optional = column.ends_with('?') && find(column) == nullptr;
            if (optional) column.pop_back();
            if (!optional || find(column) != nullptr) kept.push_back(std::move(column));
        }
        out_.mapping.metadata_columns = std::move(kept);
    }

    Status find_columns() {
        auto& columns = out_.mapping.columns;
        for (const auto& [field, column] : columns) {
            const bool known = std::any_of(kFieldNames.begin(), kFieldNames.end(),
                                           [&](const auto& names) { return field == names.field; });
            if (!known) return config_error("[source.table]: unknown field '" + field + "'");
            if (!column.empty() && find(column) == nullptr) {
                return shape_error("[source.table] maps " + field + " to column '" + column +
                                   "', which table " + name_ + " does not have");
            }
        }
        drop_missing_options();
        for (const std::string& column : out_.mapping.metadata_columns) {
            if (find(column) == nullptr) {
                return shape_error("[source.table] names metadata column '" + column +
                                   "', which table " + name_ + " does not have");
            }
        }
        for (const FieldNames& names : kFieldNames) {
            if (columns.contains(names.field)) continue;
            for (const char* column : names.columns) {
                if (column == nullptr || find(column) == nullptr) continue;
                columns.emplace(names.field, column);
                break;
            }
        }
        if (constexpr const char* kDelayed = "available_at"; native_shape_ && find(kDelayed)) {
            columns.emplace(kDelayed, kDelayed);
        }
        // What the configuration names is meant; a name alone is a guess.
        if (const auto own = given_.columns.find("occurred_at"); own != given_.columns.end()) {
            const ColumnFacts* column = find(own->second);
            if (column != nullptr && column->is_time) out_.created_at = own->second;
        }
        if (out_.preset == "new-sent" && !out_.has("event_type") && out_.has("topic")) {
            columns["event_type"] = out_.column("topic");
        }
        for (const char* name : kCreatedAtNames) {
            const ColumnFacts* column = find(name);
            if (out_.created_at.empty() && column != nullptr && column->is_time) {
                out_.created_at = name;
            }
        }
        for (const char* field : {"id", "payload"}) {
            if (out_.has(field)) continue;
            return shape_error("table " + name_ + " has no column for " + field +
                               "; map it under [source.table] in outbox.toml");
        }
        return {};
    }

    // The two shapes whose rows exist to be sent and removed. One column more may be one that says
    // what was sent, or the table a history: that is not guessed.
    [[nodiscard]] bool is_for_sending_only() const {
        constexpr std::size_t kColumnsOfDeleteWhenSent = 4;
        if (out_.preset == "delete-when-sent") return columns_.size() == kColumnsOfDeleteWhenSent;
        const auto& mapped = out_.mapping.columns;
        return out_.preset == "debezium" &&
               std::all_of(columns_.begin(), columns_.end(), [&](const ColumnFacts& column) {
                   return std::any_of(mapped.begin(), mapped.end(), [&](const auto& field) {
                       return field.second == column.name;
                   });
               });
    }

    // The layout of the table is what decides: it is changed by `migrate` alone.
    Status settle_keeping(AfterPublish after_publish) {
        out_.keep = out_.native && segments_;
        if (after_publish == AfterPublish::kKeep && !out_.keep) {
            return config_error(
                "after_publish = keep: table " + name_ +
                " is not laid out to keep its rows. The table of outbox migrate is by `outbox "
                "migrate --after-publish keep` (PostgreSQL 15 or newer); one of your own keeps "
                "them with mark, where it has a column for that");
        }
        const bool other =
            after_publish == AfterPublish::kDelete || after_publish == AfterPublish::kMark;
        if (!out_.keep || !other) return {};
        return config_error("after_publish: table " + name_ +
                            " is laid out to keep its rows. Leave the option away, or give up the "
                            "history: `outbox migrate --after-publish delete`");
    }

    Status settle_states(AfterPublish after_publish) {
        if (Status kept = settle_keeping(after_publish); !kept.ok()) return kept;
        TableMapping& mapping = out_.mapping;
        const bool markable = out_.has_state();
        if (after_publish == AfterPublish::kMark && !markable) {
            return config_error("after_publish = mark: table " + name_ +
                                " has no column that could be marked; use after_publish = delete");
        }
        out_.mark = markable && after_publish != AfterPublish::kDelete;
        out_.deletes_unasked = !out_.mark && !native_shape_ && given_.preset.empty() &&
                               after_publish == AfterPublish::kDefault && !is_for_sending_only();
        if (mapping.failed_value == mapping.dead_value) mapping.failed_value.clear();
        if (!out_.has("status")) return {};
        const std::string column = "status column \"" + out_.column("status") + "\" of " + name_;
        if (mapping.pending_values.empty()) {
            return config_error("[source.table.status]: pending is needed for " + column);
        }
        if (out_.mark && (mapping.sent_value.empty() || mapping.dead_value.empty())) {
            return config_error("[source.table.status]: sent and dead are needed for " + column);
        }
        return {};
    }

    const TableMapping& given_;
    std::span<const ColumnFacts> columns_;
    const std::string& name_;
    const bool segments_;
    bool native_shape_ = false;  // also where columns are mapped, so that `native` is not set
    TableLayout out_;
};

}  // namespace

std::string TableLayout::column(const std::string& field) const {
    const auto it = mapping.columns.find(field);
    return it == mapping.columns.end() ? std::string() : it->second;
}

ErrorInfo TableLayout::deletion_refusal(const std::string& table) const {
    const std::string emptied =
        preset.empty() ? ""
                       : ", or name the shape: preset = \"" + preset + "\" under [source.table]";
    return config_error(
        "no column of table " + table +
        " is known to say that a row was published, so published rows would be deleted, and a "
        "table of your own is emptied only where that is written down. Map such a column under "
        "[source.table.columns] in outbox.toml (processed_at: a time, null while unsent; "
        "processed: "
        "a boolean; status), or write after_publish = \"delete\" under [source]" +
        emptied);
}

bool TableLayout::has_state() const {
    return has("status") || has("processed") || has("processed_at") || has("published_at");
}

Result<TableLayout> lay_out_table(const TableMapping& given, AfterPublish after_publish,
                                  std::span<const ColumnFacts> columns, const std::string& name,
                                  bool segments) {
    return Resolver(given, columns, name, segments).resolve(after_publish);
}

bool looks_like_uuid(std::string_view text) {
    constexpr std::size_t kUuidText = 36;
    if (text.size() != kUuidText) return false;
    for (std::size_t i = 0; i < kUuidText; ++i) {
        const char c = text[i];
        const bool hyphen = i == 8 || i == 13 || i == 18 || i == 23;
        if (hyphen ? c != '-' : !is_hex_digit(c)) return false;
    }
    return true;
}

std::string event_id(std::string_view prefix, std::string_view raw_id) {
    if (looks_like_uuid(raw_id)) return std::string(raw_id);
    if (prefix.size() + raw_id.size() <= kMaxIdBytes) return std::string(prefix).append(raw_id);
    constexpr const char* kDigits = "0123456789abcdef";
    XXH128_canonical_t hash;
    XXH128_canonicalFromHash(&hash, XXH3_128bits(raw_id.data(), raw_id.size()));
    std::string id = std::string(prefix).append("xxh128:");
    for (const unsigned char byte : hash.digest) {
        id.append(1, kDigits[byte >> 4U]).append(1, kDigits[byte & 15U]);
    }
    return id;
}

}  // namespace outbox
