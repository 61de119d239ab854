#pragma once

#include <cstdint>
#include <optional>

namespace outbox::core {

/// What a log is told of something that goes down and comes back: each change, until it goes down
/// again soon after it came back; from then on that it is back only once it has stayed so for
/// `kHoldsUs`. So the last line says how it stands, and one that does both several times a second
/// fills no log. Pure; not thread-safe; times are `Clock::boot_us`.
class Flapping {
  public:
    static constexpr std::int64_t kHoldsUs = 10'000'000;

    /// It went down. True: to be told.
    bool down(std::int64_t now_us) {
        if (up_since_us_) {
            up_since_us_.reset();
            return false;  // nobody was told that it was back
        }
        shaky_ = told_up_us_ && now_us - *told_up_us_ < kHoldsUs;
        return true;
    }

    /// It came back. True: to be told; else `settled` says when.
    bool up(std::int64_t now_us) {
        if (!shaky_) {
            told_up_us_ = now_us;
            return true;
        }
        if (!up_since_us_) up_since_us_ = now_us;
        return false;
    }

    /// It has stayed back for long enough: to be told, once.
    bool settled(std::int64_t now_us) {
        if (!up_since_us_ || now_us - *up_since_us_ < kHoldsUs) return false;
        up_since_us_.reset();
        shaky_ = false;
        told_up_us_ = now_us;
        return true;
    }

    /// Nothing of the past matters any more.
    [[nodiscard]] bool is_calm(std::int64_t now_us) const {
        return !shaky_ && told_up_us_ && now_us - *told_up_us_ >= kHoldsUs;
    }

  private:
    std::optional<std::int64_t> told_up_us_;
    std::optional<std::int64_t> up_since_us_;  // and that was not told
    bool shaky_ = false;
};

}  // namespace outbox::core
