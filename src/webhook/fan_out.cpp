#include "webhook/fan_out.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "mailbox/errors.h"
#include "webhook/request.h"

namespace outbox::webhook {
namespace {

// What was changed by hand, without a new revision, is seen after so long.
constexpr std::int64_t kRefreshUs = 1'000'000;
// An endpoint whose queue was full gets events again once there is room for so many: each time all
// others wait for what was written before to be recorded.
constexpr std::int64_t kRoomAgain = kMaxQueuePerEndpoint / 50;
// Between two looks at queues that are full, or could not be looked at: another relay may empty
// them.
constexpr std::int64_t kLookAgainUs = 500'000;
// So long in all before a batch; the queues that are left have their turn before the next one.
constexpr std::int64_t kLooksForUs = 100'000;
constexpr std::size_t kMaxBytes = std::size_t{32} << 20;  // of one transaction
constexpr std::size_t kMaxBegun = 1'000;                  // more events are begun anew
constexpr std::size_t kMaxSlow = 1'000;                   // more are found anew

}  // namespace

Status FanOut::insert(std::span<const mailbox::Row> rows) {
    while (!rows.empty()) {
        const auto taken = insert_some(rows);
        if (!taken.ok()) return taken.status();
        rows = rows.subspan(*taken);
    }
    return {};
}

// The events that are in are told before an error, as what they missed is counted already.
Result<std::size_t> FanOut::insert_some(std::span<const mailbox::Row> rows) {
    std::int64_t until_us = clock_.boot_us() + kInsertForUs;
    if (!slow_.empty() && slow_.contains(std::string(rows.front().id))) most_targets_ = 1;
    std::size_t taken = 0;
    bool was_ended = false;
    Status status;
    do {
        const std::size_t whole = choose(rows.subspan(taken));
        status = look_at_headers();
        const std::int64_t begun_us = clock_.boot_us();
        if (status.ok()) status = write();
        if (status.ok()) {
            remember(whole);
            taken += whole;
            fit(clock_.boot_us() - begun_us);
            continue;
        }
        if (!mailbox::took_too_long(status.error())) break;
        most_targets_ = 1;
        if (targets_.size() == 1) {
            if (slow_.size() >= kMaxSlow) slow_.clear();
            slow_.emplace(events_[targets_.front().event].id);
            break;
        }
        status = {};
        if (std::exchange(was_ended, true)) break;
        until_us = clock_.boot_us() + kInsertForUs;
    } while (taken < rows.size() && clock_.boot_us() < until_us);
    if (!status.ok()) {
        // What was refused may be an endpoint that is gone, and another server may be asked next.
        refreshed_us_ = 0;
        const bool answers = mailbox::blames_a_message(status.error().advice) ||
                             mailbox::took_too_long(status.error());
        if (!answers) begun_.clear();
        if (taken == 0) return status;
    }
    if (taken > 0) all_recorded_ = false;
    count_missed();
    return taken;
}

// Who reads an event after an endpoint was added finds the endpoint: the version is asked before
// each batch. That costs some 50 us with ten endpoints, and 2,600 us with the 10,000 that there may
// be (PostgreSQL; 4 and 1,400 us with SQLite).
Result<bool> FanOut::ready() {
    if (Status status = refresh(); !status.ok()) return status;
    look_at_queues();
    return !new_ones_wait_ && end_misses();
}

Status FanOut::refresh() {
    const std::int64_t now_us = clock_.boot_us();
    auto version = inlet_->version();
    if (!version.ok()) return version.status();
    const bool may_have_changed = *version != version_ || now_us - refreshed_us_ >= kRefreshUs;
    const bool may_go_in = new_ones_wait_ && all_recorded_;
    if (refreshed_us_ != 0 && !may_have_changed && !may_go_in) return {};
    auto endpoints = inlet_->endpoints();
    if (!endpoints.ok()) return endpoints.status();
    std::unordered_map<std::string_view, const Subscriber*> known_ones;
    for (const Subscriber& one : subscribers_) known_ones.emplace(one.id, &one);
    std::vector<Subscriber> subscribers;
    new_ones_wait_ = false;
    for (Endpoint& endpoint : *endpoints) {
        // One that an earlier version or another hand wrote and that cannot be read wants nothing.
        auto filter = EventFilter::make(endpoint.events);
        if (!filter.ok()) continue;
        const auto found = known_ones.find(endpoint.id);
        const bool known =
            found != known_ones.end() && found->second->created_at_us == endpoint.created_at_us;
        if (!known && !all_recorded_) {
            new_ones_wait_ = true;
            continue;
        }
        subscribers.push_back({std::move(endpoint.id), endpoint.created_at_us,
                               known ? found->second->number : ++last_number_, *std::move(filter),
                               !endpoint.tenant.has_value(), endpoint.tenant.value_or(""),
                               known ? found->second->queue : Queue()});
    }
    std::ranges::sort(subscribers, {}, &Subscriber::number);
    subscribers_ = std::move(subscribers);
    endpoints_.clear();
    for (const Subscriber& subscriber : subscribers_) endpoints_.push_back(subscriber.id);
    version_ = *std::move(version);
    refreshed_us_ = now_us;
    return {};
}

// What is known here of a queue's length is what this process wrote and what was counted now and
// then; on that alone nobody misses an event. Of one that it has not looked at yet, as after each
// start, nothing is known.
void FanOut::look_at_queues() {
    const std::int64_t begun_us = clock_.boot_us();
    Subscriber* longest_ago = nullptr;
    for (Subscriber& one : subscribers_) {
        Queue& queue = one.queue;
        if (begun_us < queue.look_again_us) continue;
        if (queue.misses) {
            if (longest_ago == nullptr || queue.look_again_us < longest_ago->queue.look_again_us) {
                longest_ago = &one;
            }
        } else if (!queue.looked_at || !queues_.has_room(one.id, 1)) {
            queue.misses = !look_at_queue(one);
            if (clock_.boot_us() - begun_us >= kLooksForUs) return;
        }
    }
    if (longest_ago == nullptr || begun_us < next_look_again_us_) return;
    next_look_again_us_ = begun_us + kLookAgainUs;
    static_cast<void>(look_at_queue(*longest_ago));
}

// False: it is full.
bool FanOut::look_at_queue(Subscriber& one) {
    const auto rows = inlet_->queued(one.id, kMaxQueuePerEndpoint);
    if (rows.ok()) queues_.looked(one.id, *rows);
    one.queue.looked_at = one.queue.looked_at || rows.ok();
    const bool full = rows.ok() && *rows >= kMaxQueuePerEndpoint;
    one.queue.look_again_us = full || !rows.ok() ? clock_.boot_us() + kLookAgainUs : 0;
    return !full;
}

bool FanOut::end_misses() {
    bool ended = true;
    for (Subscriber& one : subscribers_) {
        if (!one.queue.misses || !queues_.has_room(one.id, kRoomAgain)) continue;
        ended = ended && all_recorded_;
        if (!all_recorded_) continue;
        one.queue.misses = false;
        one.queue.look_again_us = 0;
    }
    return ended;
}

// Whoever came or went since a part of the event was written, nobody has his place.
std::uint32_t FanOut::first_left(std::string_view event) const {
    const auto begun = begun_.empty() ? begun_.end() : begun_.find(std::string(event));
    if (begun == begun_.end()) return 0;
    const auto at = std::ranges::lower_bound(subscribers_, begun->second, {}, &Subscriber::number);
    return static_cast<std::uint32_t>(at - subscribers_.begin());
}

// What one transaction holds, from the first row on; how many rows are finished with it.
std::size_t FanOut::choose(std::span<const mailbox::Row> rows) {
    events_.clear();
    targets_.clear();
    missed_.assign(subscribers_.size(), 0);
    std::size_t bytes = 0;
    for (const mailbox::Row& row : rows) {
        const auto event = static_cast<std::uint32_t>(events_.size());
        events_.push_back(
            {row.id, row.event_type, row.key, row.headers, row.payload, row.occurred_at_us});
        for (std::uint32_t i = first_left(row.id); i < subscribers_.size(); ++i) {
            const Subscriber& one = subscribers_[i];
            if (!one.all_tenants && one.tenant != row.tenant) continue;
            if (!one.filter.wants(row.event_type)) continue;
            if (one.queue.misses) {
                ++missed_[i];
                continue;
            }
            if (targets_.size() >= most_targets_ || bytes >= kMaxBytes) {
                cut_at_ = one.number;
                return event;
            }
            targets_.push_back({event, i});
            bytes += row.payload.size();
        }
    }
    return events_.size();
}

// Of what was written and what was missed, which comes no more.
void FanOut::remember(std::size_t whole) {
    for (std::size_t i = 0; i < whole && !begun_.empty(); ++i) {
        begun_.erase(std::string(events_[i].id));
    }
    for (std::size_t i = 0; i < events_.size() && !slow_.empty(); ++i) {
        slow_.erase(std::string(events_[i].id));
    }
    if (whole < events_.size()) {
        if (begun_.size() >= kMaxBegun) begun_.clear();
        begun_[std::string(events_[whole].id)] = cut_at_;
    }
    for (std::size_t i = 0; i < missed_.size(); ++i) {
        missed_total_ += missed_[i];
        subscribers_[i].queue.uncounted += missed_[i];
        subscribers_[i].queue.untold += missed_[i];
    }
}

void FanOut::fit(std::int64_t took_us) {
    if (took_us > kInsertForUs) {
        most_targets_ = std::max<std::size_t>(1, targets_.size() / 2);
    } else if (took_us < kQuickUs && targets_.size() >= most_targets_) {
        most_targets_ = std::min(most_targets_ * 2, kMaxTargets);
    }
}

// Of those that somebody gets.
Status FanOut::look_at_headers() const {
    const Event* looked_at = nullptr;
    for (const Target& target : targets_) {
        const Event& event = events_[target.event];
        if (&event == std::exchange(looked_at, &event)) continue;
        if (const auto why = why_not_carried(event.headers)) {
            return {ErrorCode::kRecordRefused, Advice::kDeadLetter,
                    "event " + std::string(event.id) + " fits no webhook: " + *why};
        }
    }
    return {};
}

Status FanOut::write() {
    if (targets_.empty()) return {};
    for (const Target& target : targets_) queues_.expect(endpoints_[target.endpoint], 1);
    const auto left_out = inlet_->insert(events_, endpoints_, targets_);
    for (const Target& target : targets_) {
        if (left_out.ok()) {
            queues_.written(endpoints_[target.endpoint]);
        } else {
            queues_.take_back(endpoints_[target.endpoint], 1);
        }
    }
    queues_.wake();
    if (!left_out.ok()) return left_out.status();
    for (const LeftOut& one : *left_out) {
        queues_.take_back(endpoints_[one.endpoint], one.rows);
    }
    return {};
}

void FanOut::count_missed() {
    std::vector<Missed> missed;
    for (const Subscriber& one : subscribers_) {
        if (one.queue.uncounted == 0) continue;
        missed.push_back({one.id, one.created_at_us, one.queue.uncounted});
    }
    if (missed.empty()) return;
    const auto held = inlet_->count_missed(missed);
    if (!held.ok()) return;
    const std::unordered_set<std::string_view> uncounted(held->begin(), held->end());
    for (Subscriber& one : subscribers_) {
        if (!uncounted.contains(one.id)) one.queue.uncounted = 0;
    }
}

std::vector<Remark> FanOut::take_remarks(bool last) {
    std::vector<Remark> remarks;
    const std::int64_t now_us = clock_.boot_us();
    for (Subscriber& one : subscribers_) {
        Queue& queue = one.queue;
        if (queue.untold == 0 || (!last && now_us < queue.quiet_until_us)) continue;
        queue.quiet_until_us = now_us + kQuietUs;
        remarks.push_back({Remark::Level::kError,
                           "webhook_queue_full",
                           {{"endpoint", one.id},
                            {"missed", std::to_string(std::exchange(queue.untold, 0))},
                            {"limit", std::to_string(kMaxQueuePerEndpoint)}}});
    }
    return remarks;
}

}  // namespace outbox::webhook
