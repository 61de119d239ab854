#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/retry_policy.h"

namespace outbox::webhook {

inline constexpr std::int64_t kSecondUs = 1'000'000;

/// Limits and waits of a dispatcher.
struct DispatchOptions {
    std::size_t max_connections = 512;  ///< Attempts under way.
    /// Of one endpoint. While many have something to deliver each has its share of
    /// `max_connections`, and one whose last attempt did not succeed has one, and another for what
    /// failed before while others were accepted. Deliveries that failed before get half of these.
    std::size_t max_per_endpoint = 8;
    /// Of all endpoints of one host, which may hang together; half of it for those whose last
    /// attempt did not succeed.
    [[nodiscard]] std::size_t max_per_host() const {
        return std::max(max_per_endpoint, max_connections / 4);
    }
    /// Of deliveries in memory, about; half of it for endpoints whose last attempt did not succeed.
    std::size_t max_bytes = std::size_t{64} << 20;
    /// Read at a time for one endpoint: at first, and at most of one that takes all that is read
    /// and has more.
    std::size_t slice_rows = 32;
    std::size_t max_slice_rows = 256;
    std::size_t slice_bytes = std::size_t{256} << 10;
    std::size_t max_slices = 64;  ///< Endpoints that one statement reads for.

    core::RetryPolicy event_retry{5'000, 3'600'000, 0};
    core::RetryPolicy outage_retry{1'000, 600'000, 0};
    core::RetryPolicy own_retry{5'000, 60'000, 0};  ///< After a fault of our own.
    /// No wait for another attempt is longer, by the clocks of two relays.
    [[nodiscard]] std::int64_t longest_wait_us() const {
        return 2 * std::max(outage_retry.max_ms, event_retry.max_ms) * 1'000;
    }
    /// Failed answers in a row after which an endpoint counts as down.
    std::int64_t open_after = 5;
    /// For so long an endpoint, or an event, may fail ...
    std::int64_t give_up_after_us = std::int64_t{3} * 24 * 3600 * kSecondUs;
    std::int64_t least_failures = 10;  ///< ... and so often at least.

    std::string owner;  ///< Names this process in the lease.
    std::int64_t lease_ttl_ms = 5'000;
    std::int64_t lease_renew_ms = 1'000;
    std::int64_t lease_margin_ms = 1'000;
    std::int64_t lease_retry_ms = 200;
};

}  // namespace outbox::webhook
