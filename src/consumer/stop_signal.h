#pragma once

#include <atomic>
#include <cstdint>

namespace outbox::consumer {

/// A stop request that ends waits at once; `request` is safe in a signal handler.
class StopSignal {
  public:
    /// Throws `Error` when the process has no file descriptor left.
    StopSignal();
    ~StopSignal();
    StopSignal(const StopSignal&) = delete;
    StopSignal& operator=(const StopSignal&) = delete;

    void request() noexcept;
    [[nodiscard]] bool requested() const noexcept { return requested_.load(); }
    /// Waits for a request, at most this long.
    void wait_ms(std::int64_t timeout_ms) const;

  private:
    static_assert(std::atomic<bool>::is_always_lock_free);
    std::atomic<bool> requested_{false};
    int fd_;
};

}  // namespace outbox::consumer
