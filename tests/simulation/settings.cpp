#include "tests/simulation/settings.h"

#include <algorithm>

namespace outbox::simulation {

Settings Settings::from_seed(std::uint64_t seed) {
    Random random(seed * 0x9e3779b97f4a7c15 + 1);
    Settings s;
    s.seed = seed;
    s.routes = random.chance(0.5) ? 2 : 1;
    s.keys = static_cast<int>(random.between(1, 12));
    s.writers = static_cast<int>(random.between(2, 6));
    s.trouble = random.chance(0.5) ? 0.05 : 0.0;
    s.call_fails = random.chance(0.7) ? 0.01 : 0.0;
    s.outcome_unknown = random.chance(0.5) ? 0.02 : 0.0;
    s.record_lost = random.chance(0.5) ? 0.01 : 0.0;
    s.fail_stop = random.chance(0.6);
    s.rebuilds = s.fail_stop && random.chance(0.5);
    s.suspects = s.rebuilds && random.chance(0.7);
    s.block_key = random.chance(0.25);
    s.kills = random.chance(0.7);
    s.pauses = random.chance(0.6);
    s.outages = random.chance(0.6);
    s.database_outages = random.chance(0.4);
    s.clock_jumps = random.chance(0.3);

    // Whether an event waits for too long shows only where nothing else is away.
    if (random.chance(0.3)) s.kills = s.pauses = s.outages = s.database_outages = false;

    relay::RelayOptions& o = s.options;
    o.retention_s = 7 * 86'400;
    o.batch_size = static_cast<std::size_t>(random.between(1, 40));
    o.batch_bytes = random.chance(0.2) ? 300 : 1 << 20;
    o.poll_busy_ms = random.between(2, 10);
    o.poll_idle_ms = random.between(50, 200);
    o.retry = {random.between(20, 100), random.between(200, 2'000),
               static_cast<std::uint32_t>(random.between(3, 5))};
    o.max_unrecorded = static_cast<std::size_t>(random.between(8, 60));
    o.max_in_flight_bytes = random.chance(0.2) ? 2'000 : 1 << 20;
    o.max_waiting = random.chance(0.2) ? 30 : 10'000;
    // At the limit nothing is read that could show whose fault a timeout is.
    s.timeouts = o.max_waiting > 30;
    o.tenant_share = 100;
    o.default_tenant = "default";
    o.record_interval_ms = random.between(10, 100);
    o.record_batch = static_cast<std::size_t>(random.between(1, 50));
    o.lease_ttl_ms = 2'000;
    o.lease_renew_ms = 400;
    o.lease_margin_ms = 200;
    o.lease_retry_ms = 100;
    o.shutdown_grace_ms = 1'000;
    s.parts = random.chance(0.25);
    return s;
}

void Settings::quieten() {
    kills = pauses = outages = database_outages = clock_jumps = false;
    trouble = 0.05;
    keys = std::max(keys, 6);
    timeouts = true;
    options.max_waiting = 10'000;
    options.max_in_flight_bytes = 1 << 20;
}

}  // namespace outbox::simulation
