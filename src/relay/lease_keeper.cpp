#include "relay/lease_keeper.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace outbox::relay {
namespace {
constexpr std::int64_t kStandByEveryUs = 5'000'000;
}  // namespace

Status LeaseKeeper::connect() {
    if (store_) return {};
    auto store = source_.open_lease();
    if (!store.ok()) return store.status();
    store_ = std::move(*store);
    return {};
}

void LeaseKeeper::extend(std::int64_t started_us) {
    view_.extend(started_us + (options_.lease_ttl_ms - options_.lease_margin_ms) * 1000);
    next_renewal_us_ = started_us + options_.lease_renew_ms * 1000;
}

Result<std::optional<std::uint64_t>> LeaseKeeper::try_acquire() {
    if (Status status = connect(); !status.ok()) return status;
    const std::int64_t started_us = clock_.boot_us();
    auto epoch = store_->acquire(options_.owner, std::chrono::milliseconds(options_.lease_ttl_ms));
    answered_ = epoch.ok();
    if (!epoch.ok()) return epoch.status();
    if (*epoch) {
        epoch_ = **epoch;
        extend(started_us);
    }
    return epoch;
}

Result<bool> LeaseKeeper::keep() {
    const std::int64_t started_us = clock_.boot_us();
    if (started_us < next_renewal_us_) return view_.valid(started_us);
    answered_ = false;
    if (Status status = connect(); !status.ok()) {
        next_renewal_us_ = started_us + options_.lease_retry_ms * 1000;
        return status;
    }
    auto renewed = store_->renew(epoch_, std::chrono::milliseconds(options_.lease_ttl_ms));
    if (!renewed.ok()) {
        next_renewal_us_ = started_us + options_.lease_retry_ms * 1000;
        return renewed.status();
    }
    answered_ = true;
    if (*renewed) {
        extend(started_us);
    } else {
        view_.lose();
    }
    return *renewed;
}

void LeaseKeeper::stand_by(std::span<const RouteSpec> routes) {
    const std::int64_t now_us = clock_.boot_us();
    if (!store_ || now_us < next_stand_by_us_) return;
    std::vector<std::string> names;
    for (const RouteSpec& route : routes) names.push_back(route.name);
    static_cast<void>(store_->stand_by(options_.owner, names));
    next_stand_by_us_ = now_us + kStandByEveryUs;
}

void LeaseKeeper::stand_down() {
    if (!store_ || next_stand_by_us_ == 0) return;
    next_stand_by_us_ = 0;
    static_cast<void>(store_->stand_by(options_.owner, {}));
}

void LeaseKeeper::release() {
    view_.end();
    if (!connect().ok()) return;
    // Failing to release costs the next relay the wait for the TTL, nothing else.
    static_cast<void>(store_->release(epoch_));
}

}  // namespace outbox::relay
