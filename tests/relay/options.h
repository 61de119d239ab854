#pragma once

#include "relay/options.h"

namespace outbox::relay {

/// Limits that no test reaches unless it sets its own.
inline RelayOptions usual_options() {
    RelayOptions options;
    options.batch_size = 500;
    options.poll_busy_ms = 1;
    options.poll_idle_ms = 100;
    options.retry = {200, 60'000, 5};
    options.max_unrecorded = 10'000;
    options.max_in_flight_bytes = std::size_t{16} << 20U;
    options.tenant_share = 100;
    options.default_tenant = "default";
    options.lease_ttl_ms = 60'000;
    options.lease_renew_ms = 1'000;
    options.lease_margin_ms = 500;
    options.shutdown_grace_ms = 30'000;
    options.retention_s = std::int64_t{7} * 86'400;
    return options;
}

}  // namespace outbox::relay
