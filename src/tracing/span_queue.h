#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/mutex.h"
#include "tracing/span.h"

namespace outbox::tracing {

/// From those who work to the one who sends. Full, it drops: no event waits for a span.
/// Thread-safe.
class SpanQueue {
  public:
    static constexpr std::size_t kMaxSpans = 16'384;  // some 8 MB

    void offer(Span span);
    /// Up to `most` in their order; waits for `most` until the time is over or `wake` is called.
    [[nodiscard]] std::vector<Span> take(std::size_t most, std::chrono::milliseconds wait);
    /// From now on `take` waits for nothing.
    void wake();

    [[nodiscard]] std::uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }

  private:
    core::Mutex mutex_;
    core::Condition filled_;
    std::vector<Span> spans_ OUTBOX_GUARDED_BY(mutex_);
    std::size_t awaited_ OUTBOX_GUARDED_BY(mutex_) = 0;  // 0: nobody waits
    bool awake_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::atomic<std::uint64_t> dropped_{0};
};

}  // namespace outbox::tracing
