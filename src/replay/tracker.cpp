#include "replay/tracker.h"

#include <algorithm>
#include <utility>

namespace outbox::replay {

// The first word on an event stays.
void Tracker::end(spi::Position position, State state, Refusal why) {
    const auto event = std::lower_bound(
        events_.begin(), events_.end(), position,
        [](const Event& one, spi::Position wanted) { return one.position < wanted; });
    if (event == events_.end() || event->position != position) return;
    if (event->state != State::kOpen) return;
    event->state = state;
    event->why = std::move(why);
}

void Tracker::move_on(std::vector<spi::Position>& passed) {
    for (; !events_.empty() && events_.front().state != State::kOpen; events_.pop_front()) {
        Event& event = events_.front();
        passed.push_back(event.position);
        if (event.state == State::kSent) ++sent_;
        if (event.state != State::kRefused) continue;
        ++refused_;
        if (refusals_.size() < kMaxRefusals) refusals_.push_back(std::move(event.why));
    }
}

}  // namespace outbox::replay
