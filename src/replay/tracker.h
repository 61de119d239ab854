#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include <outbox/spi/source.h>

#include "replay/runs.h"

namespace outbox::replay {

/// What became of the events of a run, in their order: a run is as far as the last one before which
/// all have an end. Not thread-safe.
class Tracker {
  public:
    /// What the run had before.
    Tracker(std::int64_t sent, std::int64_t refused, std::vector<Refusal> refusals)
        : sent_(sent), refused_(refused), refusals_(std::move(refusals)) {}

    void handed_out(spi::Position position) { events_.push_back({position, State::kOpen, {}}); }
    void sent(spi::Position position) { end(position, State::kSent, {}); }
    void refused(spi::Position position, Refusal why) {
        end(position, State::kRefused, std::move(why));
    }
    /// Its row went before it could be sent.
    void gone(spi::Position position) { end(position, State::kGone, {}); }

    /// Moves on past what has an end; appends those positions to `passed`, ascending.
    void move_on(std::vector<spi::Position>& passed);

    /// Handed out, and the run is not past them.
    [[nodiscard]] std::size_t open() const { return events_.size(); }
    /// Of what the run is past.
    [[nodiscard]] std::int64_t sent() const { return sent_; }
    [[nodiscard]] std::int64_t refused() const { return refused_; }
    [[nodiscard]] const std::vector<Refusal>& refusals() const { return refusals_; }

  private:
    enum class State : std::uint8_t { kOpen, kSent, kRefused, kGone };
    struct Event {
        spi::Position position = 0;
        State state = State::kOpen;
        Refusal why;
    };
    void end(spi::Position position, State state, Refusal why);

    std::deque<Event> events_;  // by position
    std::int64_t sent_;
    std::int64_t refused_;
    std::vector<Refusal> refusals_;
};

}  // namespace outbox::replay
