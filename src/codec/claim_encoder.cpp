#include "codec/claim_encoder.h"

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "claim/claim.h"
#include "claim/relay_headers.h"
#include "codec/headers.h"
#include "net/sha256.h"

namespace outbox::codec {
namespace {

// The record's headers without those that no event may set, and these.
std::span<const spi::HeaderView> with_headers(std::span<const spi::HeaderView> headers,
                                              std::span<const spi::HeaderView> claims,
                                              spi::EventBatch& arena) {
    std::vector<spi::HeaderView> all;
    all.reserve(headers.size() + claims.size());
    for (const spi::HeaderView& header : headers) {
        if (!claim::is_relay_header(header.name)) all.push_back(header);
    }
    all.insert(all.end(), claims.begin(), claims.end());
    return keep(all, arena);
}

bool has_own_header(std::span<const spi::HeaderView> headers) {
    for (const spi::HeaderView& header : headers) {
        if (claim::is_relay_header(header.name)) return true;
    }
    return false;
}

}  // namespace

Result<spi::Record> ClaimEncoder::encode(const spi::EventView& event, std::string_view topic,
                                         spi::EventBatch& arena) {
    if (event.payload.size() <= settings_.above) {
        auto record = inner_->encode(event, topic, arena);
        if (record.ok() && has_own_header(record->headers)) {
            record->headers = with_headers(record->headers, {}, arena);
        }
        return record;
    }
    claim::Claim claim{{}, event.payload.size(), net::sha256_hex(event.payload)};
    const std::string name = claim::object_name(settings_.source, event.id, claim.sha256);
    claim.reference = settings_.store + "/" + name;
    spi::EventView noted = event;
    noted.payload = arena.copy(claim::note_of(claim));
    noted.payload_is_json = true;
    auto record = inner_->encode(noted, topic, arena);
    if (!record.ok()) return record;
    const std::array claims{
        spi::HeaderView{claim::kReferenceHeader, arena.copy(claim.reference)},
        spi::HeaderView{claim::kSizeHeader, arena.copy(std::to_string(claim.size))},
        spi::HeaderView{claim::kHashHeader, arena.copy(claim.sha256)}};
    record->headers = with_headers(record->headers, claims, arena);
    record->payload = event.payload;
    record->object = arena.copy(name);
    return record;
}

MakeEncoder with_claims(MakeEncoder make, ClaimSettings settings) {
    if (settings.store.empty()) settings.above = SIZE_MAX;
    return [make = std::move(make), settings = std::move(settings)] {
        return std::make_unique<ClaimEncoder>(make(), settings);
    };
}

}  // namespace outbox::codec
