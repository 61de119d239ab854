#include "webhook/fan_out.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

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
// Of one transaction.
constexpr std::size_t kMaxTargets = 10'000;
constexpr std::size_t kMaxBytes = std::size_t{32} << 20;

}  // namespace

Status FanOut::insert(std::span<const mailbox::Row> rows) {
    choose(rows);
    const std::span<const Target> all(targets_);
    std::size_t begin = 0;
    std::size_t bytes = 0;
    Status status;
    for (std::size_t i = 0; i < all.size() && status.ok(); ++i) {
        bytes += events_[all[i].event].payload.size();
        const bool last = i + 1 == all.size();
        if (last || (i + 1 - begin < kMaxTargets && bytes < kMaxBytes)) continue;
        status = write(all.subspan(begin, i + 1 - begin), {});
        begin = i + 1;
        bytes = 0;
    }
    // What is missed goes with the last: before it the events may come again.
    const std::vector<Missed> missed = with_uncounted(missed_);
    if (status.ok() && (begin < all.size() || !missed.empty())) {
        status = write(all.subspan(begin), missed);
        begin = all.size();
    }
    if (status.ok()) {
        all_recorded_ = false;
        count_missed();
    } else {
        for (const Target& target : all.subspan(begin)) {
            queues_.take_back(endpoints_[target.endpoint], 1);
        }
        // What was refused may be an endpoint that is gone.
        refreshed_us_ = 0;
    }
    if (!all.empty()) queues_.wake();
    return status;
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
        const bool misses = known && found->second->misses;
        const std::int64_t look_again_us = known ? found->second->look_again_us : 0;
        const bool looked_at = known && found->second->looked_at;
        subscribers.push_back({std::move(endpoint.id), endpoint.created_at_us, *std::move(filter),
                               !endpoint.tenant.has_value(), endpoint.tenant.value_or(""), misses,
                               look_again_us, looked_at});
    }
    subscribers_ = std::move(subscribers);
    endpoints_.clear();
    for (const Subscriber& subscriber : subscribers_) endpoints_.push_back(subscriber.id);
    const std::unordered_set<std::string_view> there(endpoints_.begin(), endpoints_.end());
    std::erase_if(full_, [&](const auto& one) { return !there.contains(one.first); });
    std::erase_if(uncounted_, [&](const auto& one) { return !there.contains(one.first); });
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
        if (begun_us < one.look_again_us) continue;
        if (one.misses) {
            if (longest_ago == nullptr || one.look_again_us < longest_ago->look_again_us) {
                longest_ago = &one;
            }
        } else if (!one.looked_at || !queues_.has_room(one.id, 1)) {
            one.misses = !look_at_queue(one);
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
    one.looked_at = one.looked_at || rows.ok();
    const bool full = rows.ok() && *rows >= kMaxQueuePerEndpoint;
    one.look_again_us = full || !rows.ok() ? clock_.boot_us() + kLookAgainUs : 0;
    return !full;
}

bool FanOut::end_misses() {
    bool ended = true;
    for (Subscriber& one : subscribers_) {
        if (!one.misses || !queues_.has_room(one.id, kRoomAgain)) continue;
        ended = ended && all_recorded_;
        if (!all_recorded_) continue;
        one.misses = false;
        one.look_again_us = 0;
    }
    return ended;
}

void FanOut::choose(std::span<const mailbox::Row> rows) {
    events_.clear();
    targets_.clear();
    missed_.clear();
    std::vector<std::int64_t> missed(subscribers_.size());
    for (const mailbox::Row& row : rows) {
        const auto event = static_cast<std::uint32_t>(events_.size());
        events_.push_back(
            {row.id, row.event_type, row.key, row.headers, row.payload, row.occurred_at_us});
        for (std::uint32_t i = 0; i < subscribers_.size(); ++i) {
            const Subscriber& one = subscribers_[i];
            if (!one.all_tenants && one.tenant != row.tenant) continue;
            if (!one.filter.wants(row.event_type)) continue;
            if (one.misses) {
                ++missed[i];
            } else {
                queues_.expect(one.id, 1);
                targets_.push_back({event, i});
            }
        }
    }
    for (std::uint32_t i = 0; i < missed.size(); ++i) {
        if (missed[i] > 0) missed_.push_back({i, missed[i]});
    }
}

Status FanOut::write(std::span<const Target> targets, std::span<const Missed> missed) {
    const auto inserted = inlet_->insert(events_, endpoints_, targets, missed);
    for (const Target& target : targets) {
        if (inserted.ok()) {
            queues_.written(endpoints_[target.endpoint]);
        } else {
            queues_.take_back(endpoints_[target.endpoint], 1);
        }
    }
    if (!inserted.ok()) return inserted.status();
    for (const LeftOut& one : inserted->left_out) {
        queues_.take_back(endpoints_[one.endpoint], one.rows);
    }
    for (const Missed& one : missed) uncounted_.erase(std::string(endpoints_[one.endpoint]));
    for (const Missed& one : missed) {
        const auto& left = inserted->uncounted;
        if (std::find(left.begin(), left.end(), one.endpoint) == left.end()) continue;
        uncounted_.emplace(endpoints_[one.endpoint], one.events);
    }
    return {};
}

// What could not be counted before goes with what is missed now.
std::vector<Missed> FanOut::with_uncounted(std::vector<Missed> missed) const {
    if (uncounted_.empty()) return missed;
    for (std::uint32_t i = 0; i < endpoints_.size(); ++i) {
        const auto before = uncounted_.find(endpoints_[i]);
        if (before == uncounted_.end()) continue;
        const auto now = std::find_if(missed.begin(), missed.end(),
                                      [i](const Missed& one) { return one.endpoint == i; });
        if (now == missed.end()) {
            missed.push_back({i, before->second});
        } else {
            now->events += before->second;
        }
    }
    return missed;
}

void FanOut::count_missed() {
    for (const Missed& one : missed_) {
        missed_total_ += one.events;
        full_[std::string(endpoints_[one.endpoint])].untold += one.events;
    }
}

std::vector<Remark> FanOut::take_remarks() {
    std::vector<Remark> remarks;
    const std::int64_t now_us = clock_.boot_us();
    for (auto one = full_.begin(); one != full_.end();) {
        Full& full = one->second;
        if (now_us < full.quiet_until_us) {
            ++one;
        } else if (full.untold == 0) {
            one = full_.erase(one);
        } else {
            full.quiet_until_us = now_us + kQuietUs;
            remarks.push_back({Remark::Level::kError,
                               "webhook_queue_full",
                               {{"endpoint", one->first},
                                {"missed", std::to_string(std::exchange(full.untold, 0))},
                                {"limit", std::to_string(kMaxQueuePerEndpoint)}}});
            ++one;
        }
    }
    return remarks;
}

}  // namespace outbox::webhook
