#include "producer/event_fields.h"

#include <nlohmann/json.hpp>

#include "core/routing.h"
#include "core/utf8.h"

namespace outbox::producer {
namespace {

[[noreturn]] void invalid(const std::string& message, ErrorCode code = ErrorCode::kInvalidEvent) {
    throw Error(code, Advice::kDeadLetter, message);
}

void check_text(std::string_view name, std::string_view text, std::size_t max_bytes) {
    const std::string field(name);
    if (text.size() > max_bytes) {
        invalid("the event's " + field + " has " + std::to_string(text.size()) +
                " bytes, the limit is " + std::to_string(max_bytes));
    }
    if (!is_utf8(text)) invalid("the event's " + field + " is not valid UTF-8");
    if (text.find('\0') != std::string_view::npos) {
        invalid("the event's " + field + " holds U+0000, which databases cannot store");
    }
}

void check_topic(const std::string& topic) {
    if (topic.empty()) return;
    core::check_topic_name(topic).or_throw();
}

void check_payload(const Event& event, const EmitOptions& options) {
    if (!event.payload) return;
    if (event.payload->size() > options.max_payload_bytes) {
        invalid("the payload has " + std::to_string(event.payload->size()) +
                    " bytes, the limit is " + std::to_string(options.max_payload_bytes) +
                    ". Store the data elsewhere and send a reference to it (claim check)",
                ErrorCode::kPayloadTooLarge);
    }
    if (!options.binary_payload) check_text("payload", *event.payload, options.max_payload_bytes);
}

std::string headers_json(const Event& event) {
    nlohmann::json object = nlohmann::json::object();
    std::size_t bytes = 0;
    const auto add = [&](const std::string& name, const std::string& value) {
        check_text("header name", name, kMaxTextBytes);
        check_text("header '" + name + "'", value, kMaxHeadersBytes);
        bytes += name.size() + value.size();
        if (name.empty()) invalid("the event has a header without a name");
        if (!object.emplace(name, value).second) {
            invalid("the event has the header '" + name + "' twice");
        }
    };
    for (const auto& [name, value] : event.headers) add(name, value);
    if (!event.traceparent.empty()) add("traceparent", event.traceparent);
    if (bytes > kMaxHeadersBytes) {
        invalid("the event's headers have " + std::to_string(bytes) + " bytes, the limit is " +
                std::to_string(kMaxHeadersBytes));
    }
    return object.empty() ? std::string() : object.dump();
}

std::int64_t microseconds(std::string_view name, std::chrono::system_clock::time_point time) {
    // Years 1 to 9999: what every database and JSON reader agrees on.
    constexpr std::int64_t kFirst = -62'135'596'800;
    constexpr std::int64_t kLast = 253'402'300'799;
    const auto since_epoch = time.time_since_epoch();
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(since_epoch).count();
    if (seconds < kFirst || seconds > kLast) {
        invalid("the event's " + std::string(name) + " lies outside the years 1 to 9999");
    }
    return std::chrono::duration_cast<std::chrono::microseconds>(since_epoch).count();
}

}  // namespace

EventFields event_fields(const Event& event, const EmitOptions& options) {
    if (event.topic.empty() && event.aggregate_type.empty()) {
        invalid("the event has neither a topic nor an aggregate type: it could not be routed");
    }
    check_topic(event.topic);
    check_payload(event, options);

    EventFields row;
    row.id = event.id.empty() ? new_event_id() : event.id;
    row.table = event.available_at ? "outbox_scheduled" : "outbox_events";
    row.fields.reserve(14);
    const auto add_text = [&](std::string_view column, const std::string& text) {
        if (text.empty()) return;
        check_text(column, text, kMaxTextBytes);
        row.fields.push_back({column, FieldKind::kText, text, 0});
    };
    const auto add_time = [&](std::string_view column, const auto& time) {
        if (!time) return;
        row.fields.push_back({column, FieldKind::kTime, {}, microseconds(column, *time)});
    };
    add_time("available_at", event.available_at);
    add_text("id", row.id);
    add_text("aggregate_type", event.aggregate_type);
    add_text("aggregate_id", event.aggregate_id);
    add_text("event_type", event.event_type);
    if (event.payload) row.fields.push_back({"payload", FieldKind::kPayload, {}, 0});
    std::string headers = headers_json(event);
    if (!headers.empty())
        row.fields.push_back({"headers", FieldKind::kText, std::move(headers), 0});
    add_text("tenant_id", event.tenant_id);
    add_text("schema_id", event.schema_id);
    add_text("schema_version", event.schema_version);
    add_time("occurred_at", event.occurred_at);
    add_text("topic", event.topic);
    add_text("key", event.key);
    add_text("routing_key", event.routing_key);
    return row;
}

std::string insert_clause(const EventFields& row) {
    std::string sql = "INSERT INTO ";
    sql.append(row.table).append(" (");
    for (const EventField& field : row.fields) {
        if (&field != &row.fields.front()) sql += ", ";
        sql += field.column;
    }
    return sql + ") ";
}

const std::string& lane_key(const Event& event) {
    return event.key.empty() ? event.aggregate_id : event.key;
}

}  // namespace outbox::producer
