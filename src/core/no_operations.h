#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "core/operations.h"

namespace outbox {

/// Where no relay has ever run: there are no side tables, and looking makes none.
class NoOperations final : public Operations {
  public:
    Result<std::vector<LeaseInfo>> leases() override { return std::vector<LeaseInfo>{}; }
    Result<std::vector<RouteInfo>> routes() override { return std::vector<RouteInfo>{}; }
    Result<std::vector<StandbyInfo>> standbys() override { return std::vector<StandbyInfo>{}; }
    Result<std::vector<WaitingEvent>> waiting_events(std::size_t) override {
        return std::vector<WaitingEvent>{};
    }
    Result<std::vector<AuditLine>> audit_lines(std::int64_t, std::size_t) override {
        return std::vector<AuditLine>{};
    }
    Result<std::vector<DeadInfo>> dead(const DeadFilter&, std::int64_t, std::size_t,
                                       bool) override {
        return std::vector<DeadInfo>{};
    }
    Result<std::int64_t> count_dead(const DeadFilter&) override { return std::int64_t{0}; }
    Result<std::int64_t> last_dead() override { return std::int64_t{0}; }
    Result<std::int64_t> oldest_dead_us() override { return std::int64_t{0}; }
    Result<std::int64_t> retry_dead(const DeadFilter&) override { return std::int64_t{0}; }
    Result<std::int64_t> discard_dead(const DeadFilter&) override { return std::int64_t{0}; }
    Result<std::vector<LedgerRoute>> ledger_routes(bool) override {
        return std::vector<LedgerRoute>{};
    }
    Result<std::int64_t> accept_destination(const std::vector<std::string>&,
                                            const std::string&) override {
        return std::int64_t{0};
    }
    Result<std::int64_t> rename_route(const std::vector<std::string>&, const std::string&,
                                      const std::string&) override {
        return std::int64_t{0};
    }
    Result<RetiredRoute> retire_route(const std::vector<std::string>&, const std::string&,
                                      bool) override {
        return RetiredRoute{};
    }
    Result<std::int64_t> keep_ledgers() override { return std::int64_t{0}; }
    Result<std::int64_t> forget_ledgers() override { return std::int64_t{0}; }
    Result<std::vector<DeadRoute>> routes_of_dead(const DeadFilter&, bool) override {
        return std::vector<DeadRoute>{};
    }
    Result<std::int64_t> reroute_dead(const DeadFilter&, const std::string&) override {
        return std::int64_t{0};
    }
    Result<std::int64_t> edit_dead(const DeadFilter&, const DeadEdit&) override {
        return std::int64_t{0};
    }
    Result<std::vector<ScheduledInfo>> scheduled(const ScheduledFilter&, std::size_t) override {
        return std::vector<ScheduledInfo>{};
    }
    Result<std::int64_t> count_scheduled(const ScheduledFilter&) override {
        return std::int64_t{0};
    }
    Result<std::int64_t> cancel_scheduled(const ScheduledFilter&) override {
        return std::int64_t{0};
    }
    Result<std::vector<PausedTenant>> paused_tenants() override {
        return std::vector<PausedTenant>{};
    }
    Result<bool> pause_tenant(const std::string&) override { return never_relayed(); }
    Result<bool> resume_tenant(const std::string&) override { return false; }
    Result<BoundedCount> unfinished_of_tenant(const std::string&) override {
        return never_relayed();
    }
    Result<DelayedEvents> delayed_of_tenant(const std::string&) override { return DelayedEvents{}; }
    Result<TenantBacklogs> tenant_backlogs() override { return TenantBacklogs{}; }
};

}  // namespace outbox
