#include "codec/raw.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <nlohmann/json.hpp>
#include <string>

namespace outbox::codec {

namespace {

constexpr std::array<std::string_view, 7> kOwnNames = {
    "id", "type", "aggregate_type", "occurred_at", "tenant_id", "schema_id", "schema_version"};
constexpr std::int64_t kMicrosPerSecond = 1'000'000;
constexpr int kMaxDepth = 64;  // of values in headers; printing them recurses
constexpr std::size_t kMaxObjectBytes = std::size_t{1} << 20;
constexpr std::size_t kSecondChars = 20;  // "2026-01-31T23:59:59."
constexpr std::size_t kTimeChars = kSecondChars + 7;

bool is_own_name(std::string_view name) {
    return std::find(kOwnNames.begin(), kOwnNames.end(), name) != kOwnNames.end();
}

std::span<const spi::HeaderView> keep(const std::vector<spi::HeaderView>& headers,
                                      spi::EventBatch& arena) {
    std::size_t room = headers.size() * sizeof(spi::HeaderView) + alignof(spi::HeaderView);
    void* start = arena.allocate(room);
    start =
        std::align(alignof(spi::HeaderView), headers.size() * sizeof(spi::HeaderView), start, room);
    auto* kept = static_cast<spi::HeaderView*>(start);
    std::uninitialized_copy(headers.begin(), headers.end(), kept);
    return {kept, headers.size()};
}

ErrorInfo invalid(const spi::EventView& event, std::string_view what, std::string_view why) {
    return {ErrorCode::kInvalidEvent,
            Advice::kDeadLetter,
            {},
            std::string(what) + " of event " + std::string(event.id) + " at position " +
                std::to_string(event.position) + " " + std::string(why) +
                "; write a JSON object such as {\"name\": \"value\"}"};
}

}  // namespace

Result<spi::Record> RawEncoder::encode(const spi::EventView& event, std::string_view topic,
                                       spi::EventBatch& arena) {
    headers_.clear();
    add("id", event.id);
    add("type", event.event_type);
    add("aggregate_type", event.aggregate_type);
    if (event.occurred_at_us != 0) {
        add("occurred_at", occurred_at(event.occurred_at_us, arena));
    }
    add("tenant_id", event.tenant_id);
    add("schema_id", event.schema_id);
    add("schema_version", event.schema_version);
    if (event.metadata.data() != nullptr) {
        if (Status added = add_object(event, "the metadata", event.metadata, arena); !added.ok()) {
            return std::move(added).error();
        }
    }
    if (event.headers.data() != nullptr) {
        if (Status added = add_object(event, "the headers", event.headers, arena); !added.ok()) {
            return std::move(added).error();
        }
    }
    spi::Record record;
    record.topic = topic;
    record.key = event.order_key();
    record.value = event.payload;
    record.headers = keep(headers_, arena);
    record.position = event.position;
    record.id = event.id;
    record.event_type = event.event_type;
    record.aggregate_type = event.aggregate_type;
    record.aggregate_id = event.aggregate_id;
    record.tenant_id = event.tenant_id;
    record.routing_key = event.routing_key;
    record.occurred_at_us = event.occurred_at_us;
    return record;
}

void RawEncoder::add(std::string_view name, std::string_view value) {
    if (value.data() != nullptr) headers_.push_back({name, value});
}

Status RawEncoder::add_object(const spi::EventView& event, std::string_view what,
                              std::string_view json, spi::EventBatch& arena) {
    // Parsing costs many times the bytes.
    if (json.size() > kMaxObjectBytes) return invalid(event, what, "have more than 1 MiB");
    bool too_deep = false;
    const auto watch_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
    };
    const auto parsed = nlohmann::json::parse(json.begin(), json.end(), watch_depth, false);
    if (too_deep) return invalid(event, what, "are nested too deeply");
    if (parsed.is_discarded()) return invalid(event, what, "are not valid JSON");
    if (!parsed.is_object()) return invalid(event, what, "are not a JSON object");
    const std::size_t fixed = headers_.size();
    for (const auto& [name, value] : parsed.items()) {
        const auto has_name = [&](const spi::HeaderView& header) { return header.name == name; };
        const auto end = headers_.begin() + static_cast<std::ptrdiff_t>(fixed);
        if (is_own_name(name) || std::any_of(headers_.begin(), end, has_name)) continue;
        if (value.is_null() && json.data() == event.metadata.data()) continue;  // a NULL column
        headers_.push_back({arena.copy(name), value.is_string()
                                                  ? arena.copy(value.get_ref<const std::string&>())
                                                  : arena.copy(value.dump())});
    }
    return {};
}

std::string_view RawEncoder::occurred_at(std::int64_t time_us, spi::EventBatch& arena) {
    using namespace std::chrono;
    const sys_time<microseconds> time{microseconds{time_us}};
    const auto second = floor<seconds>(time);
    // Neighbours mostly share the second; the calendar is worked out once for each.
    if (second.time_since_epoch().count() != second_) {
        second_ = second.time_since_epoch().count();
        const auto day = floor<days>(second);
        const year_month_day date{day};
        const hh_mm_ss clock{second - day};
        std::snprintf(
            text_, sizeof text_, "%04d-%02u-%02uT%02d:%02d:%02d.",
            std::clamp(static_cast<int>(date.year()), 0, 9999), static_cast<unsigned>(date.month()),
            static_cast<unsigned>(date.day()), static_cast<int>(clock.hours().count()),
            static_cast<int>(clock.minutes().count()), static_cast<int>(clock.seconds().count()));
    }
    char* room = arena.allocate(kTimeChars);
    std::memcpy(room, text_, kSecondChars);
    std::int64_t micros = time_us - second_ * kMicrosPerSecond;
    for (std::size_t i = kTimeChars - 2; i >= kSecondChars; --i) {
        room[i] = static_cast<char>('0' + micros % 10);
        micros /= 10;
    }
    room[kTimeChars - 1] = 'Z';
    return {room, kTimeChars};
}

}  // namespace outbox::codec
