#include "codec/headers.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "core/json_scan.h"

namespace outbox::codec {
namespace {

constexpr int kMaxDepth = 64;  // of values in headers; printing them recurses
constexpr std::size_t kMaxObjectBytes = std::size_t{1} << 20;
constexpr std::string_view kRemedy = "write a JSON object such as {\"name\": \"value\"}";

// As they are written: a number may have more digits than a double, or be none at all.
Status take_texts(const spi::EventView& event, std::string_view what, std::string_view json,
                  bool of_metadata, const TakeMember& take) {
    std::map<std::string, std::string_view> members;  // by name, the last of each
    bool readable = true;                             // halves of surrogate pairs are not
    const auto text_of = [&](std::string_view quoted) {
        const auto text = nlohmann::json::parse(quoted, nullptr, false);
        readable = readable && text.is_string();
        return text.is_string() ? text.get<std::string>() : std::string();
    };
    const bool whole = for_each_json_member(
        json,
        [&](std::string_view name, std::string_view value) { members[text_of(name)] = value; });
    if (!whole) return invalid(event, what, "are not a JSON object", kRemedy);
    for (const auto& [name, value] : members) {
        const bool is_null = value == "null";
        if (is_null && of_metadata) continue;  // a NULL column
        const std::string text = value.starts_with('"') ? text_of(value) : std::string(value);
        if (!readable) return invalid(event, what, "are not valid JSON", kRemedy);
        Status status = take({name, text, is_null, of_metadata});
        if (!status.ok()) return status;
    }
    return {};
}

Status take_object(const spi::EventView& event, std::string_view what, std::string_view json,
                   bool of_metadata, const TakeMember& take) {
    // Parsing costs many times the bytes.
    if (json.size() > kMaxObjectBytes) return invalid(event, what, "have more than 1 MiB", kRemedy);
    bool too_deep = false;
    const auto watch_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
    };
    const auto parsed = nlohmann::json::parse(json.begin(), json.end(), watch_depth, false);
    if (too_deep) return invalid(event, what, "are nested too deeply", kRemedy);
    const bool is_rounded = std::any_of(parsed.begin(), parsed.end(),
                                        [](const auto& value) { return value.is_number_float(); });
    if (is_rounded || (parsed.is_discarded() && is_json(json))) {
        return take_texts(event, what, json, of_metadata, take);
    }
    if (parsed.is_discarded()) return invalid(event, what, "are not valid JSON", kRemedy);
    if (!parsed.is_object()) return invalid(event, what, "are not a JSON object", kRemedy);
    std::string text;
    for (const auto& [name, value] : parsed.items()) {
        if (value.is_null() && of_metadata) continue;  // a NULL column
        if (!value.is_string()) text = value.dump();
        const std::string& shown = value.is_string() ? value.get_ref<const std::string&>() : text;
        Status status = take({name, shown, value.is_null(), of_metadata});
        if (!status.ok()) return status;
    }
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
