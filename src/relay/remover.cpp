#include "relay/remover.h"

#include <algorithm>
#include <utility>

namespace outbox::relay {

namespace {

constexpr std::size_t kWorthATransaction = 2'000;
constexpr std::size_t kMaxBatch = 10'000;
constexpr std::chrono::milliseconds kLookForLeft{10};

}  // namespace

void Remover::inherit(spi::PositionSet positions) {
    const core::Lock lock(mutex_);
    waiting_ = std::move(positions);
    inherited_ = waiting_.size();
    pending_.store(inherited_, std::memory_order_relaxed);
}

void Remover::set_pending(std::size_t pending) {
    pending_.store(pending, std::memory_order_relaxed);
    full_.store(pending >= kMaxPending + inherited_, std::memory_order_relaxed);
}

void Remover::push(std::span<const Position> positions) {
    if (positions.empty()) return;
    bool worth = false;
    {
        const core::Lock lock(mutex_);
        const std::size_t before = waiting_.size();
        waiting_.add(positions);
        set_pending(pending() + waiting_.size() - before);
        worth = waiting_.size() >= kWorthATransaction;
    }
    if (worth) changed_.notify_one();
}

void Remover::flush() {
    {
        const core::Lock lock(mutex_);
        flush_ = true;
    }
    changed_.notify_all();
}

Status Remover::turn(std::chrono::milliseconds max_wait) {
    if (batch_.empty()) {
        core::Lock lock(mutex_);
        changed_.wait_for(mutex_, left_ > 0 ? std::min(max_wait, kLookForLeft) : max_wait,
                          [&]() OUTBOX_REQUIRES(mutex_) {
                              return flush_ || waiting_.size() >= kWorthATransaction;
                          });
        // The oldest first: a lagging removal leaves whole segments of the ledgers behind it.
        waiting_.take_lowest(kMaxBatch, batch_);
    }
    if (batch_.empty() && left_ == 0) return {};
    const auto removed = recorder_.remove(epoch_, batch_);
    if (!removed.ok()) return removed.status();
    left_ = removed->left;
    kept_.store(removed->kept, std::memory_order_relaxed);
    if (removed->refusal != refusal_) {
        refusal_ = removed->refusal;
        refusal_changed_ = true;
    }
    batch_.clear();
    const core::Lock lock(mutex_);
    removed_.insert(removed_.end(), removed->positions.begin(), removed->positions.end());
    set_pending(waiting_.size() + left_);
    return {};
}

std::optional<std::string> Remover::new_refusal() {
    if (!std::exchange(refusal_changed_, false)) return std::nullopt;
    return refusal_;
}

void Remover::take_removed(std::vector<Position>& out) {
    const core::Lock lock(mutex_);
    out.insert(out.end(), removed_.begin(), removed_.end());
    removed_.clear();
}

}  // namespace outbox::relay
