#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <outbox/spi/sink.h>

#include "core/circuit.h"
#include "core/clock.h"
#include "core/down_parts.h"
#include "core/lanes.h"
#include "relay/held_batches.h"
#include "relay/options.h"
#include "relay/outcome_queue.h"
#include "relay/redeliveries.h"
#include "relay/route_stats.h"
#include "relay/tenant_queues.h"

namespace outbox::relay {

/// What a route has under way, and between whose hands it goes: `Pacing` fills it, the sink takes
/// from it, `Verdict` empties it. One thread's.
struct Flow {
    // A destination, or a part of one, is asked at least this often whether it is back.
    static constexpr std::int64_t kCircuitMaxMs = 5'000;

    Flow(RouteSpec& its_route, const RelayOptions& its_options, const spi::SinkCapabilities& sink,
         const core::Clock& its_clock, RouteStats& its_stats, const Notify& its_notify,
         std::uint64_t seed)
        : route(its_route),
          options(its_options),
          clock(its_clock),
          stats(its_stats),
          notify(its_notify),
          random(seed),
          tenants(options),
          lanes({options.max_unrecorded, options.max_waiting, !sink.fail_stop_order}),
          circuit(backoff()),
          parts(backoff()) {}

    [[nodiscard]] const spi::EventView& event_of(core::SlotId slot) const {
        const core::Work& work = lanes.work(slot);
        return held[work.batch].batch.events()[work.index];
    }
    /// Lanes are told apart by a hash of their keys. Who chooses keys must not be able to choose
    /// some that share a lane, and so wait for each other's failures.
    /// Keys are a tenant's own: what befalls one stops no other.
    [[nodiscard]] core::LaneKey lane_of_key(std::string_view tenant, std::string_view key);
    /// No key: no order promised, so the event gets a lane of its own.
    [[nodiscard]] core::LaneKey lane_of(const spi::EventView& event, core::TenantId tenant) const;
    /// Outside the order of its key, as is what an operator retries.
    [[nodiscard]] core::LaneKey lane_of_letter(std::int64_t dead_id) const;

    /// Whether one more event may be sent that a new owner would have to send again; a probe may
    /// be where another may not.
    [[nodiscard]] bool may_send() const { return may_expose(spare_for_probes_); }
    [[nodiscard]] bool may_probe() const { return may_expose(0); }
    void no_longer_told(Position position) {
        if (!told.empty()) told.erase(position);
    }
    /// Its end: acknowledged, not wanted, dead or gone. `admitted`: it had a lane.
    void finish(Position position, core::TenantId tenant, bool admitted) {
        outcomes.finished.push_back(position);
        ++unrecorded;
        ++finished_total;
        tenants.finished(tenant, admitted);
    }
    /// An event takes or gives up a slot, and with it its bytes.
    void hold_bytes(std::uint32_t batch, std::uint32_t index, core::TenantId tenant);
    void let_go(std::uint32_t batch, std::uint32_t index, core::TenantId tenant);
    /// Lets go of the batches of events that lost their slots because their key waits.
    void release_waiting();
    /// Sets aside all of a paused tenant's key that is not in flight.
    void withdraw(core::LaneKey key, core::TenantId tenant);

    RouteSpec& route;
    const RelayOptions& options;
    const core::Clock& clock;
    RouteStats& stats;
    const Notify& notify;
    std::mt19937_64 random;

    TenantQueues tenants;
    core::Lanes lanes;
    core::Circuit circuit;
    core::DownParts parts;
    HeldBatches held;
    Redeliveries redeliveries;
    Outcomes outcomes;
    std::size_t unrecorded = 0;  ///< Finished, and not yet on disk, where they come in their order.
    std::uint64_t finished_total = 0;
    std::unordered_set<Position> told;  ///< Wait for a part, and that is recorded.
    Status fatal;                       ///< Not ok: the route stops for it.

  private:
    // Of what may be exposed: so many of those may be at fault, too, before none is left that
    // could show whose fault it is. Of a small limit it is a quarter.
    static constexpr std::size_t kSpareForProbes = 100;

    [[nodiscard]] bool may_expose(std::size_t spare) const {
        return lanes.exposed() + unrecorded + spare < options.max_unrecorded;
    }
    [[nodiscard]] core::RetryPolicy backoff() const {
        return {options.retry.base_ms, std::min(options.retry.max_ms, kCircuitMaxMs), 0};
    }
    const std::size_t spare_for_probes_ =
        std::clamp<std::size_t>(options.max_unrecorded / 4, 1, kSpareForProbes);
    std::vector<core::Lanes::Released> released_;
    std::vector<core::Lanes::Withdrawn> withdrawn_;
};

}  // namespace outbox::relay
