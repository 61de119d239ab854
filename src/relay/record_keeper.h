#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <outbox/spi/source.h>

#include "relay/options.h"
#include "relay/outcome_queue.h"
#include "relay/remover.h"
#include "relay/route_stats.h"

namespace outbox::relay {

/// Brings the routes' outcomes to the database: the end of an event's path. What a route has
/// finished goes into its ledger, and that is the record; rows that every route has finished are
/// handed to the remover once it is committed. One thread at a time.
class RecordKeeper {
  public:
    struct Deps {
        spi::Recorder& recorder;
        OutcomeQueue& queue;
        Remover& remover;
    };

    /// `ledgers` are the routes' ledgers as the last owner left them; none where positions are not
    /// stable: the recorder then ends the rows itself. `settled`: up to where each route had
    /// settled all, of a source that keeps its rows; else empty, and finished rows are removed.
    RecordKeeper(Deps deps, std::span<const RouteSpec> routes, std::span<RouteStats* const> stats,
                 const RelayOptions& options, std::vector<spi::PositionSet> ledgers,
                 std::vector<Position> settled, std::uint64_t epoch);

    /// Waits up to `max_wait` for outcomes and records them. After an error nothing is lost: the
    /// next turn goes on with the same batch.
    Status turn(std::chrono::milliseconds max_wait);

    /// No row is there below it: what ledgers say of positions there speaks of nothing.
    void forget_below(spi::Position lowest);

    /// All outcomes are in the database.
    [[nodiscard]] bool idle() const { return !pending_ && deps_.queue.empty(); }

  private:
    void build();
    void build_route(std::size_t route);
    void settle(std::int64_t dead_id, std::size_t route, bool delivered);
    static void keep_last_failures(Outcomes& outcomes);
    void take_into_ledger(std::size_t route, std::vector<Position>& finished);
    void settle_positions();
    void answer();

    Deps deps_;
    std::span<const RouteSpec> routes_;
    std::span<RouteStats* const> stats_;
    const RelayOptions& options_;
    std::vector<spi::PositionSet> ledgers_;  // empty where positions are not stable
    spi::Position lowest_ = 0;
    // Of a source that keeps its rows, by route: up to where all is finished or never comes, and
    // what is so above that.
    std::vector<Position> settled_to_;
    std::vector<spi::PositionSet> over_;

    std::vector<Outcomes> taken_;
    std::vector<std::vector<std::int64_t>> settled_;  // retried dead letters, by route to be told
    spi::RecordBatch batch_;
    std::vector<Position> finished_everywhere_;  // of the batch
    std::vector<Position> removed_;              // scratch
    bool pending_ = false;                       // batch_ is built and not yet recorded
};

}  // namespace outbox::relay
