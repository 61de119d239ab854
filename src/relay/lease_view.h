#pragma once

#include <atomic>
#include <cstdint>

namespace outbox::relay {

/// Until when this relay may send, as all of its threads see it. Times are `Clock::boot_us`.
class LeaseView {
  public:
    [[nodiscard]] bool valid(std::int64_t now_us) const {
        return now_us < valid_until_us_.load(std::memory_order_acquire);
    }
    void extend(std::int64_t until_us) {
        lost_.store(false, std::memory_order_release);
        valid_until_us_.store(until_us, std::memory_order_release);
    }
    /// The database has said so: nothing more is written on it.
    [[nodiscard]] bool lost() const { return lost_.load(std::memory_order_acquire); }
    void lose() {
        end();
        lost_.store(true, std::memory_order_release);
    }
    void end() { valid_until_us_.store(0, std::memory_order_release); }

  private:
    std::atomic<std::int64_t> valid_until_us_{0};
    std::atomic<bool> lost_ = false;
};

}  // namespace outbox::relay
