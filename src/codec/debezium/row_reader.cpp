#include "codec/debezium/row_reader.h"

#include <algorithm>
#include <array>

#include "codec/debezium/json_node.h"

namespace outbox::codec::debezium {
namespace {

struct FieldName {
    std::string_view name;
    std::string_view spi::EventView::* field;
};

constexpr std::array kFields{
    FieldName{"id", &spi::EventView::id},
    FieldName{"aggregate_type", &spi::EventView::aggregate_type},
    FieldName{"aggregate_id", &spi::EventView::aggregate_id},
    FieldName{"event_type", &spi::EventView::event_type},
    FieldName{"payload", &spi::EventView::payload},
    FieldName{"headers", &spi::EventView::headers},
    FieldName{"tenant_id", &spi::EventView::tenant_id},
    FieldName{"schema_id", &spi::EventView::schema_id},
    FieldName{"schema_version", &spi::EventView::schema_version},
    FieldName{"topic", &spi::EventView::topic},
    FieldName{"key", &spi::EventView::key},
    FieldName{"routing_key", &spi::EventView::routing_key},
};

ErrorInfo config_error(std::string message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, "debezium: " + std::move(message)};
}

// The text of a JSON string that begins at `json`, behind its quote; takes it and its end away.
bool take_string(std::string_view& json, std::string_view& text, spi::EventBatch& arena) {
    std::size_t end = 0;
    bool escaped = false;
    while (end < json.size() && json[end] != '"') {
        escaped |= json[end] == '\\';
        end += json[end] == '\\' ? 2 : 1;
    }
    if (end >= json.size()) return false;
    text = json.substr(0, end);
    if (escaped) {
        const auto node = read_json("\"" + std::string(text) + "\"");
        if (!node) return false;
        text = arena.copy(node->text);
    }
    json.remove_prefix(end + 1);
    return true;
}

bool take_sign(std::string_view& json, char sign) {
    const std::size_t at = json.find_first_not_of(" \n");
    if (at == std::string_view::npos || json[at] != sign) return false;
    json.remove_prefix(at + 1);
    return true;
}

bool take_null(std::string_view& json) {
    constexpr std::string_view kNull = "null";
    const std::size_t at = json.find_first_not_of(" \n");
    if (at == std::string_view::npos || !json.substr(at).starts_with(kNull)) return false;
    json.remove_prefix(at + kNull.size());
    return true;
}

}  // namespace

Result<RowReader> RowReader::make(const spi::RowShape& shape, const Options& options,
                                  const std::vector<std::string>& columns) {
    RowReader reader;
    reader.id_prefix_ = shape.id_prefix;
    for (const std::string& name : columns) {
        if (Status added = reader.add(shape, options, name); !added.ok()) {
            return std::move(added).error();
        }
    }
    return reader;
}

Status RowReader::add(const spi::RowShape& shape, const Options& options, const std::string& name) {
    const auto declared = std::find_if(shape.columns.begin(), shape.columns.end(),
                                       [&](const auto& column) { return column.name == name; });
    if (declared == shape.columns.end()) {
        const bool additional =
            std::any_of(options.additional.begin(), options.additional.end(),
                        [&](const AdditionalField& field) { return field.column == name; });
        if (additional && !options.error_on_missing) return {};
        return config_error("table " + shape.schema + "." + shape.table + " has no column '" +
                            name + "'; name another under [route.debezium]");
    }
    auto column = ConnectColumn::make(*declared, options);
    if (!column.ok()) return column.status();
    Place place{.column = std::move(*column), .value = {}};
    const auto& listed = shape.metadata_columns;
    // An event that is sent as a new one has another id than its row.
    const auto id = shape.fields.find("id");
    const bool is_id = id != shape.fields.end() && id->second == name;
    if (!is_id && std::find(listed.begin(), listed.end(), name) != listed.end()) {
        if (!shape.metadata_as_text) {
            return config_error("column '" + name +
                                "' is read as JSON, which is not what PostgreSQL prints; write "
                                "metadata_as = \"text\" under [source.table]");
        }
        metadata_ = true;
        places_.push_back(std::move(place));
        return {};
    }
    for (const FieldName& field : kFields) {
        const auto mapped = shape.fields.find(std::string(field.name));
        if (mapped == shape.fields.end() || mapped->second != name) continue;
        place.field = field.field;
        place.is_id = field.name == "id";
        place.is_payload = field.name == "payload";
        const bool content = field.name == "payload" || field.name == "headers";
        place.value.raw = content && declared->type == "bytea";
        place.value.cast = !place.value.raw;
        places_.push_back(std::move(place));
        return {};
    }
    return config_error("the relay does not read column '" + name +
                        "'; write metadata_columns = [\"" + name +
                        "\"] and metadata_as = \"text\" under [source.table]");
}

const ConnectColumn* RowReader::column(std::string_view name) const {
    const auto found = std::find_if(places_.begin(), places_.end(), [&](const Place& place) {
        return place.column.name() == name;
    });
    return found == places_.end() ? nullptr : &found->column;
}

bool RowReader::load(const spi::EventView& event, spi::EventBatch& arena) {
    for (Place& place : places_) {
        place.is_read = place.field != nullptr;
        place.value.text = place.field == nullptr ? std::string_view() : event.*place.field;
        if (place.is_id && !id_prefix_.empty() && place.value.text.starts_with(id_prefix_)) {
            place.value.text.remove_prefix(id_prefix_.size());
        }
    }
    if (metadata_ && event.metadata.data() != nullptr && !load_metadata(event.metadata, arena)) {
        return false;
    }
    not_read_ = nullptr;
    for (Place& place : places_) {
        if (place.value.text.data() != nullptr) continue;
        // A dead letter of a configuration that did not read it; who edits one may take the payload
        // out, and no more.
        const bool must_be = !place.column.is_nullable() && !place.is_payload;
        if (!place.is_read || must_be) not_read_ = &place.column;
        if (place.column.default_text()) place.value.text = *place.column.default_text();
    }
    return true;
}

bool RowReader::load_metadata(std::string_view json, spi::EventBatch& arena) {
    if (!take_sign(json, '{')) return false;
    if (take_sign(json, '}')) return true;
    do {
        std::string_view name;
        std::string_view text;
        if (!take_sign(json, '"') || !take_string(json, name, arena) || !take_sign(json, ':') ||
            !(take_null(json) || (take_sign(json, '"') && take_string(json, text, arena)))) {
            return false;
        }
        for (Place& place : places_) {
            if (place.field != nullptr || place.column.name() != name) continue;
            place.is_read = true;
            place.value.text = text;
        }
    } while (take_sign(json, ','));
    return take_sign(json, '}');
}

const ColumnValue& RowReader::value(const ConnectColumn& column) const {
    return std::find_if(places_.begin(), places_.end(),
                        [&](const Place& place) { return &place.column == &column; })
        ->value;
}

}  // namespace outbox::codec::debezium
