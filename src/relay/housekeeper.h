#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "core/clock.h"
#include "core/mutex.h"
#include "relay/options.h"
#include "relay/outcome_queue.h"
#include "relay/route_stats.h"

namespace outbox::relay {

/// What a table says of finished rows that it lets nobody mark or remove; empty: it does again.
[[nodiscard]] Note rows_refused(const std::string& refusal);

/// What an owner does beside the path of events: moves delayed events that are due, hands over dead
/// letters that an operator wants sent again, saves stats, prunes. On a thread and a connection
/// of its own, so that a slow statement delays no event. `turn` belongs to one thread.
class Housekeeper {
  public:
    struct Deps {
        spi::Recorder& recorder;
        OutcomeQueue& queue;
        const core::Clock& clock;
        const Notify& notify;
        bool prunes = true;  ///< `turn` does; else another thread is to call `prune`.
    };

    Housekeeper(Deps deps, std::span<const RouteSpec> routes, std::span<RouteStats* const> stats,
                const RelayOptions& options, std::uint64_t epoch);

    /// Tells the routes which tenants are paused where that has changed, and says it.
    Status tell_paused();
    /// Does what is due.
    Status turn();
    /// Writes down what routes did since the last look: nothing follows.
    Status tell_last() { return save_stats(deps_.clock.boot_us(), true); }
    /// Removes by `recorder` what is old enough, where that is due. Of one thread.
    void prune(spi::Recorder& recorder);

    /// The database's stats as last read, at most a few seconds old. Any thread.
    [[nodiscard]] spi::Recorder::Stats database_stats() const;
    /// No row is there below it; 0: not known. Any thread.
    [[nodiscard]] spi::Position lowest() const { return lowest_.load(std::memory_order_relaxed); }

  private:
    // A route's dead letters that are to be sent again, gone through again and again.
    struct Lap {
        std::int64_t to = 0;  // the last one that was handed over
        bool paused = false;  // since then
        std::int64_t next_us = 0;
        std::uint64_t look = 0;               // that found the last ones
        std::vector<std::size_t> offered_to;  // these, to routes
    };

    void offer(std::size_t route, spi::DeadLetter&& letter, std::vector<Feedback>& feedback);
    Status redeliver(std::int64_t now_us);
    Status look_for_letters(std::size_t route, std::int64_t now_us,
                            std::vector<Feedback>& feedback);
    Status tell_destinations();
    Status save_stats(std::int64_t now_us, bool last);
    Status bear(const char* chore, const Status& status);
    Status look_at_stats();

    Deps deps_;
    std::span<const RouteSpec> routes_;
    std::span<RouteStats* const> stats_;
    const RelayOptions& options_;
    const std::uint64_t epoch_;

    std::int64_t next_due_us_ = 0;
    std::int64_t next_look_us_ = 0;
    std::int64_t next_redelivery_us_ = 0;
    std::int64_t next_dead_keys_us_ = 0;
    std::int64_t next_prune_us_ = 0;
    std::int64_t next_stats_us_ = 0;
    std::int64_t next_tidy_us_ = 0;
    std::int64_t last_saved_us_ = 0;
    std::int64_t prune_wait_us_ = 0;
    std::string prune_error_;
    std::map<std::string, std::string, std::less<>> told_failures_;  // by chore
    std::string told_refusal_;
    std::string told_due_refusal_;
    std::vector<Lap> laps_;                  // by route
    std::vector<std::string> names_;         // of the routes
    std::vector<std::string> destinations_;  // as told to them
    std::vector<std::string> paused_;        // tenants; likewise
    struct Told {
        std::uint64_t published = 0;
        std::uint64_t dead = 0;
        std::uint64_t errors = 0;
        std::string circuit;
        double rate = 0;
        spi::ReadPath path;
        spi::Position settled = 0;
    };
    std::vector<Told> told_;
    std::atomic<spi::Position> lowest_{0};
    mutable core::Mutex stats_mutex_;
    spi::Recorder::Stats database_stats_ OUTBOX_GUARDED_BY(stats_mutex_);
};

}  // namespace outbox::relay
