#include "databases/postgres/stream/row_decoder.h"

#include <algorithm>
#include <utility>

#include "core/json_text.h"

namespace outbox::postgres {
namespace {

constexpr std::array<std::string_view, kAvailableAt + 1> kFields{
    "position", "id",          "aggregate_type", "aggregate_id",   "event_type",  "payload",
    "headers",  "tenant_id",   "schema_id",      "schema_version", "occurred_at", "topic",
    "key",      "routing_key", "available_at"};
constexpr std::size_t kMaxTypes = 1000;  // told by Type messages

bool is_integer(WireType type) {
    return type == WireType::kInt2 || type == WireType::kInt4 || type == WireType::kInt8;
}

bool is_time(WireType type) {
    return type == WireType::kDate || type == WireType::kTimestamp ||
           type == WireType::kTimestamptz;
}

// Payload and headers: as text, but bytea as it is.
bool is_content(WireType type) {
    return has_text(type) || type == WireType::kBytea;
}

// jsonb keeps its keys in this order.
bool jsonb_before(const std::string& a, const std::string& b) {
    return a.size() != b.size() ? a.size() < b.size() : a < b;
}

}  // namespace

bool can_stream(RowColumn column, WireType type) {
    switch (column) {
        case kPosition:
            return is_integer(type);
        case kPayload:
        case kHeaders:
            return is_content(type);
        case kOccurredAt:
        case kAvailableAt:
            return is_time(type);
        case kMetadata:
            return has_json(type);
        default:
            return has_text(type);
    }
}

std::string_view field_name(RowColumn column) {
    return column < kFields.size() ? kFields[column] : "metadata";
}

RowDecoder::RowDecoder(StreamTable table) : table_(std::move(table)) {
    layout_.id_prefix = table_.id_prefix;
    std::vector<std::string> names = table_.metadata_columns;
    std::sort(names.begin(), names.end(), jsonb_before);
    names.erase(std::unique(names.begin(), names.end()), names.end());
    for (std::string& name : names) {
        MetadataSource& made = metadata_.emplace_back();
        append_json_string(name, made.prefix);
        made.prefix += ": ";
        made.name = std::move(name);
    }
}

std::string RowDecoder::where() const {
    return table_.schema + "." + table_.name;
}

ErrorInfo RowDecoder::row_error(const std::string& column, const char* what) const {
    return {ErrorCode::kQueryFailed,
            Advice::kRetryDestination,
            {},
            "column '" + column + "' of an insert into " + where() + " " + what +
                (position_ > 0 ? ", at position " + std::to_string(position_) : std::string()) +
                "; the stream is joined anew"};
}

Result<RowDecoder::Row> RowDecoder::decode(const pgoutput::Message& message, spi::EventBatch& out) {
    switch (message.kind) {
        case pgoutput::Kind::kInsert:
            if (message.relation == table_.oid) return decode_insert(message, out);
            return Row::kNone;
        case pgoutput::Kind::kRelation:
            if (Status status = note_relation(message); !status.ok()) return status;
            return Row::kNone;
        case pgoutput::Kind::kType:
            note_type(message);
            return Row::kNone;
        default:
            return Row::kNone;
    }
}

// A Type message names the base type, so that a domain is known by it.
void RowDecoder::note_type(const pgoutput::Message& message) {
    if (!message.schema.empty() || table_.types.size() >= kMaxTypes) return;
    const WireType type = built_in_type(message.name);
    if (type != WireType::kUnknown) table_.types.insert_or_assign(message.type_oid, type);
}

Status RowDecoder::note_relation(const pgoutput::Message& message) {
    const bool same_name = message.schema == table_.schema && message.name == table_.name;
    if (message.relation != table_.oid) {
        if (!same_name) return {};
        return {ErrorCode::kTableShape, Advice::kStop,
                "table " + where() + " was replaced by another of the same name (oid " +
                    std::to_string(message.relation) + " in place of " +
                    std::to_string(table_.oid) + ")"};
    }
    known_ = false;
    if (!same_name) {
        return {ErrorCode::kTableShape, Advice::kStop,
                "table " + where() + " is now called " + std::string(message.schema) + "." +
                    std::string(message.name) + "; name it so with --table"};
    }
    layout_.jsonb_payload = layout_.jsonb_headers = layout_.uuid_id = false;
    for (std::size_t column = 0; column < sources_.size(); ++column) {
        const auto target = static_cast<RowColumn>(column);
        sources_[column] = {};
        if (table_.columns[column].empty()) continue;
        Status status = find_source(message, table_.columns[column], target, sources_[column]);
        if (!status.ok()) return status;
    }
    for (MetadataSource& metadata : metadata_) {
        Status status = find_source(message, metadata.name, kMetadata, metadata.source);
        if (!status.ok()) return status;
    }
    layout_.uuid_id = sources_[kId].type == WireType::kUuid;
    layout_.jsonb_payload = sources_[kPayload].type == WireType::kJsonb;
    layout_.jsonb_headers = sources_[kHeaders].type == WireType::kJsonb;
    row_columns_ = message.columns.size();
    known_ = true;
    return {};
}

Status RowDecoder::find_source(const pgoutput::Message& relation, const std::string& column,
                               RowColumn target, Source& source) const {
    const auto it = std::find_if(relation.columns.begin(), relation.columns.end(),
                                 [&](const auto& candidate) { return candidate.name == column; });
    if (it == relation.columns.end()) {
        return {ErrorCode::kTableShape, Advice::kStop,
                "the log of table " + where() + " holds no column '" + column + "', which is " +
                    std::string(field_name(target)) +
                    ": it was dropped or renamed, left out of the publication's column list, or "
                    "is generated (published only by PostgreSQL 18 and newer with "
                    "publish_generated_columns = stored). Restore it, or map another under "
                    "[source.table] and restart the relay"};
    }
    source.at = static_cast<std::size_t>(it - relation.columns.begin());
    source.type = built_in_type(it->type_oid);
    if (const auto known = table_.types.find(it->type_oid); known != table_.types.end()) {
        source.type = known->second;
    }
    const bool as_text = target == kMetadata && table_.metadata_as_text;
    if (as_text ? can_print(source.type) : can_stream(target, source.type)) return {};
    return {ErrorCode::kTableShape, Advice::kStop,
            "column '" + column + "' of " + where() + ", which is " +
                std::string(field_name(target)) + ", has now a type (oid " +
                std::to_string(it->type_oid) +
                ") that cannot be read from the log as the table gives it"};
}

Status RowDecoder::take_position(const pgoutput::Message& message) {
    const Source& source = sources_[kPosition];
    const pgoutput::Value& value = message.row[source.at];
    position_ = 0;
    if (value.form != pgoutput::Value::Form::kBinary ||
        !integer_of_value(source.type, value.bytes, position_)) {
        position_ = 0;
        return row_error(table_.columns[kPosition], "is no integer in binary form");
    }
    if (position_ >= 1) return {};
    return {ErrorCode::kTableShape, Advice::kStop,
            "table " + where() + " holds position " + std::to_string(position_) +
                "; positions must be positive and unique"};
}

Status RowDecoder::take_field(const pgoutput::Message& message, std::size_t column) {
    const Source& source = sources_[column];
    Field& field = fields_[column];
    field = {};
    if (source.at == kAbsent) return {};
    const pgoutput::Value& value = message.row[source.at];
    const auto wrong = [&](const char* what) { return row_error(table_.columns[column], what); };
    if (value.form == pgoutput::Value::Form::kNull) return {};
    if (value.form == pgoutput::Value::Form::kUnchanged) return wrong("came without its value");
    // Types without a send function come as text; of those we know they all have one.
    if (value.form == pgoutput::Value::Form::kText && source.type != WireType::kText) {
        return wrong("came as text although binary was asked for");
    }
    std::string_view bytes = value.bytes;
    const bool as_sent =
        column == kId ? layout_.uuid_id
                      : (column == kPayload || column == kHeaders) &&
                            (source.type == WireType::kJsonb || source.type == WireType::kBytea);
    if (as_sent) {
        if (column == kId && bytes.size() != kUuidBytes) return wrong("is no uuid");
    } else if (column == kOccurredAt || column == kAvailableAt) {
        if (!timestamptz_of_value(source.type, value.bytes, texts_[column], bytes)) {
            return wrong("is no time in binary form");
        }
    } else if (!text_of_value(source.type, value.bytes, texts_[column], bytes)) {
        return wrong("is not in the binary form of its type");
    }
    // An empty view into nothing would read as NULL.
    field = {bytes.data() == nullptr ? "" : bytes.data(), bytes.size()};
    return {};
}

Status RowDecoder::take_metadata(const pgoutput::Message& message) {
    json_ = "{";
    bool nested = false;
    for (const MetadataSource& metadata : metadata_) {
        const pgoutput::Value& value = message.row[metadata.source.at];
        const bool is_null = value.form == pgoutput::Value::Form::kNull;
        const bool as_text = table_.metadata_as_text;
        if (is_null && !as_text) continue;
        const WireType type = metadata.source.type;
        nested = nested || (!as_text && type == WireType::kJsonb);
        if (json_.size() > 1) json_ += ", ";
        json_ += metadata.prefix;
        if (is_null) {
            json_ += "null";
            continue;
        }
        const bool sent = value.form == pgoutput::Value::Form::kBinary ||
                          (value.form == pgoutput::Value::Form::kText && type == WireType::kText);
        const bool appended = sent && (as_text ? append_printed(type, value.bytes, json_)
                                               : append_json(type, value.bytes, json_));
        if (!appended) {
            return row_error(metadata.name, "is not in the binary form of its type");
        }
    }
    json_ += '}';
    std::string& text = texts_[kMetadata];
    if (nested) {
        strip_json_nulls(json_, text);
    } else {
        text = json_;
    }
    fields_[kMetadata] = {text.data(), text.size()};
    fields_[kAttempts] = fields_[kNextAttempt] = {};
    return {};
}

bool RowDecoder::own_tenant() const {
    if (table_.tenants.empty()) return true;
    const Field& field = fields_[kTenantId];
    const std::string_view tenant = field.data == nullptr || field.size == 0
                                        ? std::string_view(table_.default_tenant)
                                        : std::string_view(field.data, field.size);
    return std::find(table_.tenants.begin(), table_.tenants.end(), tenant) != table_.tenants.end();
}

Result<RowDecoder::Row> RowDecoder::decode_insert(const pgoutput::Message& message,
                                                  spi::EventBatch& out) {
    if (!known_ || message.row.size() != row_columns_) {
        return ErrorInfo{
            ErrorCode::kQueryFailed,
            Advice::kRetryDestination,
            {},
            "an insert into " + where() + " has " + std::to_string(message.row.size()) +
                " columns; " +
                (known_ ? "the table was announced with " + std::to_string(row_columns_)
                        : std::string("no Relation message announced the table")) +
                "; the stream is joined anew"};
    }
    if (Status status = take_position(message); !status.ok()) return status;
    if (Status status = take_field(message, kTenantId); !status.ok()) return status;
    if (!own_tenant()) return Row::kOtherTenant;
    for (std::size_t column = kId; column < sources_.size(); ++column) {
        if (column == kTenantId) continue;
        if (Status status = take_field(message, column); !status.ok()) return status;
    }
    if (fields_[kId].data == nullptr) {
        return ErrorInfo{
            ErrorCode::kTableShape,
            Advice::kStop,
            {},
            "the row at position " + std::to_string(position_) + " of " + where() + " has no id"};
    }
    if (!metadata_.empty()) {
        if (Status status = take_metadata(message); !status.ok()) return status;
    }
    const std::size_t count = metadata_.empty() ? kBaseColumns : kAllColumns;
    if (Status status = decode_row(std::span(fields_).first(count), layout_, position_, out);
        !status.ok()) {
        ErrorInfo error = std::move(status).error();
        error.advice = Advice::kRetryDestination;
        return error;
    }
    return Row::kEvent;
}

}  // namespace outbox::postgres
