#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <outbox/spi/event_batch.h>

#include "core/retry_policy.h"

namespace outbox::core {

/// Whether a route may send. Closed: yes. Open: not before a time. Half open: one event, the
/// probe, whose outcome decides. Pure; not thread-safe; times are `Clock::boot_us`.
class Circuit {
  public:
    enum class State : std::uint8_t { kClosed, kOpen, kHalfOpen };

    explicit Circuit(RetryPolicy backoff) : backoff_(backoff) {}

    [[nodiscard]] State state() const { return state_; }
    [[nodiscard]] std::int64_t opens_until_us() const { return until_us_; }
    /// Events whose failures opened the circuit lately: any other makes a better probe.
    [[nodiscard]] std::span<const spi::Position> culprits() const { return culprits_; }
    [[nodiscard]] bool is_culprit(spi::Position position) const {
        return std::find(culprits_.begin(), culprits_.end(), position) != culprits_.end();
    }
    /// An event to be sent again alone, to learn whether it is at fault; 0: none.
    [[nodiscard]] spi::Position suspect() const { return suspect_; }

    /// Any other event makes a better probe than this one, which is not why the circuit opened.
    void avoid(spi::Position position) {
        if (!is_culprit(position)) add_culprit(position);
    }

    /// The destination failed on the event at `position`. True: the failure follows this event
    /// while others succeed, so it is the event's own; the circuit stays as it is.
    bool failed(spi::Position position, std::int64_t now_us, std::uint64_t random) {
        if (!counts(position)) return false;
        if (std::count(evidence_.begin(), evidence_.end(), position) == kEvidence) {
            evidence_.erase(std::find(evidence_.begin(), evidence_.end(), position));
            return true;  // Its next needs new evidence.
        }
        open(position, now_us, random);
        return false;
    }

    /// The destination refused something and this event is the likely cause: it is the next probe.
    void suspected(spi::Position position, std::int64_t now_us, std::uint64_t random) {
        suspect_ = position;
        if (counts(position)) open(position, now_us, random);
    }

    /// Half open: this event goes to the destination, or (0) the destination itself is asked.
    void probing(spi::Position position) { probe_ = position; }

    /// The event at `position` was published, or failed through its own fault: the destination
    /// answers.
    void answered(spi::Position position, bool published) {
        if (position == suspect_) suspect_ = 0;
        if (!counts(position)) return;
        if (published) {
            // Another event passed where one has failed. Once is no proof: a destination that goes
            // down may take one more event, and then fail on the same one again.
            if (failures_ > 0 && opener_ != 0 && position != opener_ &&
                std::count(evidence_.begin(), evidence_.end(), opener_) < kEvidence) {
                evidence_.push_back(opener_);
            }
            std::erase(culprits_, position);
            std::erase(evidence_, position);
        }
        state_ = State::kClosed;
        failures_ = 0;
    }

    /// Moves from open to half open when the time has come.
    void tick(std::int64_t now_us) {
        if (state_ == State::kOpen && now_us >= until_us_) {
            state_ = State::kHalfOpen;
            probe_.reset();
        }
    }

    /// As logs, `outbox status` and the tables call it.
    [[nodiscard]] static constexpr const char* name(State state) {
        switch (state) {
            case State::kClosed:
                return "closed";
            case State::kOpen:
                return "open";
            case State::kHalfOpen:
                return "half_open";
        }
        return "closed";
    }

  private:
    // A probe is an event that is none of them: were fewer remembered than fail, the circuit would
    // stay open for good.
    static constexpr std::size_t kMaxCulprits = 1'000;
    static constexpr std::ptrdiff_t kEvidence = 2;

    // Outcomes of records sent before the circuit opened prove nothing about now.
    [[nodiscard]] bool counts(spi::Position position) const {
        return state_ == State::kClosed || (state_ == State::kHalfOpen && position == probe_);
    }
    void add_culprit(spi::Position position) {
        if (culprits_.size() == kMaxCulprits) {
            std::erase(evidence_, culprits_.front());
            culprits_.erase(culprits_.begin());
        }
        culprits_.push_back(position);
    }
    void open(spi::Position culprit, std::int64_t now_us, std::uint64_t random) {
        if (culprit != 0) {
            std::erase(culprits_, culprit);
            add_culprit(culprit);
        }
        if (failures_ == 0) {
            opener_ = culprit;
        } else if (culprit != opener_) {
            opener_ = 0;  // An outage, which is nobody's fault.
            evidence_.clear();
        }
        ++failures_;
        state_ = State::kOpen;
        until_us_ = now_us + backoff_.delay_us(failures_, random);
    }

    RetryPolicy backoff_;
    State state_ = State::kClosed;
    std::int64_t until_us_ = 0;
    std::uint32_t failures_ = 0;
    spi::Position suspect_ = 0;
    std::optional<spi::Position> probe_;
    std::vector<spi::Position> culprits_;
    spi::Position opener_ = 0;  // The only one that failed since the circuit opened.
    // A culprit once for each time that the circuit opened on it and another event passed first.
    std::vector<spi::Position> evidence_;
};

}  // namespace outbox::core
