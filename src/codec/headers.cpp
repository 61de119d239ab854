#include "codec/headers.h"

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "core/json_scan.h"
#include "core/json_string.h"

namespace outbox::codec {
namespace {

constexpr std::size_t kMaxObjectBytes = std::size_t{1} << 20;
constexpr std::string_view kRemedy = "write a JSON object such as {\"name\": \"value\"}";

// What is no text stays as it is written: who prints it anew rounds numbers and sorts members.
Status take_object(const spi::EventView& event, std::string_view what, std::string_view json,
                   bool of_metadata, const TakeMember& take) {
    if (json.size() > kMaxObjectBytes) return invalid(event, what, "have more than 1 MiB", kRemedy);
    std::map<std::string, std::string_view, std::less<>> members;  // by name, the last of each
    bool readable = true;
    std::string storage;
    const bool whole =
        for_each_json_member(json, [&](std::string_view name, std::string_view value) {
            const auto text = json_string(name, storage);
            readable = readable && text;
            if (text) members.insert_or_assign(std::string(*text), value);
        });
    if (!whole) return invalid(event, what, "are not a JSON object", kRemedy);
    for (const auto& [name, value] : members) {
        if (value == "null") continue;
        const auto text = value.front() == '"' ? json_string(value, storage) : std::optional(value);
        readable = readable && text;
        if (!readable) break;
        Status status = take({name, *text, of_metadata});
        if (!status.ok()) return status;
    }
    if (!readable) return invalid(event, what, "have half a surrogate pair", kRemedy);
    return {};
}

}  // namespace

spi::Record record_of(const spi::EventView& event, std::string_view topic) {
    spi::Record record;
    record.topic = topic;
    record.key = event.order_key();
    record.value = event.payload;
    record.position = event.position;
    record.id = event.id;
    record.event_type = event.event_type;
    record.aggregate_type = event.aggregate_type;
    record.aggregate_id = event.aggregate_id;
    record.tenant_id = event.tenant_id;
    record.routing_key = event.routing_key;
    record.occurred_at_us = event.occurred_at_us;
    record.payload = event.payload;
    record.schema_id = event.schema_id;
    record.schema_version = event.schema_version;
    return record;
}

spi::HeaderView* header_room(std::size_t count, spi::EventBatch& arena) {
    std::size_t room = count * sizeof(spi::HeaderView) + alignof(spi::HeaderView);
    void* start = arena.allocate(room);
    start = std::align(alignof(spi::HeaderView), count * sizeof(spi::HeaderView), start, room);
    return static_cast<spi::HeaderView*>(start);
}

std::span<const spi::HeaderView> keep(std::span<const spi::HeaderView> headers,
                                      spi::EventBatch& arena) {
    spi::HeaderView* const kept = header_room(headers.size(), arena);
    std::uninitialized_copy(headers.begin(), headers.end(), kept);
    return {kept, headers.size()};
}

ErrorInfo invalid(const spi::EventView& event, std::string_view what, std::string_view why,
                  std::string_view remedy) {
    return {ErrorCode::kInvalidEvent,
            Advice::kDeadLetter,
            {},
            std::string(what) + " of event " + std::string(event.id) + " at position " +
                std::to_string(event.position) + " " + std::string(why) + "; " +
                std::string(remedy)};
}

Status for_each_member(const spi::EventView& event, const TakeMember& take) {
    if (event.metadata.data() != nullptr) {
        Status status = take_object(event, "the metadata", event.metadata, true, take);
        if (!status.ok()) return status;
    }
    if (event.headers.data() == nullptr) return {};
    return take_object(event, "the headers", event.headers, false, take);
}

}  // namespace outbox::codec
