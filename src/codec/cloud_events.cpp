#include "codec/cloud_events.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "codec/headers.h"
#include "core/ascii.h"
#include "core/base64.h"
#include "core/json_scan.h"
#include "core/json_text.h"
#include "core/url.h"
#include "core/utf8.h"

namespace outbox::codec {
namespace {

namespace ce = cloud_event;

constexpr std::string_view kJson = "application/json";
constexpr std::string_view kText = "text/plain; charset=utf-8";
constexpr std::string_view kBytes = "application/octet-stream";

// What a header may not be called beside the attributes: who reads events of several formats would
// take it for what format `raw` has under the name.
constexpr std::array<std::string_view, 6> kOtherNames = {
    "aggregate_type", "occurred_at", "tenant_id", "schema_id", "schema_version", "data"};
// What tracing looks for in headers, whatever the format.
constexpr std::array<std::string_view, 2> kTraceNames = {"traceparent", "tracestate"};

// Of the event, as messages name what is in an attribute.
constexpr std::array<std::string_view, ce::kNames.size()> kFields = {"",
                                                                     "id",
                                                                     "",
                                                                     "event type",
                                                                     "time",
                                                                     "aggregate id",
                                                                     "key",
                                                                     "schema id",
                                                                     "aggregate type",
                                                                     "tenant id",
                                                                     "schema id",
                                                                     "schema version",
                                                                     "header content-type"};

// What an event says in its own words; all else is made so that it fits. The key is mostly the
// subject, and else it is looked at beside them.
using Attribute = ce::Attribute;
constexpr std::array kFromEvent = {
    Attribute::kId,       Attribute::kType,     Attribute::kSubject,      Attribute::kAggregateType,
    Attribute::kTenantId, Attribute::kSchemaId, Attribute::kSchemaVersion};

template <typename List>
bool is_one_of(std::string_view name, const List& list) {
    return std::find(list.begin(), list.end(), name) != list.end();
}

bool is_content_type(std::string_view name) {
    return name == "datacontenttype" || lower(name) == "content-type";
}

// Whether readers could take the header for something that is not the event's to say.
bool is_taken(std::string_view name) {
    if (is_one_of(name, ce::kNames) || is_one_of(name, kOtherNames)) return true;
    const std::string text = lower(name);
    return std::any_of(ce::kPrefixes.begin(), ce::kPrefixes.end(),
                       [&](std::string_view prefix) { return text.starts_with(lower(prefix)); });
}

ErrorInfo not_text(const spi::EventView& event, std::string_view field) {
    return invalid(event, "the " + std::string(field),
                   "has a control character or something else that no attribute of a CloudEvent "
                   "may hold",
                   "write it without, or give the route the format raw");
}

}  // namespace

CloudEventsEncoder::CloudEventsEncoder(CloudEventsConfig config) : config_(std::move(config)) {
    for (std::size_t i = 0; i < kCount; ++i) {
        names_[i] = std::string(config_.attributes.prefix) + std::string(ce::kNames[i]);
    }
    if (!config_.attributes.type_as_attribute) names_.back() = config_.attributes.content_type;
}

Result<spi::Record> CloudEventsEncoder::encode(const spi::EventView& event, std::string_view topic,
                                               spi::EventBatch& arena) {
    extensions_.clear();
    headers_.clear();
    Status status = take_fields(event, arena);
    if (status.ok() && (event.headers.data() != nullptr || event.metadata.data() != nullptr)) {
        status = take_headers(event, arena);
    }
    if (status.ok()) status = take_content_type(event);
    if (!status.ok()) return std::move(status).error();
    spi::Record record = record_of(event, topic);
    if (config_.mode == ContentMode::kBinary) {
        write_binary(record, arena);
    } else {
        write_structured(event, record, arena);
    }
    return record;
}

Status CloudEventsEncoder::take_fields(const spi::EventView& event, spi::EventBatch& arena) {
    const auto unless_empty = [](std::string_view text) {
        return text.empty() ? std::string_view() : text;
    };
    value(Attribute::kSpecVersion) = ce::kVersion;
    value(Attribute::kId) = event.id;
    value(Attribute::kSource) = config_.source;
    value(Attribute::kType) = event.event_type.empty() ? config_.type : event.event_type;
    value(Attribute::kTime) =
        event.occurred_at_us != 0 ? times_.of(event.occurred_at_us, arena) : std::string_view();
    value(Attribute::kSubject) = unless_empty(event.aggregate_id);
    value(Attribute::kPartitionKey) = unless_empty(event.order_key());
    value(Attribute::kDataSchema) =
        event.schema_id.empty() ? std::string_view() : schema_of(event, arena);
    value(Attribute::kAggregateType) = unless_empty(event.aggregate_type);
    value(Attribute::kTenantId) = unless_empty(event.tenant_id);
    value(Attribute::kSchemaId) = unless_empty(event.schema_id);
    value(Attribute::kSchemaVersion) = unless_empty(event.schema_version);
    value(Attribute::kDataContentType) = {};
    if (event.id.empty()) {
        return invalid(event, "the id", "is empty, and a CloudEvent has one", "write it");
    }
    if (value(Attribute::kType).empty()) {
        return invalid(event, "the event type", "is missing, and a CloudEvent needs it as its type",
                       "write it, or set type under [route.cloudevents]");
    }
    for (const Attribute attribute : kFromEvent) {
        if (ce::is_attribute_text(value(attribute))) continue;
        return not_text(event, kFields[static_cast<std::size_t>(attribute)]);
    }
    const std::string_view key = value(Attribute::kPartitionKey);
    const bool is_subject = key.data() == value(Attribute::kSubject).data();
    if (!is_subject && !ce::is_attribute_text(key)) return not_text(event, "key");
    return {};
}

Status CloudEventsEncoder::take_headers(const spi::EventView& event, spi::EventBatch& arena) {
    std::size_t fixed = 0;  // what a header does not override: attributes of the metadata
    return for_each_member(event, [&](const Member& member) -> Status {
        if (is_content_type(member.name)) {
            value(Attribute::kDataContentType) = arena.copy(member.value);
            return {};
        }
        if (is_taken(member.name)) {
            // A column of such a name was read for another route, and nobody forged it.
            if (member.of_metadata) return {};
            return invalid(event, "the header '" + to_printable(member.name.substr(0, 100)) + "'",
                           "would stand for what a CloudEvent has as an attribute of its own",
                           "give the header another name");
        }
        if (!ce::is_attribute_name(member.name)) {
            headers_.push_back({arena.copy(member.name), arena.copy(member.value)});
            return {};
        }
        if (!ce::is_attribute_text(member.value)) {
            return not_text(event, "header '" + std::string(member.name) + "'");
        }
        const auto end = extensions_.begin() + static_cast<std::ptrdiff_t>(fixed);
        const bool known = std::any_of(extensions_.begin(), end, [&](const spi::HeaderView& one) {
            return one.name == member.name;
        });
        if (known) return {};
        extensions_.push_back({arena.copy(member.name), arena.copy(member.value)});
        if (member.of_metadata) ++fixed;
        const bool apart =
            config_.mode == ContentMode::kStructured || !config_.attributes.prefix.empty();
        if (apart && is_one_of(member.name, kTraceNames)) headers_.push_back(extensions_.back());
        return {};
    });
}

Status CloudEventsEncoder::take_content_type(const spi::EventView& event) {
    std::string_view& type = value(Attribute::kDataContentType);
    if (type.data() != nullptr && (!is_media_type(type) || ce::is_event_type(type))) {
        return invalid(event, "the header content-type",
                       "is no media type of data, such as application/json", "mend or drop it");
    }
    if (type.data() == nullptr && !config_.datacontenttype.empty()) type = config_.datacontenttype;
    is_json_ = false;
    if (event.payload.data() == nullptr) return {};
    if (type.data() == nullptr) {
        is_json_ = event.payload_is_json || outbox::is_json(event.payload);
        type = is_json_ ? kJson : is_utf8(event.payload) ? kText : kBytes;
        return {};
    }
    if (!ce::is_json_type(type)) return {};
    is_json_ = event.payload_is_json || outbox::is_json(event.payload);
    if (is_json_) return {};
    return invalid(event, "the payload",
                   "is not JSON, as its media type " + to_printable(type) + " says",
                   "write JSON, or the right media type: a header content-type, or datacontenttype "
                   "under [route.cloudevents]");
}

// The subject in the registry and its version, as the registry's own address has them.
std::string_view CloudEventsEncoder::schema_of(const spi::EventView& event,
                                               spi::EventBatch& arena) {
    if (event.schema_id != schema_id_ || event.schema_version != schema_version_) {
        schema_id_ = event.schema_id;
        schema_version_ = event.schema_version;
        const bool is_address =
            schema_id_.find("://") != std::string::npos && ce::is_absolute_uri(schema_id_);
        schema_ = is_address ? schema_id_
                             : config_.dataschema_base + "/subjects/" + path_part(schema_id_);
        if (!is_address && !schema_version_.empty()) {
            schema_ += "/versions/" + path_part(schema_version_);
        }
    }
    return arena.copy(schema_);
}

std::string_view CloudEventsEncoder::percent_encoded(std::string_view text,
                                                     spi::EventBatch& arena) {
    if (ce::is_plain_value(text)) return text;
    scratch_.clear();
    ce::append_percent_encoded(text, scratch_);
    return arena.copy(scratch_);
}

void CloudEventsEncoder::write_binary(spi::Record& record, spi::EventBatch& arena) {
    const auto absent = static_cast<std::size_t>(
        std::count_if(values_.begin(), values_.end(),
                      [](std::string_view one) { return one.data() == nullptr; }));
    spi::HeaderView* const begin =
        header_room(kCount - absent + extensions_.size() + headers_.size(), arena);
    spi::HeaderView* at = begin;
    for (std::size_t i = 0; i + 1 < kCount; ++i) {
        if (values_[i].data() == nullptr) continue;
        *at++ = {names_[i], as_header(values_[i], arena)};
    }
    const std::string_view type = values_.back();
    if (type.data() != nullptr && !names_.back().empty()) {
        // As an attribute among others it is written as they are.
        *at++ = {names_.back(),
                 config_.attributes.type_as_attribute ? as_header(type, arena) : type};
    } else {
        record.content_type = type;
    }
    for (const spi::HeaderView& one : extensions_) {
        scratch_.assign(config_.attributes.prefix).append(one.name);
        const std::string_view name = arena.copy(scratch_);
        *at++ = {name, as_header(one.value, arena)};
    }
    at = std::copy(headers_.begin(), headers_.end(), at);
    record.headers = {begin, static_cast<std::size_t>(at - begin)};
}

void CloudEventsEncoder::write_structured(const spi::EventView& event, spi::Record& record,
                                          spi::EventBatch& arena) {
    scratch_.clear();
    const auto member = [this](std::string_view name, std::string_view text) {
        scratch_ += scratch_.empty() ? "{\"" : ",\"";
        scratch_.append(name).append("\":");
        append_json_string(text, scratch_);
    };
    for (std::size_t i = 0; i < kCount; ++i) {
        if (values_[i].data() != nullptr) member(ce::kNames[i], values_[i]);
    }
    for (const spi::HeaderView& one : extensions_) member(one.name, one.value);
    append_data(event);
    scratch_ += '}';
    record.value = arena.copy(scratch_);
    if (config_.attributes.content_type.empty()) {
        record.content_type = ce::kJsonEventType;
    } else {
        headers_.push_back({config_.attributes.content_type, ce::kJsonEventType});
    }
    record.headers = keep(headers_, arena);
}

void CloudEventsEncoder::append_data(const spi::EventView& event) {
    if (event.payload.data() == nullptr) return;
    if (is_json_) {
        scratch_.append(",\"data\":").append(event.payload);
    } else if (is_utf8(event.payload)) {
        scratch_ += ",\"data\":";
        append_json_string(event.payload, scratch_);
    } else {
        scratch_ += ",\"data_base64\":\"";
        append_base64(event.payload, scratch_);
        scratch_ += '"';
    }
}

}  // namespace outbox::codec
