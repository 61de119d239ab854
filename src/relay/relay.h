#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include <outbox/spi/source.h>

#include "core/clock.h"
#include "core/mutex.h"
#include "relay/lease_keeper.h"
#include "relay/lease_view.h"
#include "relay/options.h"
#include "relay/route_stats.h"

namespace outbox::relay {

class Term;

/// Longer than any statement and any wait of ours may take: a thread that has not moved for so long
/// hangs.
inline constexpr std::chrono::minutes kMaxStandstill{3};

/// Carries events from a source to the sinks of its routes for as long as it holds the lease, and
/// waits for it otherwise.
class Relay {
  public:
    /// `source`, `clock` must outlive the relay. `notify` is called from any of its threads.
    Relay(spi::Source& source, std::vector<RouteSpec> routes, RelayOptions options,
          const core::Clock& clock, Notify notify);
    ~Relay();

    /// Relays until `stop` is requested, then hands over: what is in flight is finished within
    /// `shutdown_grace_ms` and recorded, and the lease is released. Destinations may be away at
    /// any time and the database after it was reached once. An error means that the database
    /// could not be reached at all, or that going on would be unsafe (advice kStop). `reached`:
    /// the database was before, so that its absence is an outage from the beginning.
    Status run(const std::stop_token& stop, bool reached = false);

    /// What a health check and a metrics page show. Any thread.
    struct Health {
        bool leading = false;   ///< Holds the lease.
        bool database = false;  ///< The database answered last time.
        std::uint64_t epoch = 0;
        std::int64_t loop_age_us = 0;  ///< Since the slowest loop last moved.
        std::string error;             ///< The database's last error, while it is away.
    };
    [[nodiscard]] Health health() const;
    /// A route's thread hangs, for which the lease was let go: nothing goes on here before it
    /// returns, if ever. Any thread.
    [[nodiscard]] bool hangs() const { return hangs_.load(std::memory_order_relaxed); }
    /// A term is over, and its threads have not ended yet. Any thread.
    [[nodiscard]] bool ends_term() const {
        return has_term_.load(std::memory_order_relaxed) &&
               !leading_.load(std::memory_order_relaxed);
    }
    [[nodiscard]] spi::Recorder::Stats database_stats() const;
    [[nodiscard]] const std::vector<RouteSpec>& routes() const { return routes_; }
    [[nodiscard]] const RouteStats& stats(std::size_t route) const { return *stats_[route]; }

  private:
    Status serve_term(const std::stop_token& stop, std::uint64_t epoch);
    /// `passed_us`: since the last look.
    [[nodiscard]] bool stands_still(std::int64_t passed_us);
    void end_figures();
    /// Renews the lease when due. False: it is lost.
    bool keep_lease();
    /// A thread that does so while a term begins; nobody else may until it is joined.
    std::jthread keep_lease_meanwhile();
    void tell_ghosts(std::uint64_t epoch);
    /// Nobody else held the lease since this relay's last term.
    [[nodiscard]] bool follows_own(std::uint64_t epoch) const {
        return epoch <= epoch_.load(std::memory_order_relaxed) + 1;
    }
    void database_away(const ErrorInfo& error);
    [[nodiscard]] bool looks_for_tables(const std::stop_token& stop, const ErrorInfo& error);
    void lease_lost(std::uint64_t epoch);
    /// A pause, longer each time, where it is one of many.
    void server_changed(const std::stop_token& stop, const ErrorInfo& error);
    void database_back();

    spi::Source& source_;
    std::vector<RouteSpec> routes_;
    RelayOptions options_;
    const core::Clock& clock_;
    Notify notify_;
    std::vector<std::unique_ptr<RouteStats>> stats_;
    std::int64_t open_wait_ms_ = 0;  // after a term that could not be opened
    int changes_ = 0;                // of the server, soon behind each other
    std::int64_t changed_us_ = 0;
    std::int64_t changed_wait_ms_ = 0;
    /// How long a route's thread has not moved while ours did.
    struct Still {
        std::int64_t step_us = 0;
        std::int64_t for_us = 0;
    };
    std::vector<Still> still_;
    bool misses_tables_ = false;  // the last term ended by a table that was not there
    LeaseView lease_view_;
    LeaseKeeper lease_;

    std::atomic<bool> leading_{false};
    std::atomic<bool> has_term_{false};  // there are threads of routes
    std::atomic<bool> hangs_{false};
    std::atomic<bool> database_{false};
    std::atomic<std::uint64_t> epoch_{0};
    std::atomic<std::int64_t> loop_us_{0};
    mutable core::Mutex mutex_;
    std::string database_error_ OUTBOX_GUARDED_BY(mutex_);
    spi::Recorder::Stats database_stats_ OUTBOX_GUARDED_BY(mutex_);
};

}  // namespace outbox::relay
