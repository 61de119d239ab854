#include "relay/flow.h"

// Inlined: the hash is taken once per event.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace outbox::relay {

namespace {

std::size_t bytes_of(const spi::EventView& event) {
    return event.payload.size() + event.headers.size() + event.metadata.size();
}

}  // namespace

core::LaneKey Flow::lane_of_key(std::string_view tenant, std::string_view key) {
    return XXH3_64bits_withSeed(key.data(), key.size(),
                                tenants.seed(tenants.of(tenant, clock.boot_us())));
}

core::LaneKey Flow::lane_of(const spi::EventView& event, core::TenantId tenant) const {
    const std::string_view key = event.order_key();
    if (!key.empty()) return XXH3_64bits_withSeed(key.data(), key.size(), tenants.seed(tenant));
    return XXH3_64bits_withSeed(&event.position, sizeof event.position, options.lane_seed);
}

core::LaneKey Flow::lane_of_letter(std::int64_t dead_id) const {
    return XXH3_64bits_withSeed(&dead_id, sizeof dead_id, ~options.lane_seed);
}

void Flow::hold_bytes(std::uint32_t batch, std::uint32_t index, core::TenantId tenant) {
    tenants.takes(tenant, bytes_of(held[batch].batch.events()[index]));
}

void Flow::let_go(std::uint32_t batch, std::uint32_t index, core::TenantId tenant) {
    tenants.gives_back(tenant, bytes_of(held[batch].batch.events()[index]));
    held.let_go(batch, 1);
}

void Flow::release_waiting() {
    lanes.take_released(released_);
    for (const core::Lanes::Released& one : released_) let_go(one.batch, one.index, one.tenant);
    released_.clear();
}

void Flow::withdraw(core::LaneKey key, core::TenantId tenant) {
    withdrawn_.clear();
    lanes.withdraw(key, withdrawn_);
    for (const core::Lanes::Withdrawn& event : withdrawn_) {
        tenants.withdrawn(tenant);
        if (event.dead_id != 0) {
            // Each look offers it again.
            redeliveries.offered_again(event.dead_id, event.attempts);
        } else {
            tenants.set_aside(tenant, event);
        }
    }
    // Were it the probe of a part that is down, others of that part would wait for it.
    if (!parts.empty()) parts.heard(key, clock.boot_us());
    release_waiting();
}

}  // namespace outbox::relay
