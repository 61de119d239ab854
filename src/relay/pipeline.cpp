#include "relay/pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>
// Inlined: the hash is taken once per event.
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/check.h"

namespace outbox::relay {

namespace {

constexpr std::size_t kLeaseCheckEvery = 64;
// A token is the slot, and above these bits how often the slot was used.
constexpr unsigned kSlotBits = 32;
// Between two looks at what keeps a circuit open.
constexpr std::int64_t kCauseEveryUs = 20'000'000;

core::SlotId slot_of(std::uint64_t token) {
    return static_cast<core::SlotId>(token & ((std::uint64_t{1} << kSlotBits) - 1));
}

}  // namespace

Pipeline::Pipeline(Deps deps, std::size_t index, std::span<RouteSpec> routes,
                   const RelayOptions& options, Inheritance inheritance, std::uint64_t seed)
    : deps_(deps),
      index_(index),
      flow_(routes[index], options, deps.sink.capabilities(), deps.clock, deps.stats, deps.notify,
            seed),
      pacing_(flow_, {deps.reader, routes, index, deps.removals_full},
              std::move(inheritance.failing)),
      verdict_(flow_),
      spans_(options.spans, flow_.route.name, deps.sink.capabilities().name),
      encoder_(flow_.route.make_encoder()),
      encoded_(options.max_unrecorded),
      by_topic_(deps.sink.capabilities().fail_stop_order &&
                !deps.sink.capabilities().across_topics),
      destination_(std::move(inheritance.destination)) {
    verdict_.block_keys(inheritance.dead_keys);
    deps_.stats.begin_path();
}

Status Pipeline::step() {
    const std::int64_t now_us = deps_.clock.boot_us();
    deps_.stats.last_step_us.store(now_us, std::memory_order_relaxed);
    take_feedback();
    flow_.circuit.tick(now_us);
    if (may_go_on(now_us)) {
        verdict_.try_parts(now_us);
        pacing_.refill(now_us);
        pacing_.fill(now_us);
        if (more_follows_ != pacing_.more_follows()) {
            more_follows_ = !more_follows_;
            deps_.sink.more_follows(more_follows_);
        }
        publish();
    }
    collect(now_us);
    note_circuit(now_us);
    if (!flow_.outcomes.empty() || !flow_.outcomes.closed.empty() || flow_.outcomes.hurry) {
        deps_.queue.push(index_, flow_.outcomes);
    }
    report();
    return flow_.fatal;
}

bool Pipeline::may_go_on(std::int64_t now_us) const {
    return !draining_.load(std::memory_order_relaxed) && deps_.lease.valid(now_us);
}

void Pipeline::take_feedback() {
    if (!deps_.queue.take_feedback(index_, feedback_)) return;
    OUTBOX_CHECK(flow_.unrecorded >= feedback_.recorded.size(),
                 "what is recorded was finished here");
    flow_.unrecorded -= feedback_.recorded.size();
    flow_.tenants.recorded(feedback_.recorded.size());
    if (feedback_.paused) pacing_.pause(std::move(*feedback_.paused));
    if (!feedback_.recorded.empty()) deps_.reader.forget(feedback_.recorded);
    const std::uint64_t newest_look = deps_.queue.newest_look();
    if (!feedback_.dead_lanes.empty()) dead_recorded_look_ = newest_look;
    verdict_.letters_recorded(feedback_.dead_lanes);
    flow_.redeliveries.recorded(feedback_.settled, newest_look);
    // A look that began before the newest was written may not know of it.
    if (feedback_.dead_keys && feedback_.keys_look > dead_recorded_look_) {
        verdict_.block_keys(*feedback_.dead_keys);
    }
    for (spi::DeadLetter& letter : feedback_.redeliver) {
        if (flow_.redeliveries.is_stale(letter.dead_id, feedback_.look)) continue;
        pacing_.admit_redelivery(std::move(letter));
    }
    flow_.redeliveries.forget_before(std::max(feedback_.look, feedback_.keys_look));
    if (feedback_.destination) {
        destination_ = std::move(*feedback_.destination);
        identified_ = false;
    }
    flow_.release_waiting();
    feedback_ = Feedback{};
}

// Whether the sink leads where the ledger holds for, which is asked at the start and after each
// outage: another destination has not got what the ledger says is finished.
bool Pipeline::identified() {
    if (identified_) return true;
    auto met = deps_.sink.destination();
    if (!met.ok()) {
        deps_.stats.error(met.error());
        flow_.circuit.failed({}, deps_.clock.boot_us(), flow_.random());
        return false;
    }
    if (destination_.empty()) {
        destination_ = *met;
        flow_.outcomes.destination = std::move(*met);
    } else if (*met != destination_) {
        flow_.circuit.failed({}, deps_.clock.boot_us(), flow_.random());
        const ErrorInfo error =
            spi::destination_changed(flow_.route.name, destination_, *met, flow_.options.whose);
        deps_.stats.error(error);
        if (refused_destination_ != *met) {
            deps_.notify({Note::Level::kError,
                          "destination_changed",
                          {{"route", flow_.route.name}, {"error", describe(error)}}});
        }
        refused_destination_ = std::move(*met);
        return false;
    }
    refused_destination_.clear();
    identified_ = true;
    return true;
}

void Pipeline::publish() {
    if (spans_.on()) turn_us_ = deps_.clock.wall_us();
    switch (flow_.circuit.state()) {
        case core::Circuit::State::kOpen:
            return;
        case core::Circuit::State::kHalfOpen:
            if (flow_.lanes.in_flight() == 0) probe();
            return;
        case core::Circuit::State::kClosed:
            if (!identified()) return;
            break;
    }
    // The read before may have taken long: the lease is looked at before the first event, too.
    for (std::size_t sent = 0; flow_.circuit.state() == core::Circuit::State::kClosed; ++sent) {
        if (sent % kLeaseCheckEvery == 0 && !deps_.lease.valid(deps_.clock.boot_us())) return;
        const core::SlotId slot = flow_.lanes.next_ready(flow_.may_send());
        if (slot == core::kNoSlot) return;
        if (flow_.tenants.is_paused(flow_.lanes.tenant(slot))) {
            flow_.lanes.put_back(slot);
            flow_.withdraw(flow_.lanes.key(slot), flow_.lanes.tenant(slot));
            continue;
        }
        if (!send(slot)) return;
    }
}

void Pipeline::probe() {
    if (!deps_.lease.valid(deps_.clock.boot_us())) return;
    core::Circuit& circuit = flow_.circuit;
    if (!identified_) {
        circuit.probing({});
        if (!identified()) return;
        // Which may have taken longer than the lease.
        if (!deps_.lease.valid(deps_.clock.boot_us())) return;
    }
    const auto find = [&] {
        return flow_.lanes.find_probe(circuit.suspect(), circuit.culprits(), flow_.may_probe());
    };
    core::SlotId slot = find();
    for (; slot != core::kNoSlot && flow_.tenants.is_paused(flow_.lanes.tenant(slot));
         slot = find()) {
        flow_.withdraw(flow_.lanes.key(slot), flow_.lanes.tenant(slot));
    }
    if (slot != core::kNoSlot) {
        circuit.probing(flow_.lanes.work(slot).ref());
        flow_.lanes.take(slot);
        static_cast<void>(send(slot));
        return;
    }
    // Nothing to probe with: ask the destination itself, so that reading can go on.
    circuit.probing({});
    if (const Status status = deps_.sink.check(); status.ok()) {
        circuit.answered({}, false);
    } else {
        deps_.stats.error(status.error());
        circuit.failed({}, deps_.clock.boot_us(), flow_.random());
    }
}

// False: the sink is full and the event went back to its place.
bool Pipeline::send(core::SlotId slot) {
    const core::Work& work = flow_.lanes.work(slot);
    const std::uint64_t serial = flow_.held[work.batch].serial;
    Encoded& encoded = encoded_[slot];
    if (encoded.serial != serial || encoded.index != work.index) {
        Result<spi::Record> record = encode(work);
        if (!record.ok()) {
            tell_unsent(slot, record.error());
            verdict_.not_sent(slot, record.error());
            return true;
        }
        encoded = {*record, 0, serial, work.index, encoded.sends, 0};
        if (by_topic_) encoded.channel = XXH3_64bits(record->topic.data(), record->topic.size());
    }
    if (by_topic_ && !flow_.lanes.enter(slot, encoded.channel)) return true;
    encoded.record.token = std::uint64_t{++encoded.sends} << kSlotBits | slot;
    encoded.sent_us = turn_us_;
    if (deps_.sink.publish(encoded.record)) return true;
    flow_.lanes.put_back(slot);
    return false;
}

// Whether an operator has given this dead letter to the route, whatever that takes.
bool Pipeline::is_asked_for(const core::Work& work) const {
    return work.dead_id != 0 && !flow_.redeliveries.state(work.dead_id).unmatched;
}

Result<spi::Record> Pipeline::encode(const core::Work& work) {
    HeldBatches::Held& held = flow_.held[work.batch];
    const spi::EventView& event = held.batch.events()[work.index];
    if (!event.defect.empty()) {
        return ErrorInfo{ErrorCode::kInvalidEvent,
                         Advice::kDeadLetter,
                         {},
                         "event " + std::string(event.id) + " at position " +
                             std::to_string(event.position) + ": " + std::string(event.defect)};
    }
    if (!flow_.route.predicate.matches(event) && !is_asked_for(work)) {
        return ErrorInfo{ErrorCode::kConfigInvalid,
                         Advice::kDeadLetter,
                         {},
                         std::string(Verdict::kNoRouteTook) +
                             "; add a route for it, then retry the dead letter"};
    }
    std::string_view topic;
    if (!encoder_->makes_topics()) {
        const Result<std::string_view> made = flow_.route.topics.topic(event, held.batch);
        if (!made.ok()) return made.status();
        topic = *made;
    }
    Result<spi::Record> record = encoder_->encode(event, topic, held.batch);
    flow_.held.count(held);
    if (record.ok() && encoder_->makes_topics()) {
        if (Status valid = flow_.route.topics.check(record->topic); !valid.ok()) {
            return std::move(valid).error();
        }
    }
    return record;
}

void Pipeline::collect(std::int64_t now_us) {
    completions_.clear();
    std::chrono::milliseconds wait(wait_ms(now_us));
    if (wait.count() > 0 && may_go_on(now_us) && pacing_.waits_for_events() &&
        pacing_.wait_for_events(wait, now_us)) {
        wait = {};
    }
    tell_recorded(now_us);
    if (wait.count() > 0 && outcomes_may_wait_ != outcomes_may_wait()) {
        outcomes_may_wait_ = !outcomes_may_wait_;
        deps_.sink.outcomes_may_wait(outcomes_may_wait_);
    }
    deps_.sink.poll(wait, completions_);
    if (now_us >= next_report_us_) report(now_us, false);
    if (completions_.empty()) return;
    const std::int64_t wall_us = deps_.clock.wall_us();
    for (const std::uint64_t token : completions_.acknowledged) {
        if (!is_under_way(token)) return;
        if (spans_.on()) tell_span(slot_of(token), wall_us);
        verdict_.published(slot_of(token), wall_us);
    }
    if (!completions_.acknowledged.empty()) {
        acknowledged_to_ = flow_.finished_total;
        acknowledged_us_ = now_us;
    }
    for (const spi::FailedRecord& failed : completions_.failed) {
        if (!is_under_way(failed.token)) return;
        // What only comes behind a failure was not tried.
        if (spans_.on() && !failed.behind) tell_span(slot_of(failed.token), wall_us, &failed.error);
        verdict_.failed(slot_of(failed.token), failed);
    }
    flow_.release_waiting();
}

// Not once nothing is unrecorded: what no route takes is finished all the time.
void Pipeline::tell_recorded(std::int64_t now_us) {
    if (!acknowledged_to_) return;
    const std::int64_t patience_us = flow_.options.taken_for_recorded_ms * 1000;
    const bool taken_for_it = patience_us > 0 && now_us - acknowledged_us_ >= patience_us;
    if (!taken_for_it && flow_.finished_total - flow_.unrecorded < *acknowledged_to_) return;
    acknowledged_to_.reset();
    deps_.sink.all_recorded();
}

void Pipeline::tell_span(core::SlotId slot, std::int64_t wall_us, const ErrorInfo* error) {
    const Encoded& encoded = encoded_[slot];
    spans_.tell({.event = flow_.event_of(slot),
                 .topic = encoded.record.topic,
                 .number = flow_.lanes.work(slot).attempts + 1,
                 .start_us = encoded.sent_us,
                 .end_us = wall_us},
                flow_.random(), error);
}

void Pipeline::tell_unsent(core::SlotId slot, const ErrorInfo& error) {
    if (!spans_.on()) return;
    encoded_[slot].record = {};
    encoded_[slot].serial = 0;
    encoded_[slot].sent_us = turn_us_;
    tell_span(slot, turn_us_, &error);
}

void Pipeline::report(std::int64_t now_us, bool last) {
    constexpr std::int64_t kEveryUs = 1'000'000;
    next_report_us_ = now_us + kEveryUs;
    spi::SinkReport told;
    told.last = last;
    deps_.sink.report(told);
    for (spi::SinkReport::Note& note : told.notes) {
        const auto level = note.level == spi::SinkReport::Level::kError     ? Note::Level::kError
                           : note.level == spi::SinkReport::Level::kWarning ? Note::Level::kWarning
                                                                            : Note::Level::kInfo;
        note.fields.insert(note.fields.begin(), {"route", flow_.route.name});
        deps_.notify({level, std::move(note.what), std::move(note.fields)});
    }
    deps_.stats.set_sink_stats(std::move(told.stats));
    deps_.stats.set_tenants(flow_.tenants.counts());
}

// A sink that names a record twice may mean another one, and then one that was never sent would
// count as published. The route stops; what has no outcome by then goes again after the restart.
bool Pipeline::is_under_way(std::uint64_t token) {
    const core::SlotId slot = slot_of(token);
    if (flow_.lanes.is_in_flight(slot) && encoded_[slot].record.token == token) return true;
    if (flow_.fatal.ok()) {
        flow_.fatal = {
            ErrorCode::kInternal, Advice::kStop,
            "route '" + flow_.route.name + "': the sink " + deps_.sink.capabilities().name +
                " told an outcome for a record that is not under way, or told it twice (token " +
                std::to_string(token) + "); its outcomes cannot be trusted"};
        deps_.stats.error(flow_.fatal.error());
    }
    return false;
}

std::int64_t Pipeline::wait_ms(std::int64_t now_us) const {
    if (!flow_.fatal.ok()) return 0;
    if (!may_go_on(now_us)) return flow_.options.poll_busy_ms;
    return std::max<std::int64_t>(0, (pacing_.next_us(now_us) - now_us + 999) / 1000);
}

// Where all that was read is under way, and what comes next is a read at its time.
bool Pipeline::outcomes_may_wait() const {
    return flow_.lanes.queued() == 0 && flow_.lanes.waiting() == 0 && flow_.may_send() &&
           flow_.circuit.state() == core::Circuit::State::kClosed && flow_.parts.empty() &&
           flow_.tenants.none_waits() && flow_.fatal.ok() && !spans_.on() &&
           !draining_.load(std::memory_order_relaxed) && !pacing_.reader_wakes();
}

void Pipeline::report() {
    RouteStats& stats = deps_.stats;
    constexpr auto kRelaxed = std::memory_order_relaxed;
    stats.queued.store(static_cast<std::int64_t>(flow_.lanes.queued()), kRelaxed);
    stats.in_flight.store(static_cast<std::int64_t>(flow_.lanes.in_flight()), kRelaxed);
    stats.unrecorded.store(static_cast<std::int64_t>(flow_.unrecorded), kRelaxed);
    stats.waiting.store(static_cast<std::int64_t>(flow_.lanes.waiting()), kRelaxed);
    stats.redelivering.store(static_cast<std::int64_t>(flow_.redeliveries.under_way()), kRelaxed);
    stats.parts_down.store(static_cast<std::int64_t>(flow_.parts.count()), kRelaxed);
    stats.held_bytes.store(static_cast<std::int64_t>(flow_.held.bytes()), kRelaxed);
    stats.circuit.store(flow_.circuit.state(), kRelaxed);
    stats.stream_lag_bytes.store(deps_.reader.lag_bytes(), kRelaxed);
    stats.stream_kept_bytes.store(deps_.reader.kept_bytes(), kRelaxed);
}

void Pipeline::note_circuit(std::int64_t now_us) {
    using State = core::Circuit::State;
    const auto tell_closed = [this] {
        deps_.notify({Note::Level::kInfo, "circuit_closed", {{"route", flow_.route.name}}});
    };
    if (told_circuit_.settled(now_us)) tell_closed();
    const State now = flow_.circuit.state();
    const State state = now == State::kHalfOpen ? noted_circuit_ : now;
    if (state == noted_circuit_) {
        if (state == State::kOpen) note_cause(now_us);
        return;
    }
    noted_circuit_ = state;
    if (state == State::kOpen) {
        identified_ = false;  // what comes back may be another
        noted_cause_ = deps_.stats.last_error();
        cause_noted_us_ = now_us;
        if (!told_circuit_.down(now_us)) return;
        deps_.notify({Note::Level::kWarning,
                      "circuit_open",
                      {{"route", flow_.route.name}, {"error", noted_cause_}}});
    } else if (told_circuit_.up(now_us)) {
        tell_closed();
    }
}

// What keeps a circuit open may be another thing than what opened it, and that one is to be mended.
void Pipeline::note_cause(std::int64_t now_us) {
    if (now_us - cause_noted_us_ < kCauseEveryUs) return;
    cause_noted_us_ = now_us;
    std::string cause = deps_.stats.last_error();
    if (cause == noted_cause_) return;
    noted_cause_ = std::move(cause);
    deps_.notify({Note::Level::kWarning,
                  "circuit_still_open",
                  {{"route", flow_.route.name}, {"error", noted_cause_}}});
}

}  // namespace outbox::relay
