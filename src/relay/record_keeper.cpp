#include "relay/record_keeper.h"

#include <algorithm>
#include <utility>

#include "core/circuit.h"

namespace outbox::relay {

namespace {

constexpr std::int64_t kDueEveryUs = 100'000;
constexpr std::int64_t kLookEveryUs = 1'000'000;
constexpr std::int64_t kStatsEveryUs = 5'000'000;
constexpr std::int64_t kPruneEveryUs = 60'000'000;
constexpr std::size_t kDueLimit = 1'000;
constexpr std::size_t kPruneLimit = 1'000;
constexpr std::size_t kRedeliverLimit = 100;
constexpr std::size_t kMaxLedgerRanges = 10'000;

const char* circuit_name(int state) {
    switch (static_cast<core::Circuit::State>(state)) {
        case core::Circuit::State::kClosed:
            return "closed";
        case core::Circuit::State::kOpen:
            return "open";
        case core::Circuit::State::kHalfOpen:
            return "half_open";
    }
    return "closed";
}

}  // namespace

RecordKeeper::RecordKeeper(Deps deps, std::span<const RouteSpec> routes,
                           std::span<RouteStats* const> stats, const RelayOptions& options,
                           std::vector<core::Ledger> ledgers, std::uint64_t epoch)
    : deps_(deps),
      routes_(routes),
      stats_(stats),
      options_(options),
      ledgers_(std::move(ledgers)),
      inherited_(ledgers_),
      checkpoints_(!ledgers_.empty()),
      taken_(routes.size()),
      dead_lanes_(routes.size()),
      told_(routes.size()) {
    batch_.epoch = epoch;
    if (routes.size() > 1) ledgers_.resize(routes.size());
    for (std::size_t route = 0; route < routes.size(); ++route) {
        told_[route].published = stats[route]->published.load(std::memory_order_relaxed);
        told_[route].dead = stats[route]->dead.load(std::memory_order_relaxed);
    }
}

Status RecordKeeper::turn(std::chrono::milliseconds max_wait) {
    if (!pending_) {
        deps_.queue.take(options_.record_batch, max_wait, taken_);
        build();
    }
    if (pending_) {
        if (Status status = deps_.recorder.record(batch_); !status.ok()) return status;
        pending_ = false;
        answer();
    }
    return chores(deps_.clock.boot_us());
}

void RecordKeeper::build() {
    bool finished = false;
    for (std::size_t route = 0; route < taken_.size(); ++route) {
        finished = finished || !taken_[route].finished.empty();
        build_route(route);
    }
    if (checkpoints_ && finished) {
        // What one route finishes last leaves the ledgers of the others: all of them go together.
        for (std::size_t route = 0; route < taken_.size(); ++route) {
            batch_.checkpoints.push_back({routes_[route].name, ledgers_[route].ranges()});
        }
    }
    pending_ = !batch_.empty();
    if (!pending_ && finished) answer();  // no ledger to write: positions are not stable
}

void RecordKeeper::build_route(std::size_t route) {
    Outcomes& outcomes = taken_[route];
    for (const spi::DeadLetter& letter : outcomes.dead) dead_somewhere_.insert(letter.position);
    finished_.assign(outcomes.finished.begin(), outcomes.finished.end());
    if (!inherited_.empty()) {
        // The route met a row that it had finished for the last owner, and whose removal, by the
        // route that finished it last, is already on its way.
        std::erase_if(finished_, [&](Position position) {
            return inherited_[route].contains(position) && !ledgers_[route].contains(position);
        });
    }
    if (!ledgers_.empty()) ledgers_[route].add(finished_);
    finished_everywhere_.clear();
    for (const Position position : finished_) {
        bool everywhere = true;
        for (std::size_t other = 0; other < ledgers_.size() && everywhere; ++other) {
            everywhere = other == route || ledgers_[other].contains(position);
        }
        if (!everywhere) continue;
        finished_everywhere_.push_back(position);
        const bool dead = !dead_somewhere_.empty() && dead_somewhere_.erase(position) > 0;
        (dead ? batch_.dead_positions : batch_.published).push_back(position);
    }
    // From here on the absence of the row says that they are finished, so that a ledger holds only
    // what this route has finished and another has not.
    for (core::Ledger& ledger : ledgers_) ledger.remove(finished_everywhere_);
    keep_last_failures(outcomes);
    const auto move_all = [](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()),
                  std::make_move_iterator(from.end()));
        from.clear();
    };
    move_all(batch_.failed, outcomes.failed);
    move_all(batch_.dead, outcomes.dead);
    move_all(batch_.redelivered, outcomes.redelivered);
    move_all(batch_.failed_again, outcomes.failed_again);
    dead_lanes_[route] = std::move(outcomes.dead_lanes);
    outcomes.dead_lanes.clear();
}

// An event may have failed twice since the last batch, or failed and then been settled.
void RecordKeeper::keep_last_failures(Outcomes& outcomes) {
    if (outcomes.failed.empty()) return;
    std::unordered_set<Position> later(outcomes.finished.begin(), outcomes.finished.end());
    for (auto it = outcomes.failed.rbegin(); it != outcomes.failed.rend(); ++it) {
        if (!later.insert(it->position).second) it->position = 0;
    }
    std::erase_if(outcomes.failed, [](const spi::Delivery& d) { return d.position == 0; });
}

void RecordKeeper::answer() {
    for (std::size_t route = 0; route < taken_.size(); ++route) {
        Outcomes& outcomes = taken_[route];
        const bool full = !ledgers_.empty() && ledgers_[route].ranges().size() > kMaxLedgerRanges;
        stats_[route]->dead.fetch_add(dead_lanes_[route].size(), std::memory_order_relaxed);
        deps_.queue.answer(
            route,
            {std::move(outcomes.finished), std::move(dead_lanes_[route]), {}, std::nullopt, full});
        outcomes.clear();
        dead_lanes_[route].clear();
    }
    const std::uint64_t epoch = batch_.epoch;
    batch_ = spi::RecordBatch{};
    batch_.epoch = epoch;
}

Status RecordKeeper::chores(std::int64_t now_us) {
    const auto removals = deps_.recorder.retry_removals();
    if (!removals.ok()) return removals.status();
    removals_ = *removals;
    if (now_us >= next_due_us_) {
        const auto moved = deps_.recorder.move_due(batch_.epoch, kDueLimit);
        if (!moved.ok()) return moved.status();
        next_due_us_ = *moved == kDueLimit ? now_us : now_us + kDueEveryUs;
    }
    if (now_us >= next_look_us_) {
        next_look_us_ = now_us + kLookEveryUs;
        if (Status status = redeliver(); !status.ok()) return status;
        if (Status status = save_figures(now_us); !status.ok()) return status;
    }
    if (now_us >= next_stats_us_) {
        next_stats_us_ = now_us + kStatsEveryUs;
        const auto stats = deps_.recorder.stats();
        if (!stats.ok()) return stats.status();
        const std::scoped_lock lock(figures_mutex_);
        figures_ = *stats;
    }
    if (now_us >= next_prune_us_) {
        const auto pruned =
            deps_.recorder.prune(std::chrono::seconds(options_.retention_s), kPruneLimit);
        if (!pruned.ok()) return pruned.status();
        next_prune_us_ = *pruned == kPruneLimit ? now_us : now_us + kPruneEveryUs;
    }
    return {};
}

Status RecordKeeper::redeliver() {
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        auto letters = deps_.recorder.load_redeliveries(routes_[route].name, kRedeliverLimit);
        if (!letters.ok()) return letters.status();
        Feedback feedback;
        feedback.redeliver = std::move(*letters);
        if (routes_[route].on_dead_letter == OnDeadLetter::kBlockKey) {
            auto keys = deps_.recorder.load_dead_keys(routes_[route].name);
            if (!keys.ok()) return keys.status();
            feedback.dead_keys = std::move(*keys);
        }
        if (!feedback.empty()) deps_.queue.answer(route, std::move(feedback));
    }
    return {};
}

Status RecordKeeper::save_figures(std::int64_t now_us) {
    std::vector<spi::RouteFigures> figures;
    const double seconds = static_cast<double>(now_us - last_figures_us_) / 1e6;
    std::vector<Told> telling = told_;
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        const RouteStats& stats = *stats_[route];
        Told& told = telling[route];
        const std::uint64_t published = stats.published.load(std::memory_order_relaxed);
        const std::uint64_t dead = stats.dead.load(std::memory_order_relaxed);
        const std::string circuit = circuit_name(stats.circuit.load(std::memory_order_relaxed));
        const double rate = static_cast<double>(published - told.published) / seconds;
        spi::ReadPath path = stats.path();
        if (dead == told.dead && circuit == told.circuit && rate == told.rate &&
            path == told.path) {
            continue;
        }
        figures.push_back({routes_[route].name, published - told.published, dead - told.dead,
                           circuit, stats.last_error(), rate, path});
        told = {published, dead, circuit, rate, std::move(path)};
    }
    last_figures_us_ = now_us;
    if (figures.empty()) return {};
    if (Status status = deps_.recorder.save_figures(batch_.epoch, figures); !status.ok()) {
        return status;
    }
    told_ = std::move(telling);
    return {};
}

spi::Recorder::Stats RecordKeeper::figures() const {
    const std::scoped_lock lock(figures_mutex_);
    return figures_;
}

}  // namespace outbox::relay
