// Messages of any bytes, read as each format; and events of any bytes, which come back as they
// were.

#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "codec/formats.h"
#include "consumer/cloud_events.h"
#include "core/json_scan.h"
#include "tests/fuzz/bytes.h"

namespace {

using namespace outbox;
using test::next_field;

constexpr spi::AttributeNames kBindings[] = {{},
                                             {"cloudEvents_", {}},
                                             {"ce-", "Content-Type", true, true},
                                             {"ce-", "Content-Type", false, true}};

void read_anything(MessageFormat format, std::string_view bytes) {
    const std::string_view headers = next_field(bytes);
    const auto read = consumer::read_message(format, {}, headers, bytes);
    if (read.event && !read.fault.empty()) std::abort();
    const bool has_members = for_each_json_member(bytes, [](auto name, auto value) {
        if (!is_json(name) || !is_json(value)) std::abort();
    });
    if (has_members && !is_json(bytes)) std::abort();
}

void write_and_read(const codec::Format& format, const spi::AttributeNames& names,
                    std::string_view bytes) {
    spi::EventView event;
    event.id = next_field(bytes);
    event.event_type = next_field(bytes);
    event.aggregate_id = next_field(bytes);
    event.schema_id = next_field(bytes);
    event.headers = next_field(bytes);
    if (event.headers.empty()) event.headers = {};
    event.payload = bytes;
    spi::EventBatch arena;
    const auto encoder = (*format.make({{}, "t", names}))();
    const auto record = encoder->encode(event, "t", arena);
    if (!record.ok()) return;
    consumer::HeaderList headers;
    for (const auto& [name, value] : record->headers) headers.emplace_back(name, value);
    if (record->content_type.data() != nullptr) {
        headers.emplace_back("content-type", record->content_type);
    }
    const auto read = consumer::read_message(MessageFormat::kAuto, {}, headers, record->value);
    if (format.name == "raw") {
        if (read.event) std::abort();
        return;
    }
    if (!read.event || read.event->id != event.id) std::abort();
    const std::string_view payload =
        read.event->in_value ? std::string_view(*read.event->payload) : record->value;
    // Blanks around JSON are no part of its value.
    if (payload != event.payload && !is_json(event.payload)) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size < 2) return 0;
    const outbox::test::Exactly copy({reinterpret_cast<const char*>(data) + 2, size - 2});
    const std::string_view bytes = copy;
    if (data[0] % 2 == 0) {
        read_anything(static_cast<MessageFormat>(data[1] % 4), bytes);
        return 0;
    }
    for (const codec::Format& format : codec::formats()) {
        if (format.name == "debezium") continue;
        write_and_read(format, kBindings[data[1] % 4], bytes);
    }
    return 0;
}
