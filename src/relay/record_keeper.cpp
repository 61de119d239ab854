#include "relay/record_keeper.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_set>
#include <utility>

namespace outbox::relay {

namespace {
constexpr Position kNoEnd = std::numeric_limits<Position>::max();
constexpr std::size_t kPartOfWindow = 4;
}  // namespace

RecordKeeper::RecordKeeper(Deps deps, std::span<const RouteSpec> routes,
                           std::span<RouteStats* const> stats, const RelayOptions& options,
                           std::vector<spi::PositionSet> ledgers, std::vector<Position> settled,
                           std::uint64_t epoch)
    : deps_(deps),
      routes_(routes),
      stats_(stats),
      options_(options),
      ledgers_(std::move(ledgers)),
      settled_to_(std::move(settled)),
      taken_(routes.size()),
      settled_(routes.size()) {
    batch_.epoch = epoch;
    for (std::size_t route = 0; route < stats_.size(); ++route) {
        stats_[route]->settled.store(settled_to_.empty() ? 0 : settled_to_[route],
                                     std::memory_order_relaxed);
    }
    if (!settled_to_.empty()) over_ = ledgers_;
    if (ledgers_.empty() || !settled_to_.empty()) return;
    // What the last owner had no time to remove.
    spi::PositionSet everywhere = ledgers_.front();
    for (const spi::PositionSet& ledger : ledgers_) everywhere.keep_common(ledger);
    deps_.remover.inherit(std::move(everywhere));
}

Status RecordKeeper::turn(std::chrono::milliseconds max_wait) {
    if (!pending_) {
        // The next record may need the room of these.
        const std::size_t part = options_.max_unrecorded / kPartOfWindow;
        deps_.queue.take(std::clamp<std::size_t>(part, 1, options_.record_batch), max_wait, taken_);
        build();
    }
    if (!pending_) return {};
    if (Status status = deps_.recorder.record(batch_); !status.ok()) return status;
    pending_ = false;
    if (settled_to_.empty()) {
        deps_.remover.push(finished_everywhere_);
    } else {
        for (const spi::Finished& one : batch_.finished) over_[one.route].add(one.positions);
        settle_positions();
    }
    answer();
    return {};
}

// What lies at or below it is read by nobody any more: the database alone needs to know of it.
void RecordKeeper::settle_positions() {
    for (std::size_t route = 0; route < settled_to_.size(); ++route) {
        std::vector<spi::PositionRange> open;
        over_[route].append_missing({settled_to_[route] + 1, kNoEnd}, 1, open);
        const Position to = open.front().first - 1;
        if (to == settled_to_[route]) continue;
        settled_to_[route] = to;
        over_[route].remove_segments_below(to);
        ledgers_[route].remove_segments_below(to);
        stats_[route]->settled.store(to, std::memory_order_relaxed);
    }
}

void RecordKeeper::build() {
    finished_everywhere_.clear();
    removed_.clear();
    deps_.remover.take_removed(removed_);
    for (spi::PositionSet& ledger : ledgers_) ledger.remove(removed_);
    for (std::size_t route = 0; route < taken_.size(); ++route) build_route(route);
    pending_ = !batch_.empty();
    if (pending_) return;
    settle_positions();
    answer();  // all of it was in the ledgers
}

void RecordKeeper::build_route(std::size_t route) {
    Outcomes& outcomes = taken_[route];
    keep_last_failures(outcomes);
    if (!settled_to_.empty()) {
        for (const spi::PositionRange& range : outcomes.closed) {
            if (range.last <= settled_to_[route]) continue;
            over_[route].add({std::max(range.first, settled_to_[route] + 1), range.last});
        }
    }
    spi::Finished finished{route, outcomes.finished, std::move(outcomes.passed)};
    if (!ledgers_.empty()) take_into_ledger(route, finished.positions);
    if (!finished.positions.empty()) batch_.finished.push_back(std::move(finished));
    const auto move_all = [](auto& to, auto& from) {
        to.insert(to.end(), std::make_move_iterator(from.begin()),
                  std::make_move_iterator(from.end()));
        from.clear();
    };
    move_all(batch_.failed, outcomes.failed);
    move_all(batch_.dead, outcomes.dead);
    for (const std::int64_t dead_id : outcomes.redelivered) settle(dead_id, route, true);
    for (spi::Delivery& failed : outcomes.failed_again) {
        settle(failed.position, route, false);
        batch_.failed_again.push_back(std::move(failed));
    }
    if (!outcomes.destination.empty()) {
        batch_.destinations.emplace_back(route, std::move(outcomes.destination));
        outcomes.destination.clear();
    }
}

// A letter that several routes were to take goes when all have it.
void RecordKeeper::settle(std::int64_t dead_id, std::size_t route, bool delivered) {
    OutcomeQueue::Handed handed = deps_.queue.answered(dead_id, route, delivered);
    if (!handed.settled) return;
    if (handed.delivered) batch_.redelivered.push_back(dead_id);
    for (const std::size_t told : handed.routes) settled_[told].push_back(dead_id);
}

// What stands there already needs no second record, and its row is on its way out or waits for
// another route.
void RecordKeeper::take_into_ledger(std::size_t route, std::vector<Position>& finished) {
    std::erase_if(finished, [&](Position position) {
        if (!ledgers_[route].add(position)) return true;
        const bool everywhere =
            std::all_of(ledgers_.begin(), ledgers_.end(),
                        [&](const spi::PositionSet& ledger) { return ledger.contains(position); });
        if (everywhere) finished_everywhere_.push_back(position);
        return false;
    });
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
        stats_[route]->dead.fetch_add(outcomes.dead_lanes.size() + outcomes.failed_again.size(),
                                      std::memory_order_relaxed);
        Feedback feedback;
        feedback.recorded = std::move(outcomes.finished);
        feedback.dead_lanes = std::move(outcomes.dead_lanes);
        feedback.settled = std::exchange(settled_[route], {});
        if (!feedback.empty()) deps_.queue.answer(route, std::move(feedback));
        outcomes.clear();
    }
    const std::uint64_t epoch = batch_.epoch;
    batch_ = spi::RecordBatch{};
    batch_.epoch = epoch;
}

void RecordKeeper::forget_below(spi::Position lowest) {
    if (lowest <= lowest_) return;
    lowest_ = lowest;
    for (spi::PositionSet& ledger : ledgers_) ledger.remove_segments_below(lowest);
}

}  // namespace outbox::relay
