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
        if (const auto evidence = evidence_on(position);
            evidence != evidence_.end() && evidence->rounds == kEvidence) {
            --evidence->rounds;  // Its next needs new evidence.
            return true;
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
            // Another event passed where these have failed. Once is no proof: a destination that
            // goes down may take one more event, and then fail on the same one again.
            if (!has_failed(position)) {
                for (const spi::Position failed : failed_) note_evidence(failed);
            }
            std::erase(culprits_, position);
            forget_evidence(position);
        }
        state_ = State::kClosed;
        failures_ = 0;
        failed_.clear();
        outage_ = false;
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
    static constexpr std::uint32_t kEvidence = 2;

    struct Evidence {
        spi::Position position = 0;
        std::uint32_t rounds = 0;  // in which it failed and another event passed, and no outage
    };
    struct On {
        spi::Position position = 0;
        bool operator()(const Evidence& evidence) const { return evidence.position == position; }
    };

    // Outcomes of records sent before the circuit opened prove nothing about now.
    [[nodiscard]] bool counts(spi::Position position) const {
        return state_ == State::kClosed || (state_ == State::kHalfOpen && position == probe_);
    }
    void add_culprit(spi::Position position) {
        if (culprits_.size() == kMaxCulprits) {
            forget_evidence(culprits_.front());
            culprits_.erase(culprits_.begin());
        }
        culprits_.push_back(position);
    }
    void open(spi::Position culprit, std::int64_t now_us, std::uint64_t random) {
        if (culprit != 0) {
            std::erase(culprits_, culprit);
            add_culprit(culprit);
        }
        if (!has_failed(culprit)) {
            if (failed_.size() == kMaxCulprits) failed_.erase(failed_.begin());
            failed_.push_back(culprit);
        }
        outage_ = outage_ || looks_like_outage();
        if (outage_) {
            for (Evidence& evidence : evidence_) evidence.rounds = 0;
        }
        ++failures_;
        state_ = State::kOpen;
        until_us_ = now_us + backoff_.delay_us(failures_, random);
    }

    // Of several that failed one did so for the first time, or the destination itself did not
    // answer: nobody's fault. Those that have failed before, while others passed, are no outage,
    // however many they are: else two events at fault would excuse each other for good.
    [[nodiscard]] bool looks_like_outage() const {
        return failed_.size() > 1 &&
               std::any_of(failed_.begin(), failed_.end(), [this](spi::Position position) {
                   return std::none_of(evidence_.begin(), evidence_.end(), On{position});
               });
    }
    [[nodiscard]] bool has_failed(spi::Position position) const {
        return std::find(failed_.begin(), failed_.end(), position) != failed_.end();
    }
    void note_evidence(spi::Position position) {
        if (!is_culprit(position)) return;
        auto evidence = evidence_on(position);
        if (evidence == evidence_.end()) evidence = evidence_.insert(evidence, {position, 0});
        if (!outage_ && evidence->rounds < kEvidence) ++evidence->rounds;
    }
    void forget_evidence(spi::Position position) { std::erase_if(evidence_, On{position}); }
    [[nodiscard]] std::vector<Evidence>::iterator evidence_on(spi::Position position) {
        return std::find_if(evidence_.begin(), evidence_.end(), On{position});
    }

    RetryPolicy backoff_;
    State state_ = State::kClosed;
    std::int64_t until_us_ = 0;
    std::uint32_t failures_ = 0;
    spi::Position suspect_ = 0;
    std::optional<spi::Position> probe_;
    std::vector<spi::Position> culprits_;
    std::vector<Evidence> evidence_;     // on culprits only
    std::vector<spi::Position> failed_;  // since the circuit opened; 0: the destination itself
    bool outage_ = false;                // since the circuit opened
};

}  // namespace outbox::core
