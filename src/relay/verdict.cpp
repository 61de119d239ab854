#include "relay/verdict.h"

#include <utility>

#include "tracing/trace_context.h"

namespace outbox::relay {
namespace {

// Of a dead letter that is sent again to a part that is down.
constexpr core::RetryPolicy kLetterBackoff{5'000, 300'000, 0};
constexpr std::int64_t kLookAtToldPartsUs = 1'000'000;

// What is stored beside the error's code, which therefore is not a part of it.
std::string detail_of(const ErrorInfo& error) {
    return error.backend_code.empty() ? error.message
                                      : "(" + error.backend_code + ") " + error.message;
}

// What leads from a line of the log to the event's trace.
void add_trace(const spi::EventView& event, Note& note) {
    if (const auto context = tracing::find_trace_context(event.headers)) {
        note.fields.emplace_back("trace_id", context->trace_id);
    }
}

}  // namespace

void Verdict::published(core::SlotId slot, std::int64_t wall_us) {
    const core::Work work = flow_.lanes.work(slot);
    const core::TenantId tenant = flow_.lanes.tenant(slot);
    if (const std::int64_t since_us = flow_.event_of(slot).waits_since_us(); since_us != 0) {
        flow_.stats.latency.add_us(wall_us - since_us);
    }
    if (work.dead_id != 0) {
        flow_.outcomes.redelivered.push_back(work.dead_id);
        flow_.redeliveries.ended(work.dead_id);
        flow_.tenants.withdrawn(tenant);
    } else {
        flow_.finish(work.position, tenant, true);
        flow_.no_longer_told(work.position);
    }
    flow_.circuit.answered(work.ref(), true);
    if (!flow_.parts.empty()) part_answers(flow_.lanes.key(slot));
    flow_.lanes.acknowledge(slot);
    flow_.let_go(work.batch, work.index, tenant);
    flow_.stats.published.store(flow_.stats.published.load(std::memory_order_relaxed) + 1,
                                std::memory_order_relaxed);
}

void Verdict::failed(core::SlotId slot, const spi::FailedRecord& failed) {
    const core::EventRef event = flow_.lanes.work(slot).ref();
    if (failed.behind) {
        flow_.lanes.requeue(slot);
    } else if (!failed.part.empty()) {
        wait_for_part(slot, failed);
    } else {
        whose_fault(slot, failed.error, failed.suspect);
        if (failed.bad_probe) flow_.circuit.avoid(event);
    }
}

// A part of the destination is down: a topic that nobody has made yet or may write to, a partition
// without a leader. Every event of it would be a dead letter before anybody can mend that, so its
// keys wait, whatever it takes; that is recorded once for each event and logged once for each part.
void Verdict::wait_for_part(core::SlotId slot, const spi::FailedRecord& failed) {
    const core::Work work = flow_.lanes.work(slot);
    const core::LaneKey key = flow_.lanes.key(slot);
    const std::int64_t now_us = flow_.clock.boot_us();
    flow_.stats.error(failed.error);
    flow_.circuit.answered(work.ref(), false);
    if (work.dead_id != 0) {
        const auto delay_us = [&](std::uint32_t times) {
            return kLetterBackoff.delay_us(times, flow_.random());
        };
        if (flow_.redeliveries.waits_for_part(work.dead_id, now_us, delay_us) == 1) {
            const spi::EventView& event = flow_.event_of(slot);
            Note note{Note::Level::kWarning,
                      "letter_waits",
                      {{"route", flow_.route.name},
                       {"id", std::string(event.id)},
                       {"error", describe(failed.error)}}};
            add_trace(event, note);
            flow_.notify(note);
        }
        flow_.redeliveries.offered_again(work.dead_id, work.attempts);
        redelivery_over(slot);
        return;
    }
    // Of a key that had several under way the first has failed.
    const bool waits_already = flow_.lanes.is_held_back(slot);
    if (!waits_already && flow_.told.insert(work.position).second) {
        tell_failed(slot, work.attempts, Flow::kCircuitMaxMs * 1000, failed.error);
    }
    flow_.lanes.hold_back(slot);
    using News = core::DownParts::News;
    switch (flow_.parts.failed(failed.part, key, !waits_already, now_us, flow_.random())) {
        case News::kPart:
            if (!to_be_told_down(failed.part, now_us)) break;
            flow_.notify({Note::Level::kWarning,
                          "part_down",
                          {{"route", flow_.route.name},
                           {"part", failed.part},
                           {"error", describe(failed.error)}}});
            break;
        case News::kTooMany:
            flow_.notify({Note::Level::kWarning,
                          "many_parts_down",
                          {{"route", flow_.route.name},
                           {"parts", std::to_string(flow_.parts.count())},
                           {"error", describe(failed.error)}}});
            break;
        case News::kNone:
            break;
    }
}

bool Verdict::to_be_told_down(const std::string& part, std::int64_t now_us) {
    if (told_parts_.size() >= 2 * core::DownParts::kMaxParts) {
        std::erase_if(told_parts_,
                      [now_us](const auto& one) { return one.second.is_calm(now_us); });
        if (told_parts_.size() >= 2 * core::DownParts::kMaxParts) return true;
    }
    return told_parts_[part].down(now_us);
}

bool Verdict::to_be_told_up(const std::string& part, std::int64_t now_us) {
    const auto told = told_parts_.find(part);
    return told == told_parts_.end() || told->second.up(now_us);
}

void Verdict::tell_settled_parts(std::int64_t now_us) {
    if (told_parts_.empty() || now_us < look_at_told_parts_us_) return;
    look_at_told_parts_us_ = now_us + kLookAtToldPartsUs;
    for (auto& [part, told] : told_parts_) {
        if (told.settled(now_us)) tell_up(part);
    }
    std::erase_if(told_parts_, [now_us](const auto& one) { return one.second.is_calm(now_us); });
}

void Verdict::tell_up(const std::string& part) {
    flow_.notify({Note::Level::kInfo, "part_up", {{"route", flow_.route.name}, {"part", part}}});
}

void Verdict::try_parts(std::int64_t now_us) {
    tell_settled_parts(now_us);
    if (flow_.parts.empty() || flow_.circuit.state() != core::Circuit::State::kClosed) return;
    going_on_.clear();
    flow_.parts.take_due(now_us, flow_.lanes.in_flight(), going_on_);
    for (const core::LaneKey key : going_on_) {
        // Its events were set aside meanwhile, or a dead letter blocks it: it tells nothing.
        if (!flow_.lanes.go_on(key)) flow_.parts.heard(key, now_us);
    }
}

// An event that is at fault itself was no probe of the part that its key waited for.
void Verdict::parts_next(core::SlotId slot) {
    if (flow_.parts.empty()) return;
    flow_.parts.heard(flow_.lanes.key(slot), flow_.clock.boot_us());
}

void Verdict::part_answers(core::LaneKey key) {
    going_on_.clear();
    const std::int64_t now_us = flow_.clock.boot_us();
    const auto part = flow_.parts.passed(key, now_us, going_on_);
    if (!part) return;
    for (const core::LaneKey waiting : going_on_) flow_.lanes.go_on(waiting);
    if (to_be_told_up(*part, now_us)) tell_up(*part);
}

void Verdict::whose_fault(core::SlotId slot, const ErrorInfo& error, bool suspect) {
    const core::Work work = flow_.lanes.work(slot);
    const bool failed_again = flow_.circuit.is_culprit(work.ref()) &&
                              flow_.circuit.state() == core::Circuit::State::kHalfOpen;
    const Advice advice = judge(work.ref(), error, suspect);
    if (advice == Advice::kRetryDestination && failed_again && !suspect) {
        // It gives up its memory, so that others can be read and show whose fault it is.
        flow_.stats.error(error);
        if (work.dead_id != 0) {
            flow_.redeliveries.offered_again(work.dead_id, work.attempts);
            redelivery_over(slot);
            return;
        }
        flow_.lanes.block(slot, work.attempts, flow_.circuit.opens_until_us(), false);
        flow_.release_waiting();
        return;
    }
    settle(slot, advice, error);
}

// The event's or the destination's.
Advice Verdict::judge(core::EventRef event, const ErrorInfo& error, bool suspect) {
    const std::int64_t now_us = flow_.clock.boot_us();
    if (suspect) {
        flow_.circuit.suspected(event, now_us, flow_.random());
        return Advice::kRetryDestination;
    }
    if (error.advice == Advice::kRetryDestination) {
        const bool its_own = flow_.circuit.failed(event, now_us, flow_.random());
        return its_own ? Advice::kRetryEvent : Advice::kRetryDestination;
    }
    if (error.advice != Advice::kStop) flow_.circuit.answered(event, false);
    return error.advice;
}

void Verdict::settle(core::SlotId slot, Advice advice, const ErrorInfo& error) {
    flow_.stats.error(error);
    switch (advice) {
        case Advice::kStop:
            if (flow_.fatal.ok()) flow_.fatal = error;
            flow_.lanes.requeue(slot);
            break;
        case Advice::kRetryDestination:
            flow_.lanes.requeue(slot);
            break;
        case Advice::kRetryEvent:
            parts_next(slot);
            retry_later(slot, error);
            break;
        case Advice::kDeadLetter:
            parts_next(slot);
            give_up(slot, error);
            break;
    }
    flow_.release_waiting();
}

void Verdict::retry_later(core::SlotId slot, const ErrorInfo& error) {
    const core::Work& work = flow_.lanes.work(slot);
    const std::uint32_t attempts = work.attempts + 1;
    const bool exhausted = flow_.options.retry.exhausted(attempts);
    if (work.dead_id != 0) {
        redelivery_failed(slot, error, exhausted);
        return;
    }
    if (exhausted) {
        give_up(slot, error);
        return;
    }
    const std::int64_t delay_us = flow_.options.retry.delay_us(attempts, flow_.random());
    tell_failed(slot, attempts, delay_us, error);
    flow_.lanes.block(slot, attempts, flow_.clock.boot_us() + delay_us,
                      error.advice != Advice::kRetryDestination);
}

void Verdict::tell_failed(core::SlotId slot, std::uint32_t attempts, std::int64_t delay_us,
                          const ErrorInfo& error) {
    const spi::EventView& event = flow_.event_of(slot);
    flow_.outcomes.failed.push_back({flow_.route.name, flow_.lanes.work(slot).position,
                                     std::string(event.id), std::string(event.order_key()),
                                     attempts, flow_.clock.wall_us() + delay_us,
                                     std::string(error_code_name(error.code)), detail_of(error)});
}

void Verdict::give_up(core::SlotId slot, const ErrorInfo& error) {
    const core::Work work = flow_.lanes.work(slot);
    if (work.dead_id != 0) {
        redelivery_failed(slot, error, true);
        return;
    }
    const spi::EventView& event = flow_.event_of(slot);
    note_dead(event, work.attempts + 1, error);
    spi::DeadLetter letter;
    letter.route = flow_.route.name;
    letter.position = work.position;
    letter.attempts = work.attempts + 1;
    letter.error_code = error_code_name(error.code);
    letter.error = detail_of(error);
    letter.unmatched = !flow_.route.predicate.matches(event);
    letter.event.add_copy(event);
    // Counts until it is on disk, so that no more is read than memory may hold.
    flow_.held.keep_letter(letter.event.bytes());
    const core::LaneKey key = flow_.lanes.key(slot);
    if (flow_.route.on_dead_letter == OnDeadLetter::kBlockKey && !event.order_key().empty() &&
        !letter.unmatched) {
        if (blocked_keys_.insert(key).second) flow_.lanes.hold_key(key);
        dying_keys_.insert(key);
    }
    flow_.no_longer_told(work.position);
    flow_.outcomes.dead.push_back(std::move(letter));
    flow_.outcomes.dead_lanes.push_back(key);
    const core::TenantId tenant = flow_.lanes.tenant(slot);
    flow_.finish(work.position, tenant, true);
    flow_.lanes.hold(slot);
    flow_.let_go(work.batch, work.index, tenant);
}

void Verdict::redelivery_failed(core::SlotId slot, const ErrorInfo& error, bool for_good) {
    const core::Work work = flow_.lanes.work(slot);
    if (for_good) {
        const Redeliveries::State redelivery = flow_.redeliveries.state(work.dead_id);
        const spi::EventView& event = flow_.event_of(slot);
        const std::uint32_t attempts = redelivery.attempts_before + work.attempts + 1;
        note_dead(event, attempts, error);
        std::string detail = detail_of(error);
        if (redelivery.unmatched && flow_.route.predicate.matches(event)) {
            detail = std::string(kNoRouteTook) + "; by route " + flow_.route.name + ": " + detail;
        }
        flow_.redeliveries.ended(work.dead_id);
        flow_.outcomes.failed_again.push_back({flow_.route.name,
                                               work.dead_id,
                                               std::string(event.id),
                                               {},
                                               attempts,
                                               0,
                                               std::string(error_code_name(error.code)),
                                               std::move(detail)});
    } else {
        flow_.redeliveries.offered_again(work.dead_id, work.attempts + 1);
    }
    redelivery_over(slot);
}

void Verdict::redelivery_over(core::SlotId slot) {
    const core::Work work = flow_.lanes.work(slot);
    const core::TenantId tenant = flow_.lanes.tenant(slot);
    flow_.lanes.acknowledge(slot);
    flow_.tenants.withdrawn(tenant);
    flow_.let_go(work.batch, work.index, tenant);
}

void Verdict::note_dead(const spi::EventView& event, std::uint32_t attempts,
                        const ErrorInfo& error) {
    Note note{Note::Level::kWarning,
              "dead_letter",
              {{"route", flow_.route.name},
               {"id", std::string(event.id)},
               {"attempts", std::to_string(attempts)},
               {"error", describe(error)}}};
    add_trace(event, note);
    flow_.notify(note);
}

void Verdict::block_keys(std::span<const spi::DeadKey> keys) {
    std::unordered_set<core::LaneKey> now_blocked(dying_keys_.begin(), dying_keys_.end());
    for (const spi::DeadKey& dead : keys) {
        now_blocked.insert(flow_.lane_of_key(dead.tenant_id, dead.key));
    }
    for (const core::LaneKey key : now_blocked) {
        if (!blocked_keys_.contains(key)) flow_.lanes.hold_key(key);
    }
    for (const core::LaneKey key : blocked_keys_) {
        if (!now_blocked.contains(key)) flow_.lanes.resume(key);
    }
    blocked_keys_ = std::move(now_blocked);
}

void Verdict::letters_recorded(std::span<const core::LaneKey> lanes) {
    for (const core::LaneKey key : lanes) {
        if (const auto it = dying_keys_.find(key); it != dying_keys_.end()) dying_keys_.erase(it);
        flow_.held.letter_recorded();
        flow_.lanes.resume(key);
    }
}

}  // namespace outbox::relay
