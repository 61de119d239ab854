#include "codec/debezium/encoder.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "codec/debezium/java_text.h"
#include "codec/debezium/value_forms.h"
#include "codec/headers.h"

namespace outbox::codec::debezium {
namespace {

using Outcome = ExpandedPayload::Outcome;

constexpr std::string_view kNoSchema = R"({"schema":null,"payload":)";
constexpr std::size_t kMaxNames = 10'000;  // of envelopes, as many as Debezium keeps

ErrorInfo config_error(const std::string& message) {
    return {ErrorCode::kConfigInvalid, Advice::kStop, {}, "debezium: " + message};
}

std::string json_string(std::string_view text) {
    std::string out;
    append_jackson_string(text, out);
    return out;
}

std::string_view null_value() {
    return {};
}

// Else one key's events would be under way side by side.
Status must_keep_order_by(const std::string& column, const spi::RowShape& shape) {
    for (const char* field : {"key", "aggregate_id"}) {
        const auto mapped = shape.fields.find(field);
        if (mapped != shape.fields.end() && mapped->second == column) return {};
    }
    return config_error("table.field.event.key = '" + column +
                        "': the relay keeps order by another column; write key = \"" + column +
                        "\" under [source.table]");
}

}  // namespace

// What becomes of the payload's column in one event.
struct DebeziumEncoder::Payload {
    ColumnValue value;
    ExpandedPayload expanded;
    bool blank = false;  // Debezium takes it for the deletion of its key
};

Result<std::unique_ptr<DebeziumEncoder>> DebeziumEncoder::make(const Options& options,
                                                               const spi::RowShape& shape) {
    if (shape.columns.empty()) {
        return config_error(
            "the source tells no types of columns; this format is for tables of PostgreSQL, as "
            "Debezium's connector reads them");
    }
    auto rows = RowReader::make(shape, options, columns_of(options));
    if (!rows.ok()) return rows.status();
    auto topics = TopicRouter::make(options.topic_regex, options.topic_replacement);
    if (!topics.ok()) return topics.status();
    std::unique_ptr<DebeziumEncoder> made(
        new DebeziumEncoder(options, *std::move(rows), *std::move(topics), shape));
    if (Status ordered = must_keep_order_by(made->options_.key, shape); !ordered.ok()) {
        return std::move(ordered).error();
    }
    if (Status settled = made->settle(); !settled.ok()) return std::move(settled).error();
    return made;
}

DebeziumEncoder::DebeziumEncoder(Options options, RowReader rows, TopicRouter topics,
                                 const spi::RowShape& shape)
    : options_(std::move(options)),
      rows_(std::move(rows)),
      topics_(std::move(topics)),
      envelope_name_(options_.topic_prefix + "." + shape.schema + "." + shape.table + "."),
      envelope_(options_.has_envelope()),
      topics_of_rows_(shape.fields.contains("topic")),
      keys_of_rows_(shape.fields.contains("key")) {}

Status DebeziumEncoder::settle() {
    key_ = rows_.column(options_.key);
    payload_ = rows_.column(options_.payload);
    route_by_ = rows_.column(options_.route_by);
    if (!options_.schema_version.empty()) version_ = rows_.column(options_.schema_version);
    if (!route_by_->is_string()) {
        return config_error("route.by.field = '" + options_.route_by +
                            "': Debezium makes topics of text columns alone");
    }
    if (version_ != nullptr && !version_->is_int32()) {
        return config_error("table.field.event.schema.version = '" + options_.schema_version +
                            "': the column must be an integer (int4)");
    }
    if (options_.connect && !options_.timestamp.empty()) {
        timestamp_ = rows_.column(options_.timestamp);
        if (timestamp_ == nullptr || !timestamp_->is_timestamp()) {
            return config_error("table.field.event.timestamp = '" + options_.timestamp +
                                "': the column must be a timestamp without time zone");
        }
    }
    for (const auto& [name, column, format] :
         {std::tuple{"key", key_, &options_.key_format},
          std::tuple{"value", payload_, &options_.value_format}}) {
        if (format->converter != Converter::kBinary || column->is_bytes()) continue;
        return config_error(std::string(name) + " = binary: column '" + column->name() +
                            "' is no bytea; take simplestring or json");
    }
    if (envelope_ && options_.value_format.converter == Converter::kBinary) {
        return config_error("value = binary: an envelope is no bytes; take json");
    }
    if (envelope_ && options_.value_format.converter == Converter::kJson &&
        options_.value_format.schemas && options_.topic_prefix.empty()) {
        return config_error("topic.prefix is missing: the envelope's schema is named by it");
    }
    before_key_ = before_value(*key_, options_.key_format);
    before_payload_ = before_value(*payload_, options_.value_format);
    payload_->append_schema("payload", payload_schema_);
    return settle_headers();
}

Status DebeziumEncoder::settle_headers() {
    const auto add = [&](const std::string& name, const ConnectColumn& column) {
        id_and_headers_.push_back({name, &column, before_value(column, options_.header_format)});
    };
    add("id", *rows_.column(options_.id));
    for (const AdditionalField& field : options_.additional) {
        const ConnectColumn* column = rows_.column(field.column);
        if (column == nullptr) continue;
        if (field.placement == Placement::kHeader) {
            add(field.alias, *column);
        } else if (field.placement == Placement::kEnvelope) {
            std::string schema;
            column->append_schema(field.alias, schema);
            extras_.push_back({column, json_string(field.alias), field.alias, std::move(schema)});
        } else if (options_.connect) {
            partition_ = column;
            if (column->is_int32()) continue;
            return config_error("column '" + field.column +
                                "' is placed as the partition and must be an integer (int4)");
        }
    }
    return {};
}

std::string DebeziumEncoder::before_value(const ConnectColumn& column,
                                          const ConverterOptions& format) const {
    if (format.converter != Converter::kJson || !format.schemas) return {};
    std::string out = R"({"schema":)";
    column.append_schema({}, out);
    return out + R"(,"payload":)";
}

Result<spi::Record> DebeziumEncoder::encode(const spi::EventView& event, std::string_view /*topic*/,
                                            spi::EventBatch& arena) {
    if (!rows_.load(event, arena)) {
        return invalid(
            event, "the metadata",
            "are not what PostgreSQL prints of the columns: they were read under another "
            "configuration",
            "retry the dead letter with the configuration that it is of, or discard it "
            "and write the event anew");
    }
    if (const ConnectColumn* column = rows_.not_read()) {
        return invalid(event, "column '" + column->name() + "'",
                       "was not read with its row, under another configuration",
                       "retry the dead letter with the configuration that it is of, or discard it "
                       "and write the event anew");
    }
    const std::string_view route = rows_.value(*route_by_).text;
    const bool is_chosen = !topics_of_rows_ && !event.topic.empty();
    if (route.data() == nullptr && !is_chosen) {
        return invalid(event, "column '" + route_by_->name() + "'",
                       "is NULL, and the topic is made of it",
                       "give the dead letter a topic (outbox dead edit --topic), then retry it");
    }
    const auto topic = is_chosen ? std::optional(event.topic) : topics_.topic(route, arena);
    if (!topic) {
        return invalid(event, "the value of column '" + route_by_->name() + "'",
                       "takes route.topic.regex too many steps",
                       "write a simpler expression, or give the dead letter a topic (outbox dead "
                       "edit --topic), then retry it");
    }
    spi::Record record = record_of(event, *topic);
    const auto key = make_key(event, arena);
    if (!key.ok()) return key.status();
    record.key = *key;
    const auto value = make_value(event, route, arena);
    if (!value.ok()) return value.status();
    record.value = *value;
    if (Status taken = take_headers(event, arena); !taken.ok()) return std::move(taken).error();
    record.headers = keep(headers_, arena);
    if (Status taken = take_partition(event, record); !taken.ok()) return std::move(taken).error();
    return record;
}

ErrorInfo DebeziumEncoder::no_value(const spi::EventView& event,
                                    const ConnectColumn& column) const {
    return invalid(
        event, "column '" + column.name() + "'",
        "has a value that Debezium has no form for, such as an infinite date, NaN among "
        "decimals, or an object that Java prints by its address",
        "take another converter, then retry the dead letter, or discard it and write the "
        "event anew");
}

Status DebeziumEncoder::take_headers(const spi::EventView& event, spi::EventBatch& arena) {
    headers_.clear();
    const bool json = options_.header_format.converter == Converter::kJson;
    for (const Header& header : id_and_headers_) {
        if (!json) {
            if (Status added = add_text(event, header, arena); !added.ok()) return added;
            continue;
        }
        out_.assign(header.before);
        if (!header.column->append_json(rows_.value(*header.column),
                                        options_.header_format.decimal_as_text, out_)) {
            return no_value(event, *header.column);
        }
        if (!header.before.empty()) out_ += '}';
        headers_.push_back({header.name, arena.copy(out_)});
    }
    return {};
}

// What SimpleHeaderConverter or StringConverter of Kafka Connect writes.
Status DebeziumEncoder::add_text(const spi::EventView& event, const Header& header,
                                 spi::EventBatch& arena) {
    const ColumnValue& value = rows_.value(*header.column);
    if (value.text.data() == nullptr || header.column->prints_itself()) {
        headers_.push_back({header.name, value.text});
        return {};
    }
    out_.clear();
    const bool made = options_.header_format.converter == Converter::kSimpleHeader
                          ? header.column->append_header(value, out_)
                          : header.column->append_java(value, out_);
    if (!made) return no_value(event, *header.column);
    headers_.push_back({header.name, arena.copy(out_)});
    return {};
}

Result<std::string_view> DebeziumEncoder::make_key(const spi::EventView& event,
                                                   spi::EventBatch& arena) {
    ColumnValue value = rows_.value(*key_);
    if (!keys_of_rows_ && !event.key.empty() && key_->is_string()) value.text = event.key;
    if (!value.text.empty() && value.text != event.order_key()) {
        return invalid(event, "column '" + key_->name() + "'",
                       "is the record's key, and order is kept by another",
                       "name the column that the event's key is in as table.field.event.key, or "
                       "leave `key` out of [source.table.columns]");
    }
    const ConverterOptions& format = options_.key_format;
    out_.assign(before_key_);
    bool made = true;
    if (format.converter == Converter::kJson) {
        made = key_->append_json(value, format.decimal_as_text, out_);
        if (!before_key_.empty()) out_ += '}';
    } else if (value.text.data() == nullptr) {
        return null_value();
    } else if (format.converter == Converter::kString) {
        if (key_->prints_itself()) return value.text;
        made = key_->append_java(value, out_);
    } else {
        made = key_->append_bytes(value, out_);
    }
    if (!made) return no_value(event, *key_);
    return arena.copy(out_);
}

Result<std::string_view> DebeziumEncoder::make_value(const spi::EventView& event,
                                                     std::string_view route,
                                                     spi::EventBatch& arena) {
    Payload payload{rows_.value(*payload_), {}, false};
    const bool is_null = payload.value.text.data() == nullptr;
    if (options_.expand && !is_null && payload_->is_string()) {
        payload.expanded = expand(payload.value.text, options_.payload, options_.keep_nulls);
    }
    payload.blank = is_null || (payload_->is_string() && java_trim(payload.value.text).empty());
    if (payload.blank && options_.tombstones) return null_value();
    const bool json = options_.value_format.converter == Converter::kJson;
    const Outcome outcome = payload.expanded.outcome;
    if (outcome == Outcome::kBroken && (json || envelope_)) {
        return invalid(event, "the payload",
                       "is JSON that Debezium cannot expand, so that its engine ends there: an "
                       "array at the top, an array of different types, a number beyond 64 bits, or "
                       "more than a million "
                       "fields",
                       "change the payload (outbox dead edit --payload-file), or write "
                       "table.expand.json.payload = false, then retry the dead letter");
    }
    if (outcome == Outcome::kSchemaless && envelope_) {
        return invalid(event, "the payload",
                       "is an empty array, for which Debezium has no schema, so that its engine "
                       "ends there",
                       "change the payload (outbox dead edit --payload-file), or write "
                       "table.expand.json.payload = false, then retry the dead letter");
    }
    return envelope_ ? envelope(event, payload, route, arena) : plain_value(event, payload, arena);
}

Result<std::string_view> DebeziumEncoder::plain_value(const spi::EventView& event,
                                                      const Payload& payload,
                                                      spi::EventBatch& arena) {
    const ConverterOptions& format = options_.value_format;
    out_.clear();
    if (format.converter == Converter::kJson) {
        const bool schemas = format.schemas;
        if (payload.expanded.outcome == Outcome::kStruct) {
            if (schemas) {
                out_ = R"({"schema":)";
                append_schema(payload.expanded.schema, {}, out_);
                out_ += R"(,"payload":)";
            }
        } else if (schemas) {
            out_ = payload.expanded.outcome == Outcome::kSchemaless ? kNoSchema : before_payload_;
        }
        if (Status made = append_payload_json(event, payload); !made.ok()) {
            return std::move(made).error();
        }
        if (schemas) out_ += '}';
        return arena.copy(out_);
    }
    if (payload.value.text.data() == nullptr) return null_value();
    if (format.converter == Converter::kBinary) {
        if (payload.value.raw) return payload.value.text;
        if (!payload_->append_bytes(payload.value, out_)) return no_value(event, *payload_);
        return arena.copy(out_);
    }
    if (payload.expanded.outcome != Outcome::kStruct && payload_->prints_itself()) {
        return payload.value.text;
    }
    if (Status made = append_payload_java(event, payload); !made.ok()) {
        return std::move(made).error();
    }
    return arena.copy(out_);
}

Status DebeziumEncoder::append_payload_json(const spi::EventView& event, const Payload& payload) {
    if (payload.expanded.outcome == Outcome::kStruct) {
        append_value(payload.expanded.schema, payload.expanded.value, out_);
        return {};
    }
    if (payload_->append_json(payload.value, options_.value_format.decimal_as_text, out_)) {
        return {};
    }
    return no_value(event, *payload_);
}

Status DebeziumEncoder::append_payload_java(const spi::EventView& event, const Payload& payload) {
    if (payload.expanded.outcome == Outcome::kStruct) {
        append_java(payload.expanded.schema, payload.expanded.value, out_);
        return {};
    }
    if (payload_->append_java(payload.value, out_)) return {};
    return no_value(event, *payload_);
}

Result<std::string_view> DebeziumEncoder::envelope(const spi::EventView& event,
                                                   const Payload& payload, std::string_view route,
                                                   spi::EventBatch& arena) {
    const bool json = options_.value_format.converter == Converter::kJson;
    const bool schemas = json && options_.value_format.schemas;
    out_.clear();
    if (schemas) {
        std::string schema = payload_schema_;
        if (payload.expanded.outcome == Outcome::kStruct) {
            schema.clear();
            append_schema(payload.expanded.schema, "payload", schema);
        }
        append_envelope_schema(
            schema, version_ == nullptr ? null_value() : rows_.value(*version_).text, route);
    }
    const bool is_null = payload.value.text.data() == nullptr;
    out_ += json ? R"({"payload":)" : "Struct{";
    Status made;
    if (json) {
        made = append_payload_json(event, payload);
    } else if (!is_null) {
        out_ += "payload=";
        made = append_payload_java(event, payload);
    }
    if (made.ok()) made = append_extras(event, json, json || !is_null);
    if (!made.ok()) return std::move(made).error();
    out_ += schemas ? "}}" : "}";
    return arena.copy(out_);
}

Status DebeziumEncoder::append_extras(const spi::EventView& event, bool json, bool behind) {
    for (const Extra& extra : extras_) {
        const ColumnValue& value = rows_.value(*extra.column);
        bool made = true;
        if (json) {
            out_.append(",").append(extra.name).append(":");
            made = extra.column->append_json(value, options_.value_format.decimal_as_text, out_);
        } else if (value.text.data() != nullptr) {
            if (behind) out_ += ',';
            behind = true;
            out_.append(extra.java_name).append("=");
            made = extra.column->append_java(value, out_);
        }
        if (!made) return no_value(event, *extra.column);
    }
    return {};
}

// Debezium names it after the value that routes the first event with such a payload, or of such a
// version.
void DebeziumEncoder::append_envelope_schema(const std::string& payload_schema,
                                             std::string_view version, std::string_view route) {
    const std::string key = version_ == nullptr ? payload_schema : std::string(version);
    auto name = names_.find(key);
    if (name == names_.end()) {
        if (names_.size() >= kMaxNames) names_.clear();
        name =
            names_.emplace(key, json_string(envelope_name_ + std::string(route) + ".Value")).first;
    }
    out_.append(R"({"schema":{"type":"struct","fields":[)").append(payload_schema);
    for (const Extra& extra : extras_) out_.append(",").append(extra.schema);
    out_.append(R"(],"optional":false,"name":)").append(name->second);
    if (version.data() != nullptr) out_.append(",\"version\":").append(version);
    out_ += R"(},"payload":)";
}

// Only Kafka Connect hands them on.
Status DebeziumEncoder::take_partition(const spi::EventView& event, spi::Record& record) {
    if (partition_ != nullptr) {
        const std::string_view text = rows_.value(*partition_).text;
        std::from_chars(text.data(), text.data() + text.size(), record.partition);
        if (text.data() != nullptr && record.partition < 0) {
            return invalid(event, "column '" + partition_->name() + "'",
                           "is below 0, and places the event in a partition of Kafka",
                           "discard the dead letter and write the event anew, or leave the "
                           "placement `partition` out and retry it");
        }
    }
    if (timestamp_ != nullptr && rows_.value(*timestamp_).text.data() != nullptr) {
        const auto time = read_timestamp(rows_.value(*timestamp_).text);
        const auto us = time ? time->total_us() : std::nullopt;
        if (!us) return no_value(event, *timestamp_);
        record.timestamp_ms = *us / 1000;  // towards 1970
        if (record.timestamp_ms < 0) {
            return invalid(event, "column '" + timestamp_->name() + "'",
                           "is before 1970, which no timestamp of Kafka is",
                           "discard the dead letter and write the event anew, or leave "
                           "table.field.event.timestamp out and retry it");
        }
    }
    return {};
}

}  // namespace outbox::codec::debezium
