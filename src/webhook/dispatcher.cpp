#include "webhook/dispatcher.h"

#include <algorithm>
#include <iterator>
#include <string_view>
#include <tuple>
#include <unordered_set>

namespace outbox::webhook {
namespace {

using Standing = EndpointQueue::Standing;

constexpr std::int64_t kLookEveryUs = kSecondUs;
// The net under what is remembered of positions.
constexpr std::int64_t kLookEverywhereEveryUs = 600 * kSecondUs;
// A read is as large as about that time allows.
constexpr std::int64_t kReadUs = 300'000;
constexpr std::size_t kFirstReadBytes = std::size_t{1} << 20;
constexpr std::size_t kLeastReadBytes = std::size_t{64} << 10;
constexpr std::size_t kMostReadBytes = std::size_t{16} << 20;
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

void Dispatcher::ended(const Attempt& attempt) {
    const auto host = of_host_.find(attempt.host);
    if (attempt.unproven) {
        --unproven_;
        --host->second.unproven;
    }
    if (--host->second.attempts == 0) of_host_.erase(host);
}

bool Dispatcher::host_is_full(const EndpointQueue& queue) const {
    const auto host = of_host_.find(queue.host());
    return host != of_host_.end() && host->second.attempts >= options_.max_per_host();
}

// Those that hang may not take the places of those that do not, neither of all nor of their host.
bool Dispatcher::is_one_too_many(const EndpointQueue& queue) const {
    if (queue.proven()) return false;
    if (unproven_ >= options_.max_connections / 2) return true;
    const auto host = of_host_.find(queue.host());
    return host != of_host_.end() &&
           host->second.unproven >= std::max<std::size_t>(options_.max_per_host() / 2, 1);
}

// The last places, of all and of its host, are for endpoints with nothing under way: many that hang
// at once must not take them before one fails.
bool Dispatcher::leaves_places(const EndpointQueue& queue) const {
    const auto most = [](std::size_t places) { return places - places / 4; };
    const auto host = of_host_.find(queue.host());
    return queue.under_way().empty() ||
           (under_way_.size() < most(options_.max_connections) &&
            (host == of_host_.end() || host->second.attempts < most(options_.max_per_host())));
}

// So that those that hang leave the others of their host, too, what is theirs.
std::size_t Dispatcher::share_of(const EndpointQueue& queue) const {
    const auto busy = busy_of_host_.find(queue.host());
    if (busy == busy_of_host_.end()) return share_;
    return std::clamp<std::size_t>(options_.max_per_host() / busy->second, 1, share_);
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

// Reads for endpoints that could send. True: it read something.
bool Dispatcher::fill() {
    std::size_t busy = 0;
    std::size_t bytes = 0;
    std::size_t unproven_bytes = 0;
    const Now at = now();
    busy_of_host_.clear();
    for (const EndpointQueue* queue : circle_) {
        if (queue->busy() && !queue->paused(at)) {
            ++busy;
            ++busy_of_host_[queue->host()];
        }
        bytes += queue->bytes();
        unproven_bytes += queue->proven() ? 0 : queue->bytes();
    }
    share_ = std::clamp<std::size_t>(options_.max_connections / std::max<std::size_t>(busy, 1), 1,
                                     options_.max_per_endpoint);
    if (bytes >= options_.max_bytes || under_way_.size() >= options_.max_connections) return false;
    std::size_t max_bytes = std::min(read_bytes_, options_.max_bytes - bytes);
    // Those that hang may not take the memory of those that do not.
    const std::size_t half = options_.max_bytes / 2;
    const std::size_t places = options_.max_connections / 2;
    std::vector<EndpointQueue*> hungry;
    if (unproven_bytes < half && unproven_ < places) {
        const std::size_t most = std::min(options_.max_slices / 2, places - unproven_);
        // What fails will most likely hang, or fail once more.
        add_hungry(Standing::kUnknown, most, at, hungry);
        add_hungry(Standing::kFailing, most, at, hungry);
        if (!hungry.empty()) max_bytes = std::min(max_bytes, half - unproven_bytes);
    }
    add_hungry(Standing::kProven, options_.max_slices, at, hungry);
    if (!hungry.empty()) add_with_room(hungry);
    // What failed must be in the table before others of its key are read; of whom it is not, that
    // is known by then.
    if (hungry.empty() || !flush(true)) return false;
    std::erase_if(hungry, [this](const EndpointQueue* queue) { return is_unrecorded(*queue); });
    return !hungry.empty() && read_for(hungry, max_bytes);
}

void Dispatcher::add_hungry(Standing standing, std::size_t most, const Now& at,
                            std::vector<EndpointQueue*>& out) {
    for (std::size_t i = 0; i < circle_.size() && out.size() < most; ++i) {
        EndpointQueue* queue = circle_[(next_ + i) % circle_.size()];
        if (queue->standing() != standing || host_is_full(*queue)) continue;
        if (is_one_too_many(*queue)) continue;
        if (is_unrecorded(*queue)) continue;
        if (queue->wants_slice(share_of(*queue), at)) out.push_back(queue);
    }
}

// A read and what it waits for cost the same for one as for many.
void Dispatcher::add_with_room(std::vector<EndpointQueue*>& out) {
    for (std::size_t i = 0; i < circle_.size() && out.size() < options_.max_slices; ++i) {
        EndpointQueue* queue = circle_[(next_ + i) % circle_.size()];
        if (!queue->has_room() || !queue->busy() || host_is_full(*queue)) continue;
        if (is_unrecorded(*queue)) continue;
        if (std::find(out.begin(), out.end(), queue) == out.end()) out.push_back(queue);
    }
}

bool Dispatcher::read_for(const std::vector<EndpointQueue*>& hungry, std::size_t max_bytes) {
    std::vector<Slice> slices;
    std::unordered_map<std::string_view, std::size_t> index;
    for (const EndpointQueue* queue : hungry) {
        index.emplace(queue->endpoint().id, slices.size());
        slices.push_back(queue->slice());
    }
    std::vector<Delivery> deliveries;
    const std::int64_t started_us = deps_.clock.boot_us();
    const std::int64_t wall_us = deps_.clock.wall_us();
    const auto read = deps_.outlet.fetch(slices, {wall_us, wall_us + options_.longest_wait_us()},
                                         {options_.slice_bytes, max_bytes}, deliveries);
    if (failed(read.status())) return false;
    const bool anew = life_.value_or(read->life) != read->life;
    const bool elsewhere = session_.value_or(read->session) != read->session;
    if (anew) remark(Remark::Level::kWarning, "webhooks_table_anew", {});
    life_ = read->life;
    session_ = read->session;
    if (anew || elsewhere) {
        flush(true, true);
        unrecorded_.clear();
        forget_all();
        return true;
    }
    std::vector<std::vector<Delivery>> parts(slices.size());
    std::size_t bytes = 0;
    std::size_t last = 0;  // that something was read for
    for (Delivery& delivery : deliveries) {
        const auto part = index.find(delivery.endpoint_id);
        if (part == index.end()) continue;
        bytes += delivery.payload.size();
        last = std::max(last, part->second);
        parts[part->second].push_back(std::move(delivery));
    }
    adapt(deps_.clock.boot_us() - started_us, bytes);
    const bool cut = bytes >= max_bytes;
    // Those behind it get their turn in a later read.
    const std::size_t end = cut ? last + 1 : slices.size();
    for (std::size_t i = 0; i < end; ++i) {
        hungry[i]->admit(std::move(parts[i]), slices[i], read->looked[i], read->writers,
                         cut && i == last);
    }
    return !deliveries.empty();
}

// So that no read takes long where the database is slow or far away.
void Dispatcher::adapt(std::int64_t took_us, std::size_t bytes) {
    if (took_us > kReadUs) {
        const auto share = static_cast<double>(kReadUs) / static_cast<double>(took_us);
        const auto fits = static_cast<std::size_t>(static_cast<double>(bytes) * share);
        read_bytes_ = std::clamp(fits, kLeastReadBytes, read_bytes_);
    } else if (took_us < kReadUs / 3 && bytes >= read_bytes_) {
        read_bytes_ = std::min(read_bytes_ * 2, kMostReadBytes);
    }
}

// One of each endpoint in turn, until none may go.
bool Dispatcher::send() {
    bool sent = false;
    std::size_t idle = 0;
    const Now at = now();
    while (idle < circle_.size() && under_way_.size() < options_.max_connections && lease_holds()) {
        EndpointQueue& queue = *circle_[next_ % circle_.size()];
        next_ = (next_ + 1) % circle_.size();
        ++idle;
        if (is_one_too_many(queue) || host_is_full(queue) || !leaves_places(queue)) continue;
        const bool unproven = !queue.proven();
        const Delivery* delivery = queue.take(share_of(queue), at);
        if (delivery == nullptr) continue;
        idle = 0;
        sent = true;
        const std::uint64_t token = ++last_token_;
        under_way_.emplace(token, Attempt{&queue, delivery->position, unproven, queue.host()});
        OfHost& of_host = of_host_[queue.host()];
        ++of_host.attempts;
        of_host.unproven += unproven ? 1 : 0;
        unproven_ += unproven ? 1 : 0;
        deps_.sender.start(token, queue.endpoint(), *delivery);
    }
    return sent;
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
