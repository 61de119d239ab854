#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace outbox::replay {

inline constexpr std::int64_t kDefaultRate = 500;  ///< Events in a second.
inline constexpr std::int64_t kMaxRate = 1'000'000;

/// A token bucket: lets so many events go in a second, evenly. Times are `Clock::boot_us`.
class Pace {
  public:
    Pace(std::int64_t per_second, std::int64_t now_us)
        : per_second_(static_cast<double>(per_second)), since_us_(now_us) {}

    /// How many may go now, at most `most`.
    [[nodiscard]] std::size_t may_go(std::int64_t now_us, std::size_t most) {
        constexpr double kMicroseconds = 1e6;
        // What was not used for longer is lost: no burst follows a pause.
        constexpr double kBurstSeconds = 0.1;
        const double rate = per_second_ * share_;
        tokens_ += rate * static_cast<double>(now_us - since_us_) / kMicroseconds;
        tokens_ = std::min(tokens_, std::max(1.0, rate * kBurstSeconds));
        since_us_ = now_us;
        return std::min(most, static_cast<std::size_t>(tokens_));
    }
    void went(std::size_t count) { tokens_ -= static_cast<double>(count); }

    /// From now on this part of the rate.
    void slow_down_to(double share) { share_ = share; }
    [[nodiscard]] bool is_slowed() const { return share_ < 1; }

  private:
    const double per_second_;
    double share_ = 1;
    double tokens_ = 0;
    std::int64_t since_us_;
};

}  // namespace outbox::replay
