#include "webhook/fan_out.h"

#include <utility>

namespace outbox::webhook {
namespace {

constexpr std::int64_t kRefreshUs = 1'000'000;
// Of one transaction.
constexpr std::size_t kMaxTargets = 10'000;
constexpr std::size_t kMaxBytes = std::size_t{32} << 20;

}  // namespace

Status FanOut::insert(std::span<const mailbox::Row> rows) {
    if (Status status = refresh(); !status.ok()) return status;
    choose(rows);
    const std::span<const Target> all(targets_);
    std::size_t begin = 0;
    std::size_t bytes = 0;
    Status status;
    for (std::size_t i = 0; i < all.size() && status.ok(); ++i) {
        bytes += events_[all[i].event].payload.size();
        const bool last = i + 1 == all.size();
        if (!last && i + 1 - begin < kMaxTargets && bytes < kMaxBytes) continue;
        status = write(all.subspan(begin, i + 1 - begin));
        begin = i + 1;
        bytes = 0;
    }
    if (!status.ok()) {
        for (const Target& target : all.subspan(begin)) {
            queues_.take_back(endpoints_[target.endpoint], 1);
        }
        // What was refused may be an endpoint that is gone.
        refreshed_us_ = 0;
    }
    if (!all.empty()) queues_.wake();
    return status;
}

Status FanOut::refresh() {
    const std::int64_t now_us = clock_.boot_us();
    if (refreshed_us_ != 0 && now_us - refreshed_us_ < kRefreshUs) return {};
    auto endpoints = inlet_->endpoints();
    if (!endpoints.ok()) return endpoints.status();
    subscribers_.clear();
    for (Endpoint& endpoint : *endpoints) {
        // One that an earlier version or another hand wrote and that cannot be read wants nothing.
        auto filter = EventFilter::make(endpoint.events);
        if (!filter.ok()) continue;
        subscribers_.push_back({std::move(endpoint.id), *std::move(filter),
                                !endpoint.tenant.has_value(), endpoint.tenant.value_or("")});
    }
    endpoints_.clear();
    for (const Subscriber& subscriber : subscribers_) endpoints_.push_back(subscriber.id);
    refreshed_us_ = now_us;
    return {};
}

void FanOut::choose(std::span<const mailbox::Row> rows) {
    events_.clear();
    targets_.clear();
    for (const mailbox::Row& row : rows) {
        const auto event = static_cast<std::uint32_t>(events_.size());
        events_.push_back(
            {row.id, row.event_type, row.key, row.headers, row.payload, row.occurred_at_us});
        for (std::uint32_t i = 0; i < subscribers_.size(); ++i) {
            const Subscriber& one = subscribers_[i];
            if (!one.all_tenants && one.tenant != row.tenant) continue;
            if (!one.filter.wants(row.event_type) || !queues_.admit(one.id, 1)) continue;
            targets_.push_back({event, i});
        }
    }
}

Status FanOut::write(std::span<const Target> targets) {
    Status status = inlet_->insert(events_, endpoints_, targets);
    for (const Target& target : targets) {
        if (status.ok()) {
            queues_.written(endpoints_[target.endpoint]);
        } else {
            queues_.take_back(endpoints_[target.endpoint], 1);
        }
    }
    return status;
}

}  // namespace outbox::webhook
