#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace outbox::sinks::kafka {

/// Whether records are sent at once, which gives the lowest latency, or gathered for some
/// milliseconds, which costs this process and the broker less in a backlog. librdkafka fixes that
/// per producer, so a change waits until nothing is under way.
class Pace {
  public:
    using Time = std::chrono::steady_clock::time_point;
    enum class Kind : std::uint8_t { kPrompt, kBulk };

    /// `most`: how many records may be under way.
    explicit Pace(std::size_t most) : bulk_above_(most / 4), prompt_below_(most / 20) {}

    [[nodiscard]] Kind kind() const { return kind_; }

    /// True: the other kind suits better, and has for long enough that a change pays.
    [[nodiscard]] bool wants_change(std::size_t under_way, Time now) {
        const bool fits =
            kind_ == Kind::kPrompt ? under_way <= bulk_above_ : under_way >= prompt_below_;
        if (fits) since_ = now;
        return now - since_ > (kind_ == Kind::kPrompt ? kBulkAfter : kPromptAfter);
    }

    void change(Time now) {
        kind_ = kind_ == Kind::kPrompt ? Kind::kBulk : Kind::kPrompt;
        since_ = now;
    }

  private:
    static constexpr std::chrono::milliseconds kBulkAfter{50};
    static constexpr std::chrono::milliseconds kPromptAfter{1'000};

    std::size_t bulk_above_;
    std::size_t prompt_below_;
    Kind kind_ = Kind::kPrompt;
    Time since_{};
};

}  // namespace outbox::sinks::kafka
