#include "webhook/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_set>

namespace outbox::webhook {
namespace {

constexpr std::int64_t kLookEveryUs = kSecondUs;
// The net under what is remembered of positions.
constexpr std::int64_t kLookEverywhereEveryUs = 600 * kSecondUs;
constexpr std::size_t kFirstReadBytes = std::size_t{1} << 20;
constexpr std::int64_t kFlushAfterUs = 20'000;
constexpr std::int64_t kRetryUs = 200'000;
constexpr std::size_t kMaxOutcomes = 1'000;
// Between two tries to record what somebody holds. Such a try waits for nobody. Who counts what a
// full queue missed holds an endpoint for a moment, which the next try may meet once more; who
// still does at the last of these, over two seconds later, is another.
constexpr std::int64_t kMomentUs = 50'000;
constexpr std::int64_t kLetGoUs = kSecondUs;
constexpr int kTriesOfAMoment = 5;
constexpr int kTriesUntold = kTriesOfAMoment + 2;
constexpr std::size_t kMaxRemarks = 1'000;
constexpr std::size_t kMaxOwnFaults = 16;  // that are told apart
// What is under way at the end has about two seconds: what is broken off comes again.
constexpr int kLastLooks = 40;
constexpr std::chrono::milliseconds kLastLook{50};

}  // namespace

Dispatcher::Dispatcher(const Deps& deps, DispatchOptions options)
    : deps_(deps),
      options_(std::move(options)),
      random_(static_cast<std::uint64_t>(deps.clock.wall_us())),
      census_(deps.outlet, deps.queues, deps.clock),
      // Of those of whom nothing is known others are first at each start.
      next_(random_() % kMaxEndpoints),
      read_bytes_(kFirstReadBytes) {}

void Dispatcher::turn(std::chrono::milliseconds max_wait) {
    bool moved = false;
    const bool leads = keep_lease() && look_around();
    take_news();
    // Each of these may take long.
    if (leads && keep_lease()) moved = fill();
    if (leads && keep_lease()) moved = send() || moved;
    attempted_.clear();
    const auto wait = moved ? std::chrono::milliseconds(0) : max_wait;
    deps_.sender.poll(wait, deps_.queues.wake_fd(), attempted_);
    judge(attempted_);
    if (epoch_ != 0) flush(false);
    publish_stats();
}

void Dispatcher::finish() {
    for (int look = 0; look < kLastLooks; ++look) {
        if (under_way_.empty() || !lease_holds()) break;
        attempted_.clear();
        deps_.sender.poll(kLastLook, -1, attempted_);
        judge(attempted_);
    }
    if (epoch_ == 0) return;
    const std::uint64_t epoch = epoch_;
    const bool told = flush(true, true);
    lose_lease();
    if (told) std::ignore = deps_.outlet.release(epoch);
    publish_stats();
}

// Whether this process may send. A lease that ran out while something took long is still this
// one's where nobody has taken it: all that is known holds, and goes on.
bool Dispatcher::keep_lease() {
    const std::int64_t started_us = deps_.clock.boot_us();
    const bool over = epoch_ != 0 && started_us >= valid_until_us_;
    if (started_us < std::max(retry_at_us_, over ? 0 : renew_at_us_)) {
        return epoch_ != 0 && !over;
    }
    if (epoch_ == 0) return take_lease(started_us);
    const auto kept = deps_.outlet.renew(epoch_, std::chrono::milliseconds(options_.lease_ttl_ms));
    if (!kept.ok()) {
        failed(kept.status());
        return !over;
    }
    worked();
    if (!*kept) {
        lose_lease();
        return false;
    }
    valid_until_us_ = started_us + (options_.lease_ttl_ms - options_.lease_margin_ms) * 1'000;
    renew_at_us_ = started_us + options_.lease_renew_ms * 1'000;
    return true;
}

bool Dispatcher::take_lease(std::int64_t started_us) {
    renew_at_us_ = started_us + options_.lease_retry_ms * 1'000;
    const auto epoch =
        deps_.outlet.acquire(options_.owner, std::chrono::milliseconds(options_.lease_ttl_ms));
    if (!epoch.ok()) {
        failed(epoch.status());
        return false;
    }
    worked();
    if (!*epoch) {
        if (!standing_by_) remark(Remark::Level::kInfo, "webhooks_standby", {});
        standing_by_ = true;
        // The route writes all the same, and must know what the other one has delivered.
        count_on();
        return false;
    }
    standing_by_ = false;
    epoch_ = **epoch;
    valid_until_us_ = started_us + (options_.lease_ttl_ms - options_.lease_margin_ms) * 1'000;
    renew_at_us_ = started_us + options_.lease_renew_ms * 1'000;
    look_at_us_ = 0;
    remark(Remark::Level::kInfo, "webhooks_dispatching", {{"epoch", std::to_string(epoch_)}});
    return true;
}

// What is under way may arrive; who has the lease now sends it again.
void Dispatcher::lose_lease() {
    forget_all();
    outcomes_.clear();
    unrecorded_.clear();
    not_recorded_ = false;
    life_.reset();
    session_.reset();
    gone_.clear();
    epoch_ = 0;
    renew_at_us_ = 0;
}

void Dispatcher::forget_all() {
    for (const auto& [token, attempt] : under_way_) deps_.sender.cancel(token);
    under_way_.clear();
    of_host_.clear();
    unproven_ = 0;
    circle_.clear();
    queues_.clear();
    look_at_us_ = look_everywhere_at_us_ = 0;
}

// True: what is known of the endpoints is of now, or nearly.
bool Dispatcher::look_around() {
    const std::int64_t now_us = deps_.clock.boot_us();
    if (now_us < retry_at_us_) return false;
    if (now_us < look_at_us_) return true;
    // What was disabled here must not come back as enabled.
    if (!flush(true)) return false;
    if (failed(read_endpoints()) || failed(read_backlog())) return false;
    look_at_us_ = now_us + kLookEveryUs;
    worked();
    count_on();
    return true;
}

Status Dispatcher::read_endpoints() {
    auto endpoints = deps_.outlet.endpoints();
    if (!endpoints.ok()) return endpoints.status();
    std::unordered_map<std::string, bool> there;
    for (Endpoint& endpoint : *endpoints) {
        there.emplace(endpoint.id, true);
        const auto known = queues_.find(endpoint.id);
        if (known != queues_.end() &&
            known->second->endpoint().created_at_us == endpoint.created_at_us) {
            known->second->update(std::move(endpoint));
            continue;
        }
        if (known != queues_.end()) drop(endpoint.id);
        std::string id = endpoint.id;
        auto queue = std::make_unique<EndpointQueue>(std::move(endpoint), options_);
        circle_.push_back(queue.get());
        queues_.emplace(std::move(id), std::move(queue));
    }
    std::vector<std::string> gone;
    for (const auto& [id, queue] : queues_) {
        if (!there.contains(id)) gone.push_back(id);
    }
    for (const std::string& id : gone) {
        drop(id);
        gone_.push_back(id);
    }
    if (!gone.empty()) census_.hurry();
    // Deliveries that a hand left behind, or a relay that wrote meanwhile.
    while (!gone_.empty()) {
        const auto swept = deps_.outlet.sweep(gone_.back());
        if (!swept.ok()) return swept.status();
        if (*swept > 0) break;  // the rest in the next turn
        gone_.pop_back();
    }
    return {};
}

void Dispatcher::drop(const std::string& endpoint) {
    const auto found = queues_.find(endpoint);
    EndpointQueue* queue = found->second.get();
    for (auto attempt = under_way_.begin(); attempt != under_way_.end();) {
        if (attempt->second.queue != queue) {
            ++attempt;
            continue;
        }
        deps_.sender.cancel(attempt->first);
        ended(attempt->second);
        attempt = under_way_.erase(attempt);
    }
    std::erase(circle_, queue);
    unrecorded_.erase(endpoint);
    queues_.erase(found);
}

Status Dispatcher::read_backlog() {
    const std::int64_t now_us = deps_.clock.boot_us();
    const bool everywhere = now_us >= look_everywhere_at_us_;
    std::vector<BacklogOf> of;
    for (EndpointQueue* queue : circle_) {
        if (!queue->endpoint().enabled()) continue;
        if (everywhere) queue->expect_more(true);
        of.push_back({queue->endpoint().id, queue->looks_from()});
    }
    auto backlog = deps_.outlet.backlog(of);
    if (!backlog.ok()) return backlog.status();
    if (everywhere) look_everywhere_at_us_ = now_us + kLookEverywhereEveryUs;
    for (const Backlog& one : *backlog) {
        const auto queue = queues_.find(one.endpoint_id);
        if (queue == queues_.end()) continue;
        queue->second->expect_due(one.next_due_at_us, now());
        if (one.fresh) queue->second->expect_more();
    }
    return {};
}

// In vain: the limit of a queue holds by what this process knows of it, and all else goes on.
void Dispatcher::count_on() {
    const Status status = census_.go_on();
    if (census_.take_failed()) {
        remark(Remark::Level::kWarning, "webhooks_not_counted",
               {{"error", describe(status.error())}});
    }
    const std::vector<Count>* found = census_.take_found();
    if (found == nullptr) return;
    mine_.waiting = 0;
    mine_.dead = 0;
    for (const Count& one : *found) {
        mine_.waiting += one.waiting;
        mine_.dead += one.dead;
        if (epoch_ != 0 && !queues_.contains(one.endpoint_id)) gone_.push_back(one.endpoint_id);
    }
}

void Dispatcher::take_news() {
    for (const std::string& endpoint : deps_.queues.take_news()) {
        const auto queue = queues_.find(endpoint);
        if (queue != queues_.end()) {
            queue->second->expect_more();
        } else {
            look_at_us_ = 0;  // it was added just now
        }
    }
}

void Dispatcher::judge(const std::vector<Attempted>& attempts) {
    const Now at = now();
    for (const Attempted& attempted : attempts) {
        const auto found = under_way_.find(attempted.token);
        if (found == under_way_.end()) continue;
        const Attempt attempt = found->second;
        under_way_.erase(found);
        ended(attempt);
        auto judged = attempt.queue->judge(attempt.position, attempted, at, random_());
        const Endpoint& endpoint = attempt.queue->endpoint();
        if (attempted.verdict.kind == Verdict::Kind::kDone) {
            ++mine_.delivered_total;
        } else if (attempted.verdict.kind != Verdict::Kind::kOwnFault) {
            ++mine_.failed_total;
        }
        if (judged.disabled) {
            remark(Remark::Level::kError, "webhook_disabled",
                   {{"endpoint", endpoint.id}, {"reason", endpoint.reason}});
        }
        if (!judged.outcome) continue;
        if (waits_to_be_recorded(endpoint.id)) {
            unrecorded_[endpoint.id].outcomes.push_back(*std::move(judged.outcome));
            continue;
        }
        if (outcomes_.empty()) oldest_outcome_us_ = at.boot_us;
        outcomes_.push_back(*std::move(judged.outcome));
    }
}

// Whether nothing is left to be recorded, but for endpoints whose rows somebody holds.
bool Dispatcher::flush(bool all, bool last) {
    const Now at = now();
    if (at.boot_us < retry_at_us_) return false;
    take_up_unrecorded(at, last);
    const bool due = all || outcomes_.size() >= kMaxOutcomes ||
                     (!outcomes_.empty() && at.boot_us - oldest_outcome_us_ >= kFlushAfterUs);
    std::vector<EndpointChange> changes;
    for (EndpointQueue* queue : circle_) {
        if (waits_to_be_recorded(queue->endpoint().id)) continue;
        if (auto change = queue->change(at, last)) changes.push_back(*std::move(change));
    }
    if ((outcomes_.empty() || !due) && changes.empty()) return outcomes_.empty() || !all;
    const auto held = deps_.outlet.record(epoch_, outcomes_, changes);
    if (!held.ok() && held.error().code == ErrorCode::kLeaseLost) {
        remark(Remark::Level::kWarning, "webhooks_lease_lost", {});
        lose_lease();
        return false;
    }
    not_recorded_ = failed(held.status());
    if (not_recorded_) {
        for (const EndpointChange& change : changes) untold(change);
        return false;
    }
    recorded(*held, changes);
    return true;
}

void Dispatcher::take_up_unrecorded(const Now& at, bool last) {
    for (auto& [endpoint, one] : unrecorded_) {
        if (one.is_tried || (!last && at.boot_us < one.try_at_us)) continue;
        one.is_tried = true;
        if (!one.outcomes.empty()) oldest_outcome_us_ = 0;
        std::move(one.outcomes.begin(), one.outcomes.end(), std::back_inserter(outcomes_));
        one.outcomes.clear();
    }
}

void Dispatcher::recorded(const std::vector<std::string>& held,
                          const std::vector<EndpointChange>& changes) {
    const std::unordered_set<std::string_view> wait(held.begin(), held.end());
    std::erase_if(unrecorded_, [&](const auto& one) {
        return one.second.is_tried && !wait.contains(one.first);
    });
    for (const std::string& endpoint : held) {
        Unrecorded& one = unrecorded_[endpoint];
        if (++one.tries == kTriesUntold) {
            remark(Remark::Level::kWarning, "webhook_not_recorded", {{"endpoint", endpoint}});
        }
        one.try_at_us =
            deps_.clock.boot_us() + (one.tries < kTriesOfAMoment ? kMomentUs : kLetGoUs);
        one.is_tried = false;
    }
    for (Outcome& outcome : outcomes_) {
        if (wait.contains(outcome.endpoint_id)) {
            unrecorded_[outcome.endpoint_id].outcomes.push_back(std::move(outcome));
        } else if (outcome.kind == Outcome::Kind::kDone) {
            deps_.queues.removed(outcome.endpoint_id, 1);
        }
    }
    outcomes_.clear();
    for (const EndpointChange& change : changes) {
        if (wait.contains(change.endpoint_id)) untold(change);
    }
}

void Dispatcher::untold(const EndpointChange& change) {
    const auto queue = queues_.find(change.endpoint_id);
    if (queue != queues_.end()) queue->second->untold(change);
}

// Says once that the database is away, and has it left alone for a moment.
bool Dispatcher::failed(const Status& status) {
    if (status.ok()) return false;
    retry_at_us_ = deps_.clock.boot_us() + kRetryUs;
    if (!away_) {
        remark(Remark::Level::kError, "webhooks_database_away",
               {{"error", describe(status.error())}});
    }
    away_ = true;
    return true;
}

// What can be read or renewed says nothing of what cannot be recorded.
void Dispatcher::worked() {
    if (not_recorded_) return;
    if (away_) remark(Remark::Level::kInfo, "webhooks_database_back", {});
    away_ = false;
}

void Dispatcher::remark(Remark::Level level, std::string what,
                        std::vector<std::pair<std::string, std::string>> fields) {
    const core::Lock lock(mutex_);
    if (remarks_.size() < kMaxRemarks) {
        remarks_.push_back({level, std::move(what), std::move(fields)});
    }
}

void Dispatcher::publish_stats() {
    mine_.dispatching = lease_holds();
    mine_.enabled = mine_.disabled = mine_.paused = 0;
    const Now at = now();
    for (EndpointQueue* queue : circle_) {
        if (auto news = queue->news(at)) {
            remark(news->level, std::move(news->what), std::move(news->fields));
        }
        const bool enabled = queue->endpoint().enabled();
        ++(enabled ? mine_.enabled : mine_.disabled);
        if (enabled && queue->paused(at)) ++mine_.paused;
    }
    tell_own_faults();
    mine_.under_way = static_cast<std::int64_t>(under_way_.size());
    const core::Lock lock(mutex_);
    stats_ = mine_;
}

// Each once, until there is none any more.
void Dispatcher::tell_own_faults() {
    bool any = false;
    for (const EndpointQueue* queue : circle_) {
        if (!queue->own_fault()) continue;
        any = true;
        const Endpoint& endpoint = queue->endpoint();
        if (own_faults_.size() < kMaxOwnFaults && own_faults_.insert(endpoint.last_error).second) {
            remark(Remark::Level::kError, "webhooks_own_fault",
                   {{"endpoint", endpoint.id}, {"error", endpoint.last_error}});
        }
    }
    if (any || own_faults_.empty() || circle_.empty()) return;
    own_faults_.clear();
    remark(Remark::Level::kInfo, "webhooks_own_fault_over", {});
}

DispatcherStats Dispatcher::stats() const {
    const core::Lock lock(mutex_);
    return stats_;
}

std::vector<Remark> Dispatcher::take_remarks() {
    const core::Lock lock(mutex_);
    return std::exchange(remarks_, {});
}

}  // namespace outbox::webhook
