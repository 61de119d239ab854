// A whole stream: messages, each behind its length in two bytes, opened, parsed and decoded by one
// decoder. What must hold besides "no undefined behaviour" aborts.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "databases/postgres/stream/pgoutput.h"
#include "tests/fuzz/bytes.h"
#include "tests/fuzz/fuzz_table.h"

namespace {

using namespace outbox;
using postgres::RowDecoder;

void require(bool holds) {
    if (!holds) std::abort();
}

void require_inside(std::string_view part, std::string_view whole) {
    if (part.empty()) return;
    require(part.data() >= whole.data());
    require(part.data() + part.size() <= whole.data() + whole.size());
}

void check_views(const postgres::pgoutput::Message& message, std::string_view bytes) {
    using postgres::pgoutput::Kind;
    if (message.kind == Kind::kInsert || message.kind == Kind::kUpdate) {
        for (const auto& value : message.row) require_inside(value.bytes, bytes);
    }
    if (message.kind == Kind::kRelation) {
        for (const auto& column : message.columns) require_inside(column.name, bytes);
    }
    if (message.kind == Kind::kMessage) require_inside(message.content, bytes);
}

void check_event(const spi::EventView& event, const RowDecoder& decoder) {
    require(event.position == decoder.position() && event.position > 0);
    require(event.id.data() != nullptr);
    std::size_t bytes = 0;  // reads each byte, for AddressSanitizer
    for (const auto field :
         {event.id, event.aggregate_type, event.aggregate_id, event.event_type, event.payload,
          event.headers, event.tenant_id, event.schema_id, event.schema_version, event.topic,
          event.key, event.routing_key, event.metadata}) {
        for (const char c : field) bytes += static_cast<unsigned char>(c);
    }
    require(event.metadata.size() >= 2 && bytes > 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::string_view rest(reinterpret_cast<const char*>(data), size);
    RowDecoder decoder(outbox::test::fuzz_table());
    postgres::pgoutput::Envelope envelope;
    postgres::pgoutput::Message message;
    spi::EventBatch batch;
    while (rest.size() >= 2) {
        const std::size_t length = static_cast<unsigned char>(rest[0]) * std::size_t{256} +
                                   static_cast<unsigned char>(rest[1]);
        const outbox::test::Exactly copy(rest.substr(2, length));
        const std::string_view bytes = copy;
        rest.remove_prefix(std::min(rest.size(), 2 + length));
        if (postgres::pgoutput::parse_envelope(bytes, envelope).ok()) {
            require_inside(envelope.message, bytes);
        }
        const Status parsed = postgres::pgoutput::parse_message(bytes, message);
        if (!parsed.ok()) {
            require(parsed.error().advice == Advice::kRetryDestination);
            continue;
        }
        check_views(message, bytes);
        const std::size_t before = batch.size();
        const auto row = decoder.decode(message, batch);
        require(batch.size() == before + (row.ok() && *row == RowDecoder::Row::kEvent ? 1 : 0));
        if (batch.size() > before) check_event(batch.events().back(), decoder);
        if (!row.ok()) require(!row.error().message.empty());
        if (batch.bytes() > (std::size_t{1} << 20U)) batch.clear();
    }
    return 0;
}
