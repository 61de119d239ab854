#include "codec/raw.h"

#include <algorithm>
#include <array>
#include <cstddef>

#include "codec/headers.h"

namespace outbox::codec {
namespace {

constexpr std::array<std::string_view, 7> kOwnNames = {
    "id", "type", "aggregate_type", "occurred_at", "tenant_id", "schema_id", "schema_version"};

bool is_own_name(std::string_view name) {
    return std::find(kOwnNames.begin(), kOwnNames.end(), name) != kOwnNames.end();
}

}  // namespace

Result<spi::Record> RawEncoder::encode(const spi::EventView& event, std::string_view topic,
                                       spi::EventBatch& arena) {
    headers_.clear();
    add("id", event.id);
    add("type", event.event_type);
    add("aggregate_type", event.aggregate_type);
    if (event.occurred_at_us != 0) add("occurred_at", times_.of(event.occurred_at_us, arena));
    add("tenant_id", event.tenant_id);
    add("schema_id", event.schema_id);
    add("schema_version", event.schema_version);
    if (event.metadata.data() != nullptr || event.headers.data() != nullptr) {
        if (Status added = add_members(event, arena); !added.ok()) return std::move(added).error();
    }
    spi::Record record = record_of(event, topic);
    record.headers = keep(headers_, arena);
    return record;
}

void RawEncoder::add(std::string_view name, std::string_view value) {
    if (value.data() != nullptr) headers_.push_back({name, value});
}

Status RawEncoder::add_members(const spi::EventView& event, spi::EventBatch& arena) {
    std::size_t fixed = headers_.size();  // what a header of the event does not override
    return for_each_member(event, [&](const Member& member) -> Status {
        const auto has_name = [&](const spi::HeaderView& header) {
            return header.name == member.name;
        };
        const auto end = headers_.begin() + static_cast<std::ptrdiff_t>(fixed);
        if (is_own_name(member.name) || std::any_of(headers_.begin(), end, has_name)) return {};
        headers_.push_back({arena.copy(member.name), arena.copy(member.value)});
        if (member.of_metadata) ++fixed;
        return {};
    });
}

}  // namespace outbox::codec
