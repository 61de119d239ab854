#pragma once

#include <algorithm>
#include <chrono>

#include "relay/relay.h"

namespace outbox::app {

/// Beyond the time after which a thread passes for one that hangs: for it to return after all, for
/// what others have published to be recorded, and for somebody to look where it hangs.
inline constexpr std::chrono::minutes kHangGrace{1};

/// Whether a relay goes on no more, because a thread hangs that nothing can end. Time in which the
/// whole process stood still does not count.
class HangWatch {
  public:
    /// To be asked several times a second.
    [[nodiscard]] bool is_over(const relay::Relay& relay) {
        const auto now = Clock::now();
        const auto passed = std::min<Clock::duration>(now - looked_, kMaxLook);
        looked_ = now;
        for_ = relay.hangs() || relay.ends_term() ? for_ + passed : Clock::duration(0);
        return for_ >= (relay.hangs() ? kHangGrace : relay::kMaxStandstill + kHangGrace);
    }

  private:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kMaxLook{1};

    Clock::time_point looked_ = Clock::now();
    Clock::duration for_{0};
};

}  // namespace outbox::app
