#include "relay/flow.h"

// Inlined: the hash is taken once per event.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace outbox::relay {

core::LaneKey Flow::lane_of_key(std::string_view key) const {
    return XXH3_64bits_withSeed(key.data(), key.size(), options.lane_seed);
}

core::LaneKey Flow::lane_of(const spi::EventView& event) const {
    const std::string_view key = event.order_key();
    if (!key.empty()) return lane_of_key(key);
    return XXH3_64bits_withSeed(&event.position, sizeof event.position, options.lane_seed);
}

core::LaneKey Flow::lane_of_letter(std::int64_t dead_id) const {
    return XXH3_64bits_withSeed(&dead_id, sizeof dead_id, ~options.lane_seed);
}

void Flow::release_waiting() {
    lanes.take_released(released_);
    for (const std::uint32_t batch_id : released_) held.let_go(batch_id, 1);
    released_.clear();
}

}  // namespace outbox::relay
