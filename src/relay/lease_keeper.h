#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <outbox/spi/source.h>

#include "core/clock.h"
#include "relay/lease_view.h"
#include "relay/options.h"

namespace outbox::relay {

/// Holds the right to relay, or tries to get it. The relay may send until (start of the last
/// renewal that succeeded + TTL - margin) on a clock that goes on while the machine sleeps; the
/// database's clock alone decides when another may take over. One thread at a time.
class LeaseKeeper {
  public:
    LeaseKeeper(spi::Source& source, const core::Clock& clock, const RelayOptions& options,
                LeaseView& view)
        : source_(source), clock_(clock), options_(options), view_(view) {}

    /// One attempt to take the lease. The epoch, or none while another relay has it.
    Result<std::optional<std::uint64_t>> try_acquire();

    /// Renews when due. False: the lease is lost. An error means that the database did not
    /// answer: the lease still counts until its time is over.
    Result<bool> keep();

    /// Tells people, every few seconds, that this relay waits with these routes; best effort.
    void stand_by(std::span<const RouteSpec> routes);
    /// It waits no more, if it did.
    void stand_down();

    /// Frees the lease for the next relay, best effort.
    void release();

    /// The database answered when it was asked last.
    [[nodiscard]] bool answered() const { return answered_; }
    [[nodiscard]] std::int64_t next_renewal_us() const { return next_renewal_us_; }

  private:
    Status connect();
    void extend(std::int64_t started_us);

    spi::Source& source_;
    const core::Clock& clock_;
    const RelayOptions& options_;
    LeaseView& view_;
    std::unique_ptr<spi::LeaseStore> store_;
    std::uint64_t epoch_ = 0;
    std::int64_t next_renewal_us_ = 0;
    std::int64_t next_stand_by_us_ = 0;  // 0: does not stand by
    bool answered_ = false;
};

}  // namespace outbox::relay
