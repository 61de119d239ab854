#include "relay/tenant_queues.h"

#include <algorithm>
#include <limits>
#include <utility>
// Inlined: the hash is taken once per tenant and small.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/check.h"

namespace outbox::relay {

namespace {

constexpr std::size_t kNoLimit = std::numeric_limits<std::size_t>::max();
constexpr std::size_t kWholePercent = 100;
// So much of a second's events may go at once.
constexpr double kRateBurst = 0.1;
constexpr double kUsPerSecond = 1e6;
// Each portion costs a read, for which the events of all others wait: a tenant gets one so often,
// or as soon as a quarter of its share is free.
constexpr std::int64_t kPortionUs = 20'000;
constexpr std::size_t kPortionOfShare = 4;

std::size_t share_of(std::size_t all, std::size_t percent) {
    if (percent >= kWholePercent) return kNoLimit;
    return std::max<std::size_t>(1, all * percent / kWholePercent);
}

}  // namespace

TenantQueues::TenantQueues(const RelayOptions& options)
    : options_(options),
      share_events_(share_of(options.max_unrecorded, options.tenant_share)),
      share_bytes_(share_of(options.max_in_flight_bytes, options.tenant_share)),
      share_waiting_(share_of(options.max_waiting, options.tenant_share)),
      rate_(static_cast<double>(options.tenant_rate)),
      unlimited_(options.tenant_share >= kWholePercent && options.tenant_rate == 0),
      tenants_(1) {}

TenantQueues::Id TenantQueues::of(std::string_view tenant_id, std::int64_t now_us) {
    const std::string_view name =
        tenant_id.empty() ? std::string_view(options_.default_tenant) : tenant_id;
    if (last_ != 0 && tenants_[last_].name == name) return last_;
    std::string key(name);
    if (const auto found = ids_.find(key); found != ids_.end()) return last_ = found->second;
    if (ids_.size() >= many_) forget_idle(now_us);
    if (free_.empty()) {
        free_.push_back(static_cast<Id>(tenants_.size()));
        tenants_.emplace_back();
    }
    const Id id = free_.back();
    free_.pop_back();
    Tenant& tenant = tenants_[id];
    tenant = Tenant{};
    tenant.name = key;
    // Lanes of the tenant that events have by default are those of a table without tenants.
    tenant.seed = name == options_.default_tenant
                      ? options_.lane_seed
                      : XXH3_64bits_withSeed(name.data(), name.size(), options_.lane_seed);
    tenant.paused = std::binary_search(paused_names_.begin(), paused_names_.end(), key);
    tenant.tokens = std::max(1.0, rate_ * kRateBurst);
    ids_.emplace(std::move(key), id);
    return last_ = id;
}

void TenantQueues::forget_idle(std::int64_t now_us) {
    last_ = 0;
    std::erase_if(ids_, [&](const auto& one) {
        Tenant& tenant = tenants_[one.second];
        if (tenant.held > 0 || !tenant.aside.empty()) return false;
        // Its bucket would begin full.
        if (rate_ > 0) fill(tenant, now_us);
        if (rate_ > 0 && tenant.tokens < std::max(1.0, rate_ * kRateBurst)) return false;
        free_.push_back(one.second);
        return true;
    });
    many_ = std::max(kManyTenants, ids_.size() * 2);
}

void TenantQueues::fill(Tenant& tenant, std::int64_t now_us) const {
    const double since = static_cast<double>(now_us - tenant.tokens_at_us) / kUsPerSecond;
    tenant.tokens = std::min(std::max(1.0, rate_ * kRateBurst), tenant.tokens + since * rate_);
    tenant.tokens_at_us = now_us;
}

// Those that wait for their key, which may fail for days, have a share of their own: with one
// share for both they would keep out the tenant's other keys.
bool TenantQueues::has_room(const Tenant& tenant) const {
    const std::size_t in_memory = in_window(tenant);
    return in_memory < share_events_ && tenant.bytes < share_bytes_ &&
           tenant.held - std::min(tenant.held, in_memory) < share_waiting_;
}

// How many more of its events may go into lanes, at any rate.
std::size_t TenantQueues::room(const Tenant& tenant) const {
    return tenant.paused || !has_room(tenant) ? 0 : share_events_ - in_window(tenant);
}

bool TenantQueues::has_turn(Id id, std::int64_t now_us) {
    Tenant& tenant = tenants_[id];
    if (!tenant.aside.empty() || room(tenant) == 0) return false;
    if (rate_ > 0) fill(tenant, now_us);
    return pays(id);
}

bool TenantQueues::pays(Id id) {
    Tenant& tenant = tenants_[id];
    if (rate_ == 0) return true;
    if (tenant.tokens < 1) return false;
    tenant.tokens -= 1;
    return true;
}

// Each row of a portion has its part of the wait. Where rows are gone others are likely to be, for
// which the next portion looks: it reads no more in vain than twice what was gone.
void TenantQueues::gone(Id id) {
    Tenant& tenant = tenants_[id];
    tenant.back_at_us -= kPortionUs / static_cast<std::int64_t>(tenant.portion);
    if (tenant.tokens >= 1) tenant.look += 2;
}

bool TenantQueues::may_come_back(const Tenant& tenant, std::int64_t now_us) const {
    if (now_us >= tenant.back_at_us) return true;
    return rate_ == 0 && share_events_ - std::min(share_events_, in_window(tenant)) >=
                             share_events_ / kPortionOfShare;
}

std::size_t TenantQueues::next_portion(Tenant& tenant, std::int64_t now_us) const {
    if (!may_come_back(tenant, now_us)) return 0;
    if (rate_ == 0) return room(tenant);
    fill(tenant, now_us);
    if (tenant.tokens < 1) return 0;
    return std::min(room(tenant), std::max(static_cast<std::size_t>(tenant.tokens), tenant.look));
}

void TenantQueues::set_aside(Id id, Position position) {
    Tenant& tenant = tenants_[id];
    if (tenant.aside.empty()) waiting_.push_back(id);
    tenant.aside.add(position);
}

void TenantQueues::set_aside(Id id, const core::Lanes::Withdrawn& event) {
    set_aside(id, event.position);
    if (event.failed) tenants_[id].retries[event.position] = {event.attempts, event.due_us};
}

void TenantQueues::finished(Id id, bool held) {
    if (held) ++tenants_[id].unrecorded;
    finished_.push_back({id, held});
}

void TenantQueues::recorded(std::size_t events) {
    OUTBOX_CHECK(events <= finished_.size(), "what is recorded was finished here");
    for (; events > 0; --events) {
        const Finished one = finished_.front();
        finished_.pop_front();
        if (!one.held) continue;
        --tenants_[one.tenant].unrecorded;
        --tenants_[one.tenant].held;
    }
}

void TenantQueues::take_back(std::size_t most, std::int64_t now_us, std::vector<Back>& out) {
    const std::size_t end = out.size() + most;
    // Each once: those that have more go to the end.
    for (std::size_t turns = waiting_.size(); turns > 0 && out.size() < end; --turns) {
        const Id id = waiting_.front();
        waiting_.pop_front();
        Tenant& tenant = tenants_[id];
        positions_.clear();
        tenant.aside.take_lowest(std::min(next_portion(tenant, now_us), end - out.size()),
                                 positions_);
        if (!positions_.empty()) {
            tenant.back_at_us = now_us + kPortionUs;
            tenant.portion = positions_.size();
            tenant.look = 0;
        }
        for (const Position position : positions_) {
            Back back{position, id};
            if (const auto retry = tenant.retries.find(position); retry != tenant.retries.end()) {
                back.attempts = retry->second.attempts;
                back.due_us = retry->second.due_us;
                tenant.retries.erase(retry);
            }
            out.push_back(back);
        }
        tenant.held += positions_.size();
        if (!tenant.aside.empty()) waiting_.push_back(id);
    }
}

void TenantQueues::most_aside(std::size_t most, std::vector<std::string>& out) {
    std::vector<Id> ids(waiting_.begin(), waiting_.end());
    const auto count = static_cast<std::ptrdiff_t>(std::min(most, ids.size()));
    std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), [this](Id one, Id other) {
        return tenants_[one].aside.size() > tenants_[other].aside.size();
    });
    for (auto id = ids.begin(); id != ids.begin() + count; ++id) out.push_back(tenants_[*id].name);
}

void TenantQueues::put_back(std::span<const Back> events) {
    for (const Back& back : events) {
        --tenants_[back.tenant].held;
        set_aside(back.tenant,
                  {back.position, back.attempts, back.due_us, 0, back.attempts + back.due_us > 0});
    }
}

std::int64_t TenantQueues::next_back_us(std::int64_t now_us) const {
    std::int64_t next_us = std::numeric_limits<std::int64_t>::max();
    for (const Id id : waiting_) {
        const Tenant& tenant = tenants_[id];
        if (tenant.paused || !has_room(tenant)) continue;
        if (rate_ == 0) {
            next_us = std::min(next_us, may_come_back(tenant, now_us) ? now_us : tenant.back_at_us);
            continue;
        }
        const double missing = std::max(0.0, 1 - tenant.tokens);
        const auto wait_us = static_cast<std::int64_t>(missing / rate_ * kUsPerSecond) + 1;
        next_us =
            std::min(next_us, std::max({now_us, tenant.back_at_us, tenant.tokens_at_us + wait_us}));
    }
    return next_us;
}

bool TenantQueues::waits_for_record() const {
    return std::any_of(waiting_.begin(), waiting_.end(), [this](const Id id) {
        const Tenant& tenant = tenants_[id];
        return !tenant.paused && in_window(tenant) >= share_events_ && tenant.unrecorded > 0;
    });
}

void TenantQueues::pause(std::vector<std::string> names) {
    std::sort(names.begin(), names.end());
    paused_names_ = std::move(names);
    for (const auto& [name, id] : ids_) {
        tenants_[id].paused = std::binary_search(paused_names_.begin(), paused_names_.end(), name);
    }
}

void TenantQueues::pause_also(const std::vector<std::string>& names) {
    std::vector<std::string> all = paused_names_;
    all.insert(all.end(), names.begin(), names.end());
    pause(std::move(all));
}

RouteStats::Tenants TenantQueues::counts() const {
    RouteStats::Tenants out;
    out.paused = paused_names_.size();
    std::size_t others = 0;
    for (const auto& [name, id] : ids_) {
        const Tenant& tenant = tenants_[id];
        const std::size_t waiting = tenant.aside.size() + tenant.held - tenant.unrecorded;
        if (name == RouteStats::kOtherTenants) {
            others += waiting;
        } else if (waiting > 0) {
            out.waiting.emplace_back(name, waiting);
        }
    }
    std::sort(out.waiting.begin(), out.waiting.end(), [](const auto& one, const auto& other) {
        return one.second != other.second ? one.second > other.second : one.first < other.first;
    });
    while (out.waiting.size() > RouteStats::kMaxTenants) {
        others += out.waiting.back().second;
        out.waiting.pop_back();
    }
    if (others > 0) out.waiting.emplace_back(RouteStats::kOtherTenants, others);
    return out;
}

}  // namespace outbox::relay
