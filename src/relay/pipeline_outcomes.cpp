// What becomes of an event that a sink has answered for.
#include <utility>

#include "relay/pipeline.h"

namespace outbox::relay {
namespace {

// What is stored beside the error's code, which therefore is not a part of it.
std::string detail_of(const ErrorInfo& error) {
    return error.backend_code.empty() ? error.message
                                      : "(" + error.backend_code + ") " + error.message;
}

}  // namespace

// A part of the destination is down: a topic that nobody has made yet or may write to, a partition
// without a leader. Every event of it would be a dead letter before anybody can mend that, so its
// keys wait, whatever it takes; that is recorded once for each event and logged once for each part.
void Pipeline::wait_for_part(core::SlotId slot, const spi::FailedRecord& failed) {
    const core::Work work = lanes_.work(slot);
    const core::LaneKey key = lanes_.key(slot);
    const std::int64_t now_us = deps_.clock.boot_us();
    deps_.stats.error(failed.error);
    circuit_.answered(work.position, false);
    if (work.position < 0) {  // the recorder offers the dead letter again
        redelivering_.erase(-work.position);
        lanes_.acknowledge(slot);
        let_go(work.batch, 1);
        return;
    }
    // Of a key that had several under way the first has failed.
    const bool waits_already = lanes_.is_held_back(slot);
    if (!waits_already && told_.insert(work.position).second) {
        const spi::EventView& event = event_of(slot);
        outcomes_.failed.push_back(
            {route_.name, work.position, std::string(event.id), std::string(event.order_key()),
             work.attempts, deps_.clock.wall_us() + kCircuitMaxMs * 1000,
             std::string(error_code_name(failed.error.code)), detail_of(failed.error)});
    }
    if (!parts_.has_room(failed.part)) {
        lanes_.block(slot, work.attempts, now_us + kCircuitMaxMs * 1000, true);
        return;
    }
    if (!parts_.contains(failed.part)) {
        deps_.notify(
            {Note::Level::kWarning,
             "part_down",
             {{"route", route_.name}, {"part", failed.part}, {"error", describe(failed.error)}}});
    }
    lanes_.hold_back(slot);
    parts_.failed(failed.part, key, !waits_already, now_us, random_());
}

// One key of each part whose turn it is goes to see whether the part is back.
void Pipeline::try_parts(std::int64_t now_us) {
    if (parts_.empty() || circuit_.state() != core::Circuit::State::kClosed) return;
    going_on_.clear();
    parts_.take_due(now_us, going_on_);
    for (const core::LaneKey key : going_on_) lanes_.go_on(key);
}

void Pipeline::part_answers(core::LaneKey key) {
    going_on_.clear();
    const auto part = parts_.passed(key, going_on_);
    if (!part) return;
    for (const core::LaneKey waiting : going_on_) lanes_.go_on(waiting);
    deps_.notify({Note::Level::kInfo, "part_up", {{"route", route_.name}, {"part", *part}}});
}

void Pipeline::no_longer_told(Position position) {
    if (!told_.empty()) told_.erase(position);
}

void Pipeline::finish(core::SlotId slot, std::int64_t wall_us) {
    const core::Work work = lanes_.work(slot);
    if (const std::int64_t since_us = event_of(slot).waits_since_us(); since_us != 0) {
        deps_.stats.latency.add_us(wall_us - since_us);
    }
    if (work.position < 0) {
        outcomes_.redelivered.push_back(-work.position);
        redeliveries_.erase(-work.position);
    } else {
        outcomes_.finished.push_back(work.position);
        ++unrecorded_;
        no_longer_told(work.position);
    }
    circuit_.answered(work.position, true);
    if (!parts_.empty()) part_answers(lanes_.key(slot));
    lanes_.acknowledge(slot);
    let_go(work.batch, 1);
    deps_.stats.published.store(deps_.stats.published.load(std::memory_order_relaxed) + 1,
                                std::memory_order_relaxed);
}

void Pipeline::fail(core::SlotId slot, const ErrorInfo& error, bool suspect) {
    const Position position = lanes_.work(slot).position;
    const bool failed_again = circuit_.is_culprit(position) && position > 0 &&
                              circuit_.state() == core::Circuit::State::kHalfOpen;
    const Advice advice = judge(position, error, suspect);
    if (advice == Advice::kRetryDestination && failed_again && !suspect) {
        // Its key gives up its memory, so that others can be read and show whose fault it is.
        deps_.stats.error(error);
        lanes_.block(slot, lanes_.work(slot).attempts, circuit_.opens_until_us(), false);
        release_waiting();
        return;
    }
    settle(slot, advice, error);
}

// Whose fault a failure is: the event's or the destination's.
Advice Pipeline::judge(Position position, const ErrorInfo& error, bool suspect) {
    const std::int64_t now_us = deps_.clock.boot_us();
    if (suspect) {
        circuit_.suspected(position, now_us, random_());
        return Advice::kRetryDestination;
    }
    if (error.advice == Advice::kRetryDestination) {
        const bool its_own = circuit_.failed(position, now_us, random_());
        return its_own ? Advice::kRetryEvent : Advice::kRetryDestination;
    }
    if (error.advice != Advice::kStop) circuit_.answered(position, false);
    return error.advice;
}

void Pipeline::settle(core::SlotId slot, Advice advice, const ErrorInfo& error) {
    deps_.stats.error(error);
    switch (advice) {
        case Advice::kStop:
            if (fatal_.ok()) fatal_ = error;
            lanes_.requeue(slot);
            break;
        case Advice::kRetryDestination:
            lanes_.requeue(slot);
            break;
        case Advice::kRetryEvent:
            retry_later(slot, error);
            break;
        case Advice::kDeadLetter:
            give_up(slot, error);
            break;
    }
    release_waiting();
}

void Pipeline::retry_later(core::SlotId slot, const ErrorInfo& error) {
    const core::Work work = lanes_.work(slot);
    const std::uint32_t attempts = work.attempts + 1;
    if (work.position < 0) {
        redelivery_failed(slot, error, options_.retry.exhausted(attempts));
        return;
    }
    if (options_.retry.exhausted(attempts)) {
        give_up(slot, error);
        return;
    }
    const spi::EventView& event = event_of(slot);
    const std::int64_t delay_us = options_.retry.delay_us(attempts, random_());
    outcomes_.failed.push_back({route_.name, work.position, std::string(event.id),
                                std::string(event.order_key()), attempts,
                                deps_.clock.wall_us() + delay_us,
                                std::string(error_code_name(error.code)), detail_of(error)});
    lanes_.block(slot, attempts, deps_.clock.boot_us() + delay_us,
                 error.advice != Advice::kRetryDestination);
}

void Pipeline::give_up(core::SlotId slot, const ErrorInfo& error) {
    const core::Work work = lanes_.work(slot);
    if (work.position < 0) {
        redelivery_failed(slot, error, true);
        return;
    }
    const spi::EventView& event = event_of(slot);
    note_dead(event, work.attempts + 1, error);
    spi::DeadLetter letter;
    letter.route = route_.name;
    letter.position = work.position;
    letter.attempts = work.attempts + 1;
    letter.error_code = error_code_name(error.code);
    letter.error = detail_of(error);
    letter.unmatched = !route_.predicate.matches(event);
    letter.event.add_copy(event);
    // Counts until it is on disk, so that no more is read than memory may hold.
    dying_bytes_.push_back(letter.event.bytes());
    held_bytes_ += dying_bytes_.back();
    const core::LaneKey key = lanes_.key(slot);
    if (route_.on_dead_letter == OnDeadLetter::kBlockKey && !event.order_key().empty() &&
        !letter.unmatched) {
        if (blocked_keys_.insert(key).second) lanes_.hold_key(key);
        dying_keys_.insert(key);
    }
    no_longer_told(work.position);
    outcomes_.dead.push_back(std::move(letter));
    outcomes_.dead_lanes.push_back(key);
    outcomes_.finished.push_back(work.position);
    ++unrecorded_;
    lanes_.hold(slot);
    let_go(work.batch, 1);
}

void Pipeline::redelivery_failed(core::SlotId slot, const ErrorInfo& error, bool for_good) {
    const core::Work work = lanes_.work(slot);
    const std::int64_t dead_id = -work.position;
    Redelivery& redelivery = redeliveries_[dead_id];
    if (for_good) {
        const std::uint32_t attempts = redelivery.attempts_before + work.attempts + 1;
        note_dead(event_of(slot), attempts, error);
        std::string detail = detail_of(error);
        if (redelivery.unmatched && route_.predicate.matches(event_of(slot))) {
            detail = std::string(kNoRouteTook) + "; by route " + route_.name + ": " + detail;
        }
        redeliveries_.erase(dead_id);
        outcomes_.failed_again.push_back({route_.name,
                                          dead_id,
                                          std::string(event_of(slot).id),
                                          {},
                                          attempts,
                                          0,
                                          std::string(error_code_name(error.code)),
                                          std::move(detail)});
    } else {
        redelivering_.erase(dead_id);
        redelivery.attempts = work.attempts + 1;
    }
    lanes_.acknowledge(slot);
    let_go(work.batch, 1);
}

void Pipeline::note_dead(const spi::EventView& event, std::uint32_t attempts,
                         const ErrorInfo& error) {
    deps_.notify({Note::Level::kWarning,
                  "dead_letter",
                  {{"route", route_.name},
                   {"id", std::string(event.id)},
                   {"attempts", std::to_string(attempts)},
                   {"error", describe(error)}}});
}

}  // namespace outbox::relay
