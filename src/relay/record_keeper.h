#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <unordered_set>
#include <vector>

#include <outbox/spi/source.h>

#include "core/clock.h"
#include "core/ledger.h"
#include "relay/options.h"
#include "relay/outcome_queue.h"
#include "relay/route_stats.h"

namespace outbox::relay {

/// Brings the routes' outcomes to the database: the end of an event's path. An event leaves the
/// table when every route has finished it, in the transaction that moves the routes' ledgers.
/// Between batches it does the owner's chores. One thread at a time.
class RecordKeeper {
  public:
    struct Deps {
        spi::Recorder& recorder;
        OutcomeQueue& queue;
        const core::Clock& clock;
        const Notify& notify;
    };

    /// `ledgers` are the routes' ledgers as the last owner left them; none when positions are not
    /// stable or there is one route, whose ledger is the absence of the row.
    RecordKeeper(Deps deps, std::span<const RouteSpec> routes, std::span<RouteStats* const> stats,
                 const RelayOptions& options, std::vector<core::Ledger> ledgers,
                 std::uint64_t epoch);

    /// Waits up to `max_wait` for outcomes, records them, then does the chores that are due.
    /// After an error nothing is lost: the next turn goes on with the same batch.
    Status turn(std::chrono::milliseconds max_wait);

    /// All outcomes are in the database; some rows may still have to be removed once they are
    /// visible.
    [[nodiscard]] bool recorded() const { return !pending_ && deps_.queue.empty(); }
    /// Nothing is on its way to the database.
    [[nodiscard]] bool idle() const { return removals_ == 0 && recorded(); }

    /// The database's figures as last read, at most a few seconds old. Any thread.
    [[nodiscard]] spi::Recorder::Stats figures() const;

  private:
    void build();
    void build_route(std::size_t route);
    static void keep_last_failures(Outcomes& outcomes);
    void answer();
    Status chores(std::int64_t now_us);
    Status redeliver();
    Status save_figures(std::int64_t now_us);

    Deps deps_;
    std::span<const RouteSpec> routes_;
    std::span<RouteStats* const> stats_;
    const RelayOptions& options_;
    std::vector<core::Ledger> ledgers_;    // empty with one route
    std::vector<core::Ledger> inherited_;  // as they were at the start
    bool checkpoints_ = false;

    std::vector<Outcomes> taken_;
    spi::RecordBatch batch_;
    std::vector<std::vector<core::LaneKey>> dead_lanes_;
    std::size_t removals_ = 0;  // that have to be tried again
    bool pending_ = false;      // batch_ is built and not yet recorded
    std::unordered_set<Position> dead_somewhere_;
    std::vector<Position> finished_;             // scratch of `build_route`
    std::vector<Position> finished_everywhere_;  // likewise

    std::int64_t next_due_us_ = 0;
    std::int64_t next_look_us_ = 0;
    std::int64_t next_prune_us_ = 0;
    std::int64_t next_stats_us_ = 0;
    std::int64_t last_figures_us_ = 0;
    struct Told {
        std::uint64_t published = 0;
        std::uint64_t dead = 0;
        std::string circuit;
        double rate = 0;
        spi::ReadPath path;
    };
    std::vector<Told> told_;
    mutable std::mutex figures_mutex_;
    spi::Recorder::Stats figures_;
};

}  // namespace outbox::relay
