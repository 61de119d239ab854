#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/event_ref.h"
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
    [[nodiscard]] std::span<const EventRef> culprits() const { return culprits_; }
    [[nodiscard]] bool is_culprit(EventRef event) const {
        return std::find(culprits_.begin(), culprits_.end(), event) != culprits_.end();
    }
    /// An event to be sent again alone, to learn whether it is at fault; or none.
    [[nodiscard]] EventRef suspect() const { return suspect_; }

    /// Any other event makes a better probe than this one, which is not why the circuit opened.
    void avoid(EventRef event) {
        if (!is_culprit(event)) add_culprit(event);
    }

    /// The destination failed on the event. True: the failure follows this event while others
    /// succeed, so it is the event's own; the circuit stays as it is.
    bool failed(EventRef event, std::int64_t now_us, std::uint64_t random) {
        if (!counts(event)) return false;
        if (const auto evidence = evidence_on(event);
            evidence != evidence_.end() && evidence->rounds == kEvidence) {
            --evidence->rounds;  // Its next needs new evidence.
            return true;
        }
        open(event, now_us, random);
        return false;
    }

    /// The destination refused something and this event is the likely cause: it is the next probe.
    void suspected(EventRef event, std::int64_t now_us, std::uint64_t random) {
        suspect_ = event;
        if (counts(event)) open(event, now_us, random);
    }

    /// Half open: this event goes to the destination, or (none) the destination itself is asked.
    void probing(EventRef event) { probe_ = event; }

    /// The event was published, or failed through its own fault: the destination answers.
    void answered(EventRef event, bool published) {
        if (event == suspect_) suspect_ = {};
        if (!counts(event)) return;
        if (published) {
            // Another event passed where these have failed. Once is no proof: a destination that
            // goes down may take one more event, and then fail on the same one again.
            if (!has_failed(event)) {
                for (const EventRef failed : failed_) note_evidence(failed);
            }
            std::erase(culprits_, event);
            forget_evidence(event);
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
        EventRef event;
        std::uint32_t rounds = 0;  // in which it failed and another event passed, and no outage
    };
    struct On {
        EventRef event;
        bool operator()(const Evidence& evidence) const { return evidence.event == event; }
    };

    // Outcomes of records sent before the circuit opened prove nothing about now.
    [[nodiscard]] bool counts(EventRef event) const {
        return state_ == State::kClosed || (state_ == State::kHalfOpen && event == probe_);
    }
    void add_culprit(EventRef event) {
        if (culprits_.size() == kMaxCulprits) {
            forget_evidence(culprits_.front());
            culprits_.erase(culprits_.begin());
        }
        culprits_.push_back(event);
    }
    void open(EventRef culprit, std::int64_t now_us, std::uint64_t random) {
        if (!culprit.is_none()) {
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
               std::any_of(failed_.begin(), failed_.end(), [this](EventRef event) {
                   return std::none_of(evidence_.begin(), evidence_.end(), On{event});
               });
    }
    [[nodiscard]] bool has_failed(EventRef event) const {
        return std::find(failed_.begin(), failed_.end(), event) != failed_.end();
    }
    void note_evidence(EventRef event) {
        if (!is_culprit(event)) return;
        auto evidence = evidence_on(event);
        if (evidence == evidence_.end()) evidence = evidence_.insert(evidence, {event, 0});
        if (!outage_ && evidence->rounds < kEvidence) ++evidence->rounds;
    }
    void forget_evidence(EventRef event) { std::erase_if(evidence_, On{event}); }
    [[nodiscard]] std::vector<Evidence>::iterator evidence_on(EventRef event) {
        return std::find_if(evidence_.begin(), evidence_.end(), On{event});
    }

    RetryPolicy backoff_;
    State state_ = State::kClosed;
    std::int64_t until_us_ = 0;
    std::uint32_t failures_ = 0;
    EventRef suspect_;
    std::optional<EventRef> probe_;
    std::vector<EventRef> culprits_;
    std::vector<Evidence> evidence_;  // on culprits only
    std::vector<EventRef> failed_;    // since the circuit opened; none: the destination itself
    bool outage_ = false;             // since the circuit opened
};

}  // namespace outbox::core
