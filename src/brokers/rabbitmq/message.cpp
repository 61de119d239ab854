#include "brokers/rabbitmq/message.h"

#include "core/json_scan.h"
#include "core/utf8.h"

namespace outbox::rabbitmq {
namespace {

constexpr std::size_t kMaxShortBytes = 255;  // an AMQP short string
// Of a frame, without its headers: its own fields and the message's properties.
constexpr std::size_t kOtherBytes = 8 + 14 + 4 + 5 * (kMaxShortBytes + 1) + 16;
constexpr std::size_t kHeaderOverhead = 1 + 1 + 4;  // length of the name, type, length of the value

std::string too_long(std::string_view what, std::size_t bytes) {
    return "its " + std::string(what) + " has " + std::to_string(bytes) +
           " bytes, and AMQP takes 255";
}

std::optional<std::string> why_not_value(std::string_view name, std::string_view value) {
    if (name != kContentTypeHeader || value.size() <= kMaxShortBytes) return std::nullopt;
    return too_long("header 'content-type'", value.size());
}

}  // namespace

std::optional<std::string> why_not_header(std::string_view name) {
    if (name.size() > kMaxShortBytes) {
        return too_long("header '" + to_printable(name.substr(0, 40)) + "...'", name.size());
    }
    if (name.empty()) return "it has a header without a name";
    // RabbitMQ takes them for lists of further routing keys, and closes the channel at a text.
    if (name == "CC" || name == "BCC") {
        return "RabbitMQ has a meaning of its own for the header '" + std::string(name) +
               "'; use another name";
    }
    if (name == kKeyHeader || name == kNullHeader) {
        return "the header '" + std::string(name) + "' is the relay's; use another name";
    }
    return std::nullopt;
}

std::string_view routing_key_of(const spi::Record& record) {
    return record.routing_key.empty() ? record.topic : record.routing_key;
}

std::string_view content_type_of(const spi::Record& record) {
    if (record.content_type.data() != nullptr) return record.content_type;
    for (const spi::HeaderView& header : record.headers) {
        if (header.name == kContentTypeHeader) return header.value;
    }
    return is_json(record.value) ? "application/json" : std::string_view();
}

std::optional<std::string> why_not_carried(const spi::Record& record, std::size_t max_frame_bytes) {
    if (const std::string_view key = routing_key_of(record); key.size() > kMaxShortBytes) {
        return too_long("routing key", key.size());
    }
    if (record.id.size() > kMaxShortBytes) return too_long("id", record.id.size());
    if (record.event_type.size() > kMaxShortBytes) {
        return too_long("event type", record.event_type.size());
    }
    if (record.content_type.size() > kMaxShortBytes) {
        return too_long("content type", record.content_type.size());
    }
    std::size_t bytes = kOtherBytes + kKeyHeader.size() + record.key.size() + kNullHeader.size() +
                        2 * kHeaderOverhead;
    for (const spi::HeaderView& header : record.headers) {
        if (auto why = why_not_header(header.name)) return why;
        if (auto why = why_not_value(header.name, header.value)) return why;
        bytes += header.name.size() + header.value.size() + kHeaderOverhead;
    }
    if (bytes <= max_frame_bytes) return std::nullopt;
    return "key and headers need " + std::to_string(bytes) +
           " bytes, and the connection takes frames of " + std::to_string(max_frame_bytes) +
           "; raise frame_max in rabbitmq.conf, or make them smaller";
}

}  // namespace outbox::rabbitmq
