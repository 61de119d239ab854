#include "tracing/span_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace outbox::tracing {

void SpanQueue::offer(Span span) {
    const core::Lock lock(mutex_);
    if (spans_.size() >= kMaxSpans) {
        dropped_.fetch_add(1, std::memory_order_relaxed);
        return;
    }
    spans_.push_back(std::move(span));
    if (awaited_ != 0 && spans_.size() >= awaited_) filled_.notify_one();
}

std::vector<Span> SpanQueue::take(std::size_t most, std::chrono::milliseconds wait) {
    const core::Lock lock(mutex_);
    awaited_ = most;
    filled_.wait_for(mutex_, wait,
                     [&]() OUTBOX_REQUIRES(mutex_) { return awake_ || spans_.size() >= most; });
    awaited_ = 0;
    if (spans_.size() <= most) return std::exchange(spans_, {});
    const auto end = spans_.begin() + static_cast<std::ptrdiff_t>(most);
    std::vector<Span> taken(std::make_move_iterator(spans_.begin()), std::make_move_iterator(end));
    spans_.erase(spans_.begin(), end);
    return taken;
}

void SpanQueue::wake() {
    const core::Lock lock(mutex_);
    awake_ = true;
    filled_.notify_all();
}

}  // namespace outbox::tracing
