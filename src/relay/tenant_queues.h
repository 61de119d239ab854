#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/spi/event_batch.h>
#include <outbox/spi/position_set.h>

#include "core/lanes.h"
#include "relay/options.h"
#include "relay/route_stats.h"

namespace outbox::relay {

using spi::Position;

/// What a route holds of each tenant, and what of it may be held: a tenant that is paused, has its
/// share or is over its rate gets no more into the lanes. The rows of it that are read meanwhile
/// are set aside by their positions, one bit each, and are taken back in their order when there is
/// room; so a burst of one tenant stands in nobody's way. While something of a tenant is set aside,
/// all that is read of it is, so that nothing overtakes.
///
/// Pure: no clock, no I/O. Not thread-safe.
class TenantQueues {
  public:
    using Id = core::TenantId;

    /// `options` must outlive this.
    explicit TenantQueues(const RelayOptions& options);

    /// The number of the tenant of an event; valid until `forget_idle`.
    Id of(std::string_view tenant_id, std::int64_t now_us);
    /// What its lanes' hashes begin with.
    [[nodiscard]] std::uint64_t seed(Id id) const { return tenants_[id].seed; }

    /// Whether an event that was just read may go into its lane, which takes a token of its rate.
    /// False: it is to be set aside.
    bool may_admit(Id id, std::int64_t now_us) {
        const Tenant& tenant = tenants_[id];
        if (unlimited_) return !tenant.paused && tenant.aside.empty();
        return has_turn(id, now_us);
    }
    void set_aside(Id id, Position position);
    /// What was taken out of a lane: with its failed attempts.
    void set_aside(Id id, const core::Lanes::Withdrawn& event);

    /// In a lane from now on, until it is finished and that is recorded, or it is withdrawn.
    void admitted(Id id) { ++tenants_[id].held; }
    void withdrawn(Id id) { --tenants_[id].held; }
    /// An event finished; `held` false: without having been in a lane. Recorded in this order.
    void finished(Id id, bool held);
    void recorded(std::size_t events);
    /// An event gets a slot, and its bytes are in memory; or it gives it up.
    void takes(Id id, std::size_t bytes) {
        tenants_[id].bytes += bytes;
        ++tenants_[id].slots;
    }
    void gives_back(Id id, std::size_t bytes) {
        tenants_[id].bytes -= bytes;
        --tenants_[id].slots;
    }

    /// Chooses what to take back: at most `most` positions, tenant after tenant in turn, ascending
    /// within each, and of each in portions that are worth a read. Those that it chooses are aside
    /// no longer and count as admitted. Of each that is read, in this order, `pays` is to be asked,
    /// and of each whose row is gone `gone` to be told.
    struct Back {
        Position position = 0;
        Id tenant = 0;
        std::uint32_t attempts = 0;
        std::int64_t due_us = 0;
    };
    void take_back(std::size_t most, std::int64_t now_us, std::vector<Back>& out);
    /// Those of whom most is aside: at most `most` names are appended.
    void most_aside(std::size_t most, std::vector<std::string>& out);
    /// An event goes into its lane for a token of its tenant's rate. False: there is none, and it
    /// is to be put back.
    [[nodiscard]] bool pays(Id id);
    /// The row of one that was taken back is gone: it costs neither a token nor a wait.
    void gone(Id id);
    /// They are not for a lane yet: they are aside again.
    void put_back(std::span<const Back> events);
    /// When `take_back` may have something; INT64_MAX: not before something else happens.
    [[nodiscard]] std::int64_t next_back_us(std::int64_t now_us) const;

    /// These are paused from now on, and no others.
    void pause(std::vector<std::string> names);
    /// These, too.
    void pause_also(const std::vector<std::string>& names);
    [[nodiscard]] bool is_paused(Id id) const { return tenants_[id].paused; }
    /// Nothing is set aside.
    [[nodiscard]] bool none_waits() const { return waiting_.empty(); }
    /// Some tenant has its share in what is finished and not yet recorded.
    [[nodiscard]] bool waits_for_record() const;

    /// Events that wait here, set aside or in lanes.
    [[nodiscard]] RouteStats::Tenants counts() const;

  private:
    // Tenants beyond this many are looked through for some of whom there is nothing to remember.
    static constexpr std::size_t kManyTenants = 10'000;

    struct Retry {
        std::uint32_t attempts = 0;
        std::int64_t due_us = 0;
    };
    struct Tenant {
        std::string name;
        std::uint64_t seed = 0;
        bool paused = false;
        std::size_t held = 0;
        std::size_t unrecorded = 0;  // of those held: finished
        std::size_t slots = 0;       // all but those that wait for their key
        std::size_t bytes = 0;       // of those with slots
        double tokens = 0;
        std::int64_t tokens_at_us = 0;
        std::int64_t back_at_us = 0;  // not earlier, but where much has room
        std::size_t portion = 0;      // the last
        std::size_t look = 0;         // the next has so many, though there are fewer tokens
        spi::PositionSet aside;
        std::unordered_map<Position, Retry> retries;  // of `aside`
    };
    struct Finished {
        Id tenant = 0;
        bool held = false;
    };

    bool has_turn(Id id, std::int64_t now_us);
    void fill(Tenant& tenant, std::int64_t now_us) const;
    [[nodiscard]] static std::size_t in_window(const Tenant& tenant) {
        return tenant.slots + tenant.unrecorded;
    }
    [[nodiscard]] bool has_room(const Tenant& tenant) const;
    [[nodiscard]] std::size_t room(const Tenant& tenant) const;
    [[nodiscard]] std::size_t next_portion(Tenant& tenant, std::int64_t now_us) const;
    [[nodiscard]] bool may_come_back(const Tenant& tenant, std::int64_t now_us) const;
    void forget_idle(std::int64_t now_us);

    const RelayOptions& options_;
    const std::size_t share_events_;
    const std::size_t share_bytes_;
    const std::size_t share_waiting_;
    const double rate_;  // 0: any
    const bool unlimited_;
    std::vector<Tenant> tenants_;
    std::unordered_map<std::string, Id> ids_;
    std::vector<Id> free_;
    std::vector<std::string> paused_names_;
    std::deque<Finished> finished_;    // not yet recorded
    std::deque<Id> waiting_;           // with something aside, in the order of their turns
    std::vector<Position> positions_;  // scratch
    std::size_t many_ = kManyTenants;
    Id last_ = 0;  // found last
};

}  // namespace outbox::relay
