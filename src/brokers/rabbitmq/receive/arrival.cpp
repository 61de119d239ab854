#include "brokers/rabbitmq/receive/arrival.h"

#include <optional>
#include <string>
#include <string_view>

#include "brokers/rabbitmq/connection.h"
#include "brokers/rabbitmq/message.h"
#include "consumer/queue/headers_json.h"

namespace outbox::rabbitmq {
namespace {

// RabbitMQ's own, as quorum queues and streams write them.
constexpr std::string_view kDeliveryCount = "x-delivery-count";
constexpr std::string_view kStreamOffset = "x-stream-offset";

std::optional<std::int64_t> integer_of(const amqp_field_value_t& field) {
    switch (field.kind) {
        case AMQP_FIELD_KIND_I8:
            return field.value.i8;
        case AMQP_FIELD_KIND_U8:
            return field.value.u8;
        case AMQP_FIELD_KIND_I16:
            return field.value.i16;
        case AMQP_FIELD_KIND_U16:
            return field.value.u16;
        case AMQP_FIELD_KIND_I32:
            return field.value.i32;
        case AMQP_FIELD_KIND_U32:
            return field.value.u32;
        case AMQP_FIELD_KIND_I64:
            return field.value.i64;
        case AMQP_FIELD_KIND_U64:
        case AMQP_FIELD_KIND_TIMESTAMP:
            return static_cast<std::int64_t>(field.value.u64);
        default:
            return std::nullopt;
    }
}

// A header of another's may have any of AMQP's types; lists and tables are no text.
std::optional<std::string> value_of(const amqp_field_value_t& field) {
    switch (field.kind) {
        case AMQP_FIELD_KIND_UTF8:
        case AMQP_FIELD_KIND_BYTES:
            return text_of(field.value.bytes);
        case AMQP_FIELD_KIND_BOOLEAN:
            return field.value.boolean != 0 ? "true" : "false";
        case AMQP_FIELD_KIND_F32:
            return std::to_string(field.value.f32);
        case AMQP_FIELD_KIND_F64:
            return std::to_string(field.value.f64);
        default:
            const auto number = integer_of(field);
            return number ? std::optional(std::to_string(*number)) : std::nullopt;
    }
}

}  // namespace

bool read_properties(const amqp_basic_properties_t& properties, consumer::Arrival& out) {
    const auto has = [&](amqp_flags_t flag) { return (properties._flags & flag) != 0; };
    if (has(AMQP_BASIC_MESSAGE_ID_FLAG)) out.id = text_of(properties.message_id);
    consumer::HeadersJson headers;
    bool has_offset = false;
    bool has_content_type = false;
    bool has_event_type = false;
    const int count = has(AMQP_BASIC_HEADERS_FLAG) ? properties.headers.num_entries : 0;
    for (int i = 0; i < count; ++i) {
        const amqp_table_entry_t& entry = properties.headers.entries[i];
        const std::string name = text_of(entry.key);
        if (name == kStreamOffset) has_offset = integer_of(entry.value).has_value();
        if (name == kDeliveryCount) {
            // A publisher may have written it; no queue counts what it hands out for the first
            // time.
            if (out.deliveries > 1) {
                out.deliveries =
                    static_cast<std::uint32_t>(integer_of(entry.value).value_or(0) + 1);
            }
            continue;
        }
        if (name == kNullHeader) {
            out.payload.reset();
            continue;
        }
        const auto value = value_of(entry.value);
        if (!value) continue;
        if (name == kKeyHeader) {
            out.key = *value;
            continue;
        }
        has_content_type = has_content_type || name == kContentTypeHeader;
        has_event_type = has_event_type || name == "event_type";
        headers.add(name, *value);
    }
    if (has(AMQP_BASIC_CONTENT_TYPE_FLAG) && !has_content_type) {
        headers.add(kContentTypeHeader, text_of(properties.content_type));
    }
    if (has(AMQP_BASIC_TYPE_FLAG) && !has_event_type) {
        headers.add("event_type", text_of(properties.type));
    }
    out.headers = std::move(headers).text();
    return has_offset;
}

}  // namespace outbox::rabbitmq
