#include "codec/replay_encoder.h"

#include <utility>
#include <vector>

#include "claim/relay_headers.h"
#include "codec/headers.h"
#include "net/uuid5.h"

namespace outbox::codec {

// What the formats take from an event is without the header: `with_claims` takes it off.
Result<spi::Record> ReplayEncoder::encode(const spi::EventView& event, std::string_view topic,
                                          spi::EventBatch& arena) {
    spi::EventView sent = event;
    if (mark_.as_new) {
        sent.id = arena.copy(net::uuid5(mark_.run, event.id));
        sent.occurred_at_us = mark_.started_us;
        sent.available_at_us = 0;
    }
    auto record = inner_->encode(sent, topic, arena);
    if (!record.ok()) return record;
    std::vector<spi::HeaderView> headers(record->headers.begin(), record->headers.end());
    headers.push_back({claim::kReplayHeader, arena.copy(mark_.run)});
    record->headers = keep(headers, arena);
    return record;
}

MakeEncoder as_replay(MakeEncoder make, ReplayMark mark) {
    return [make = std::move(make), mark = std::move(mark)] {
        return std::make_unique<ReplayEncoder>(make(), mark);
    };
}

}  // namespace outbox::codec
