#include "relay/outcome_queue.h"

#include <iterator>
#include <utility>

namespace outbox::relay {

namespace {

template <typename T>
void move_to_end(std::vector<T>& to, std::vector<T>& from) {
    if (to.empty()) {
        to.swap(from);
    } else {
        to.insert(to.end(), std::make_move_iterator(from.begin()),
                  std::make_move_iterator(from.end()));
    }
    from.clear();
}

}  // namespace

void Outcomes::append(Outcomes&& more) {
    move_to_end(finished, more.finished);
    move_to_end(closed, more.closed);
    move_to_end(passed, more.passed);
    move_to_end(failed, more.failed);
    move_to_end(dead, more.dead);
    move_to_end(dead_lanes, more.dead_lanes);
    move_to_end(redelivered, more.redelivered);
    move_to_end(failed_again, more.failed_again);
    if (!more.destination.empty()) destination = std::move(more.destination);
    hurry = hurry || more.hurry;
}

void Outcomes::clear() {
    finished.clear();
    closed.clear();
    passed.clear();
    failed.clear();
    dead.clear();
    dead_lanes.clear();
    redelivered.clear();
    failed_again.clear();
    destination.clear();
    hurry = false;
}

std::vector<std::size_t> OutcomeQueue::hand_over(std::int64_t dead_id,
                                                 std::span<const std::size_t> routes) {
    const core::Lock lock(mutex_);
    const auto [it, fresh] = handed_over_.try_emplace(dead_id);
    if (fresh) {
        it->second.routes.assign(routes.begin(), routes.end());
        it->second.waiting = it->second.routes;
    }
    return it->second.waiting;
}

OutcomeQueue::Handed OutcomeQueue::answered(std::int64_t dead_id, std::size_t route,
                                            bool delivered) {
    const core::Lock lock(mutex_);
    const auto it = handed_over_.find(dead_id);
    if (it == handed_over_.end()) return {true, delivered, {route}};
    HandedOver& letter = it->second;
    std::erase(letter.waiting, route);
    letter.failed = letter.failed || !delivered;
    if (!letter.waiting.empty()) return {false, false, {}};
    Handed handed{true, !letter.failed, std::move(letter.routes)};
    handed_over_.erase(it);
    return handed;
}

void OutcomeQueue::push(std::size_t route, Outcomes& outcomes) {
    bool enough = false;
    {
        const core::Lock lock(mutex_);
        count_ += outcomes.count();
        urgent_ = urgent_ || outcomes.urgent();
        pending_[route].append(std::move(outcomes));
        enough = urgent_ || count_ >= awaited_;
    }
    outcomes.clear();  // NOLINT(bugprone-use-after-move): makes it usable again
    // To wake a thread for nothing would be most of what an event costs while few come.
    if (enough) changed_.notify_one();
}

void OutcomeQueue::take(std::size_t count, std::chrono::milliseconds max_wait,
                        std::vector<Outcomes>& out) {
    core::Lock lock(mutex_);
    awaited_ = count;
    changed_.wait_for(mutex_, max_wait, [&]() OUTBOX_REQUIRES(mutex_) {
        return count_ >= count || urgent_ || flush_;
    });
    for (std::size_t route = 0; route < pending_.size(); ++route) {
        out[route].append(std::move(pending_[route]));
        pending_[route].clear();
    }
    count_ = 0;
    urgent_ = false;
}

bool OutcomeQueue::empty() const {
    const core::Lock lock(mutex_);
    for (const Outcomes& outcomes : pending_) {
        if (!outcomes.empty()) return false;
    }
    return true;
}

void OutcomeQueue::flush() {
    {
        const core::Lock lock(mutex_);
        flush_ = true;
    }
    changed_.notify_all();
}

void OutcomeQueue::answer(std::size_t route, Feedback&& feedback) {
    const core::Lock lock(mutex_);
    Feedback& waiting = feedback_[route];
    move_to_end(waiting.recorded, feedback.recorded);
    move_to_end(waiting.dead_lanes, feedback.dead_lanes);
    move_to_end(waiting.settled, feedback.settled);
    if (!feedback.redeliver.empty()) {
        // Looks come in their order. A later one may be for another route's letters, or for those
        // behind these: it takes the place of none.
        if (waiting.redeliver.empty()) waiting.look = feedback.look;
        offered_[route] = feedback.look;
        move_to_end(waiting.redeliver, feedback.redeliver);
    }
    if (feedback.dead_keys) {
        waiting.keys_look = feedback.keys_look;
        waiting.dead_keys = std::move(feedback.dead_keys);
    }
    if (feedback.paused) waiting.paused = std::move(feedback.paused);
    if (feedback.destination) waiting.destination = std::move(feedback.destination);
}

bool OutcomeQueue::take_feedback(std::size_t route, Feedback& out) {
    const core::Lock lock(mutex_);
    std::swap(out, feedback_[route]);
    feedback_[route] = Feedback{};
    taken_[route] = offered_[route];
    return !out.empty();
}

bool OutcomeQueue::has_taken(std::size_t route, std::uint64_t look) const {
    const core::Lock lock(mutex_);
    return taken_[route] >= look;
}

}  // namespace outbox::relay
