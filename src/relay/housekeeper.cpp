#include "relay/housekeeper.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/circuit.h"

namespace outbox::relay {

namespace {

constexpr std::int64_t kDueEveryUs = 100'000;
constexpr std::int64_t kLookEveryUs = 1'000'000;
constexpr std::int64_t kRedeliverAgainUs = 20'000;  // while there are more
constexpr std::int64_t kStatsEveryUs = 5'000'000;
constexpr std::int64_t kTidyEveryUs = 1'000'000;
constexpr std::int64_t kPruneEveryUs = 60'000'000;
constexpr std::int64_t kPruneRetryMaxUs = 3'600'000'000;
constexpr std::size_t kDueLimit = 1'000;
constexpr std::size_t kPruneLimit = 1'000;
constexpr std::size_t kMaxRedelivering = 500;  // of one route at a time
constexpr std::size_t kRedeliverLimit = 100;

Note delayed_refused(const std::string& refusal) {
    if (refusal.empty()) return {Note::Level::kInfo, "delayed_refused_no_more", {}};
    return {Note::Level::kWarning,
            "delayed_refused",
            {{"error", refusal},
             {"consequence",
              "these delayed events are not delivered: they wait where they are, "
              "in outbox_scheduled"},
             {"remedy",
              "see the outbox table's triggers, constraints and indexes; it is tried "
              "again each minute"}}};
}

}  // namespace

Note rows_refused(const std::string& refusal) {
    if (refusal.empty()) return {Note::Level::kInfo, "rows_refused_no_more", {}};
    return {
        Note::Level::kWarning,
        "rows_refused",
        {{"error", refusal},
         {"consequence", "the events are delivered and recorded; these rows stay as they are"},
         {"remedy",
          "unless the error is a lock that somebody held for too long, see the table's triggers, "
          "constraints and foreign keys; it is tried again"}}};
}

Housekeeper::Housekeeper(Deps deps, std::span<const RouteSpec> routes,
                         std::span<RouteStats* const> stats, const RelayOptions& options,
                         std::uint64_t epoch)
    : deps_(deps),
      routes_(routes),
      stats_(stats),
      options_(options),
      epoch_(epoch),
      laps_(routes.size()),
      told_(routes.size()) {
    for (std::size_t route = 0; route < routes.size(); ++route) {
        told_[route].published = stats[route]->published.load(std::memory_order_relaxed);
        told_[route].errors = stats[route]->error_count();
        told_[route].dead = stats[route]->dead.load(std::memory_order_relaxed);
        told_[route].settled = stats[route]->settled.load(std::memory_order_relaxed);
        names_.push_back(routes[route].name);
    }
}

Status Housekeeper::turn() {
    const std::int64_t now_us = deps_.clock.boot_us();
    if (now_us >= next_due_us_) {
        const auto moved = deps_.recorder.move_due(epoch_, kDueLimit);
        if (Status status = bear("delayed events", moved.status()); !status.ok()) return status;
        next_due_us_ = !moved.ok()           ? now_us + kLookEveryUs
                       : *moved == kDueLimit ? now_us
                                             : now_us + kDueEveryUs;
    }
    if (now_us >= next_redelivery_us_) {
        next_redelivery_us_ = now_us + kLookEveryUs;
        const Status status = bear("dead letters to be sent again", redeliver(now_us));
        if (!status.ok()) return status;
    }
    if (now_us >= next_look_us_) {
        next_look_us_ = now_us + kLookEveryUs;
        if (Status status = tell_destinations(); !status.ok()) return status;
        if (Status paused = tell_paused(); !paused.ok()) return paused;
        const Status status = bear("figures of routes", save_stats(now_us, false));
        if (!status.ok()) return status;
    }
    if (now_us >= next_stats_us_) {
        next_stats_us_ = now_us + kStatsEveryUs;
        const Status status = bear("figures of the table", look_at_stats());
        if (!status.ok()) return status;
    }
    if (now_us >= next_tidy_us_) {
        next_tidy_us_ = now_us + kTidyEveryUs;
        const auto lowest = deps_.recorder.tidy(epoch_);
        if (Status status = bear("tidying", lowest.status()); !status.ok()) return status;
        if (lowest.ok()) lowest_.store(*lowest, std::memory_order_relaxed);
    }
    if (deps_.prunes) prune(deps_.recorder);
    return {};
}

// None of this reads, sends or records an event: that the database refuses it is told and tried
// again, and ends no term. That it is away, or another's, does.
Status Housekeeper::bear(const char* chore, const Status& status) {
    std::string& told = told_failures_[chore];
    if (status.ok()) {
        told.clear();
        return {};
    }
    const ErrorInfo& met = status.error();
    const bool refused = met.code == ErrorCode::kQueryFailed || met.code == ErrorCode::kNoRights;
    if (!refused || met.advice == Advice::kRetryDestination) return status;
    const std::string error = describe(met);
    if (error != told) {
        deps_.notify({Note::Level::kWarning,
                      "housekeeping_failed",
                      {{"what", chore},
                       {"error", error},
                       {"consequence", "all else goes on; it is tried again"}}});
    }
    told = error;
    return {};
}

Status Housekeeper::redeliver(std::int64_t now_us) {
    const bool look_at_keys = now_us >= next_dead_keys_us_;
    if (look_at_keys) next_dead_keys_us_ = now_us + kLookEveryUs;
    std::int64_t next_us = next_dead_keys_us_;
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        Lap& lap = laps_[route];
        const bool at_letters = now_us >= lap.next_us;
        const bool at_keys =
            look_at_keys && routes_[route].on_dead_letter == OnDeadLetter::kBlockKey;
        std::vector<Feedback> all(at_letters || at_keys ? routes_.size() : 0);
        const std::uint64_t look = all.empty() ? 0 : deps_.queue.begin_look();
        if (at_letters) {
            if (Status status = look_for_letters(route, now_us, all); !status.ok()) return status;
        }
        if (at_keys) {
            auto keys = deps_.recorder.load_dead_keys(routes_[route].name);
            if (!keys.ok()) return keys.status();
            all[route].dead_keys = std::move(*keys);
        }
        for (std::size_t to = 0; to < all.size(); ++to) {
            if (!all[to].redeliver.empty()) {
                lap.look = look;
                lap.offered_to.push_back(to);
            }
            all[to].look = look;
            all[to].keys_look = look;
            if (!all[to].empty()) deps_.queue.answer(to, std::move(all[to]));
        }
        next_us = std::min(next_us, lap.next_us);
    }
    next_redelivery_us_ = next_us;
    return {};
}

// A letter is offered until it is settled: behind the last one the lap begins anew, after a pause.
// A look that finds fewer than it asks for need not have reached the end, as these may be large.
Status Housekeeper::look_for_letters(std::size_t route, std::int64_t now_us,
                                     std::vector<Feedback>& feedback) {
    Lap& lap = laps_[route];
    lap.next_us = now_us + kRedeliverAgainUs;
    const auto under_way =
        static_cast<std::size_t>(stats_[route]->redelivering.load(std::memory_order_relaxed));
    const std::size_t limit =
        std::min(kRedeliverLimit, kMaxRedelivering - std::min(kMaxRedelivering, under_way));
    // What still waits for a thread is held in memory, and is not to be loaded a second time.
    const bool taken =
        std::all_of(lap.offered_to.begin(), lap.offered_to.end(),
                    [&](std::size_t to) { return deps_.queue.has_taken(to, lap.look); });
    if (limit == 0 || !taken) return {};
    lap.offered_to.clear();
    const std::string& name = routes_[route].name;
    auto letters = deps_.recorder.load_redeliveries(name, lap.to, limit);
    if (letters.ok() && letters->empty() && lap.to != 0 && lap.paused) {
        letters = deps_.recorder.load_redeliveries(name, 0, limit);
    }
    if (!letters.ok()) return letters.status();
    lap.to = letters->empty() ? 0 : letters->back().dead_id;
    lap.paused = letters->size() < limit;
    if (lap.paused) lap.next_us = now_us + kLookEveryUs;
    for (spi::DeadLetter& letter : *letters) offer(route, std::move(letter), feedback);
    return {};
}

// What no route took goes to those that take it by now, and to the route that keeps it where there
// is still none: there it dies again.
void Housekeeper::offer(std::size_t route, spi::DeadLetter&& letter,
                        std::vector<Feedback>& feedback) {
    std::vector<std::size_t> takers;
    if (letter.unmatched && !letter.event.empty()) {
        for (std::size_t to = 0; to < routes_.size(); ++to) {
            if (routes_[to].predicate.matches(letter.event.events()[0])) takers.push_back(to);
        }
    }
    if (takers.empty()) {
        feedback[route].redeliver.push_back(std::move(letter));
        return;
    }
    for (const std::size_t to : deps_.queue.hand_over(letter.dead_id, takers)) {
        spi::DeadLetter copy;
        copy.dead_id = letter.dead_id;
        copy.route = letter.route;
        copy.position = letter.position;
        copy.attempts = letter.attempts;
        copy.error_code = letter.error_code;
        copy.error = letter.error;
        copy.unmatched = letter.unmatched;
        copy.event.add_copy(letter.event.events()[0]);
        feedback[to].redeliver.push_back(std::move(copy));
    }
}

// An operator may have accepted another destination.
Status Housekeeper::tell_destinations() {
    auto destinations = deps_.recorder.destinations(names_);
    if (!destinations.ok()) return destinations.status();
    for (std::size_t route = 0; route < destinations->size(); ++route) {
        if (route < destinations_.size() && destinations_[route] == (*destinations)[route]) {
            continue;
        }
        Feedback feedback;
        feedback.destination = (*destinations)[route];
        deps_.queue.answer(route, std::move(feedback));
    }
    destinations_ = std::move(*destinations);
    return {};
}

// Where it cannot be read, that is told, and those that were paused stay so.
Status Housekeeper::tell_paused() {
    auto paused = deps_.recorder.load_paused_tenants();
    if (!paused.ok()) return bear("pauses of tenants", paused.status());
    static_cast<void>(bear("pauses of tenants", {}));
    if (*paused == paused_) return {};
    const auto tell = [this](const char* what, const std::vector<std::string>& of,
                             const std::vector<std::string>& not_of) {
        for (const std::string& tenant : of) {
            if (std::find(not_of.begin(), not_of.end(), tenant) != not_of.end()) continue;
            deps_.notify({Note::Level::kInfo, what, {{"tenant", tenant}}});
        }
    };
    // What is said is so from each route's next turn on.
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        Feedback feedback;
        feedback.paused = *paused;
        deps_.queue.answer(route, std::move(feedback));
    }
    tell("tenant_paused", *paused, paused_);
    tell("tenant_resumed", paused_, *paused);
    paused_ = std::move(*paused);
    return {};
}

Status Housekeeper::look_at_stats() {
    const auto stats = deps_.recorder.stats();
    if (!stats.ok()) return stats.status();
    if (stats->refusal != told_refusal_) {
        told_refusal_ = stats->refusal;
        deps_.notify(rows_refused(told_refusal_));
    }
    if (stats->due_refusal != told_due_refusal_) {
        told_due_refusal_ = stats->due_refusal;
        deps_.notify(delayed_refused(told_due_refusal_));
    }
    const core::Lock lock(stats_mutex_);
    database_stats_ = *stats;
    return {};
}

// Never in the way of anything else: what goes wrong is told once, and tried again later and later.
void Housekeeper::prune(spi::Recorder& recorder) {
    const std::int64_t now_us = deps_.clock.boot_us();
    if (now_us < next_prune_us_) return;
    const auto pruned = recorder.prune(std::chrono::seconds(options_.retention_s), kPruneLimit);
    if (pruned.ok()) {
        prune_wait_us_ = 0;
        prune_error_.clear();
        next_prune_us_ = *pruned == kPruneLimit ? now_us : now_us + kPruneEveryUs;
        return;
    }
    prune_wait_us_ = std::clamp(prune_wait_us_ * 2, kPruneEveryUs, kPruneRetryMaxUs);
    next_prune_us_ = now_us + prune_wait_us_;
    const std::string error = describe(pruned.error());
    if (error == prune_error_) return;
    prune_error_ = error;
    deps_.notify(
        {Note::Level::kWarning,
         "prune_failed",
         {{"error", error}, {"consequence", "published rows older than the retention stay"}}});
}

Status Housekeeper::save_stats(std::int64_t now_us, bool last) {
    std::vector<spi::SavedStats> saved;
    const double seconds = static_cast<double>(now_us - last_saved_us_) / 1e6;
    std::vector<Told> telling = told_;
    for (std::size_t route = 0; route < routes_.size(); ++route) {
        const RouteStats& stats = *stats_[route];
        Told& told = telling[route];
        const std::uint64_t published = stats.published.load(std::memory_order_relaxed);
        const std::uint64_t dead = stats.dead.load(std::memory_order_relaxed);
        const std::string circuit =
            core::Circuit::name(stats.circuit.load(std::memory_order_relaxed));
        const double rate = last ? 0 : static_cast<double>(published - told.published) / seconds;
        const std::uint64_t errors = stats.error_count();
        spi::ReadPath path = stats.path();
        const spi::Position settled = stats.settled.load(std::memory_order_relaxed);
        if (settled == told.settled && dead == told.dead && circuit == told.circuit &&
            rate == told.rate && path == told.path && errors == told.errors) {
            continue;
        }
        // Within a second or so.
        const bool news = errors != told.errors;
        saved.push_back({routes_[route].name, published - told.published, dead - told.dead, circuit,
                         news ? stats.last_error() : std::string(),
                         news ? deps_.clock.wall_us() : 0, rate, path, settled, told.settled});
        told = {published, dead, errors, circuit, rate, std::move(path), settled};
    }
    last_saved_us_ = now_us;
    if (saved.empty()) return {};
    if (Status status = deps_.recorder.save_stats(epoch_, saved); !status.ok()) {
        return status;
    }
    told_ = std::move(telling);
    return {};
}

spi::Recorder::Stats Housekeeper::database_stats() const {
    const core::Lock lock(stats_mutex_);
    return database_stats_;
}

}  // namespace outbox::relay
