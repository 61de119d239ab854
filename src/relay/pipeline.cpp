#include "relay/pipeline.h"

#include <algorithm>
#include <chrono>
#include <utility>
// Inlined: the hash is taken once per event.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace outbox::relay {

namespace {

constexpr std::int64_t kBusyAfterEventUs = 1'000'000;  // poll at full pace this long after an event
constexpr std::int64_t kReadRetryMinUs = 100'000;
constexpr std::int64_t kReadRetryMaxUs = 2'000'000;
constexpr std::size_t kLeaseCheckEvery = 64;
constexpr std::size_t kMaxRefill = 500;
// So that a route can always probe with an event that has not failed yet.
constexpr std::size_t kSpareForProbe = 1;
// A token is the slot, and above these bits how often the slot was used.
constexpr unsigned kSlotBits = 32;

core::SlotId slot_of(std::uint64_t token) {
    return static_cast<core::SlotId>(token & ((std::uint64_t{1} << kSlotBits) - 1));
}

}  // namespace

Pipeline::Pipeline(Deps deps, std::size_t index, std::span<RouteSpec> routes,
                   const RelayOptions& options, Inheritance inheritance, std::uint64_t seed)
    : deps_(deps),
      index_(index),
      routes_(routes),
      route_(routes[index]),
      options_(options),
      random_(seed),
      lane_seed_(options.lane_seed),
      lanes_(
          {options.max_unrecorded, options.max_waiting, !deps.sink.capabilities().fail_stop_order}),
      circuit_(core::RetryPolicy{options.retry.base_ms,
                                 std::min(options.retry.max_ms, kCircuitMaxMs), 0}),
      parts_(core::RetryPolicy{options.retry.base_ms, std::min(options.retry.max_ms, kCircuitMaxMs),
                               0}),
      encoded_(options.max_unrecorded),
      by_topic_(deps.sink.capabilities().fail_stop_order &&
                !deps.sink.capabilities().across_topics),
      destination_(std::move(inheritance.destination)),
      read_wait_us_(options.poll_busy_ms * 1000) {
    for (spi::Delivery& delivery : inheritance.failing) {
        std::string id = delivery.event_id;
        failing_before_.emplace(std::move(id), std::move(delivery));
    }
    block_keys(inheritance.dead_keys);
    deps_.stats.begin_path();
}

Status Pipeline::step() {
    const std::int64_t now_us = deps_.clock.boot_us();
    deps_.stats.last_step_us.store(now_us, std::memory_order_relaxed);
    take_feedback();
    circuit_.tick(now_us);
    if (!draining_.load(std::memory_order_relaxed) && deps_.lease.valid(now_us)) {
        try_parts(now_us);
        refill(now_us);
        read(now_us);
        publish();
    }
    collect(now_us);
    note_circuit();
    if (!outcomes_.empty()) deps_.queue.push(index_, outcomes_);
    report();
    return fatal_;
}

void Pipeline::take_feedback() {
    if (!deps_.queue.take_feedback(index_, feedback_)) return;
    unrecorded_ -= feedback_.recorded.size();
    if (!feedback_.recorded.empty()) deps_.reader.forget(feedback_.recorded);
    const std::uint64_t newest_look = deps_.queue.newest_look();
    if (!feedback_.dead_lanes.empty()) dead_recorded_look_ = newest_look;
    for (const core::LaneKey key : feedback_.dead_lanes) {
        if (const auto it = dying_keys_.find(key); it != dying_keys_.end()) dying_keys_.erase(it);
        held_bytes_ -= dying_bytes_.front();
        dying_bytes_.pop_front();
        lanes_.resume(key);
    }
    for (const std::int64_t dead_id : feedback_.settled) {
        redelivering_.erase(dead_id);
        settled_redeliveries_[dead_id] = newest_look;
    }
    // A look that began before the newest was written may not know of it.
    if (feedback_.dead_keys && feedback_.look > dead_recorded_look_) {
        block_keys(*feedback_.dead_keys);
    }
    for (spi::DeadLetter& letter : feedback_.redeliver) {
        const auto settled = settled_redeliveries_.find(letter.dead_id);
        if (settled != settled_redeliveries_.end() && feedback_.look <= settled->second) continue;
        admit_redelivery(std::move(letter));
    }
    std::erase_if(settled_redeliveries_,
                  [&](const auto& settled) { return settled.second < feedback_.look; });
    if (feedback_.destination) {
        destination_ = std::move(*feedback_.destination);
        identified_ = false;
    }
    release_waiting();
    feedback_ = Feedback{};
}

// From now on these keys are blocked by dead letters, and those on their way to the database.
void Pipeline::block_keys(std::span<const std::string> keys) {
    std::unordered_set<core::LaneKey> now_blocked(dying_keys_.begin(), dying_keys_.end());
    for (const std::string& key : keys) {
        now_blocked.insert(XXH3_64bits_withSeed(key.data(), key.size(), lane_seed_));
    }
    for (const core::LaneKey key : now_blocked) {
        if (!blocked_keys_.contains(key)) lanes_.hold_key(key);
    }
    for (const core::LaneKey key : blocked_keys_) {
        if (!now_blocked.contains(key)) lanes_.resume(key);
    }
    blocked_keys_ = std::move(now_blocked);
}

// Keys whose wait is over get their events back into memory, as many as it has room for.
void Pipeline::refill(std::int64_t now_us) {
    if (due_.empty()) {
        if (lanes_.next_due_us() > now_us || !may_refill()) return;
        lanes_.take_due(now_us, kMaxRefill, due_);
        if (due_.empty()) return;
        std::sort(due_.begin(), due_.end(),
                  [](const auto& a, const auto& b) { return a.position < b.position; });
    } else if (now_us < next_read_us_) {
        return;
    }
    while (!due_.empty() && fatal_.ok()) {
        const std::size_t room =
            options_.max_in_flight_bytes - std::min(options_.max_in_flight_bytes, held_bytes_);
        // With no room at all one at a time, so that a key can always go on.
        if (room == 0 && held_bytes_ > 0) return;
        const std::size_t count = std::clamp<std::size_t>(room / bytes_per_event_, 1, due_.size());
        if (!refill_some(now_us, count)) return;
    }
}

// The first `count` of those that are due. False: the database did not answer.
bool Pipeline::refill_some(std::int64_t now_us, std::size_t count) {
    const auto end = due_.begin() + static_cast<std::ptrdiff_t>(count);
    positions_.clear();
    for (auto due = due_.begin(); due != end; ++due) positions_.push_back(due->position);
    const std::uint32_t batch_id = open_batch();
    Held& held = *batches_[batch_id];
    if (const Status fetched = deps_.reader.fetch(positions_, held.batch); !fetched.ok()) {
        let_go(batch_id, 0);
        next_read_us_ = now_us + kReadRetryMinUs;
        deps_.stats.error(fetched.error());
        if (fetched.error().advice == Advice::kStop) fatal_ = fetched;
        return false;
    }
    held.bytes = held.batch.bytes();
    held_bytes_ += held.bytes;
    held.live = 1;  // keeps the batch while it is walked
    note_size(held.batch);
    auto event = held.batch.events().begin();
    for (auto due = due_.begin(); due != end; ++due) {
        while (event != held.batch.events().end() && event->position < due->position) ++event;
        if (event == held.batch.events().end() || event->position != due->position) {
            // Somebody removed the row while its key waited: nothing is left to publish.
            lanes_.gone(*due);
            no_longer_told(due->position);
            outcomes_.finished.push_back(due->position);
            ++unrecorded_;
            continue;
        }
        const auto index = static_cast<std::uint32_t>(event - held.batch.events().begin());
        ++held.live;
        lanes_.refill(*due, batch_id, index);
    }
    due_.erase(due_.begin(), end);
    release_waiting();
    let_go(batch_id, 1);
    return true;
}

void Pipeline::note_size(const spi::EventBatch& batch) {
    if (batch.empty()) return;
    const std::size_t now = batch.bytes() / batch.size() + 1;
    // Growth counts at once, shrinking bit by bit.
    bytes_per_event_ = now > bytes_per_event_ ? now : (bytes_per_event_ * 7 + now) / 8;
}

std::size_t Pipeline::room() const {
    return std::min(lanes_.free_slots(), options_.batch_size);
}

bool Pipeline::may_refill() const {
    return circuit_.state() == core::Circuit::State::kClosed && lanes_.room_for_due() &&
           held_bytes_ < options_.max_in_flight_bytes;
}

bool Pipeline::may_read() const {
    if (room() == 0 || lanes_.waiting_full() ||
        deps_.removals_full.load(std::memory_order_relaxed) || !due_.empty() ||
        held_bytes_ >= options_.max_in_flight_bytes || unrecorded_ >= options_.max_unrecorded) {
        return false;
    }
    // A destination that is down gets what memory holds; the rest waits in the table. But a probe
    // needs another event than the one that failed last, which may be the one at fault.
    switch (circuit_.state()) {
        case core::Circuit::State::kClosed:
            return true;
        case core::Circuit::State::kOpen:
            return false;
        case core::Circuit::State::kHalfOpen:
            break;
    }
    if (lanes_.in_flight() > 0 || circuit_.suspect() != 0) return false;
    const core::SlotId probe = lanes_.find_probe(0, circuit_.culprits(), may_expose(0));
    return probe == core::kNoSlot || circuit_.is_culprit(lanes_.work(probe).position);
}

// Whether one more event may be sent that a new owner would have to send again, and `spare` more.
bool Pipeline::may_expose(std::size_t spare) const {
    return lanes_.exposed() + unrecorded_ + spare < options_.max_unrecorded;
}

void Pipeline::read(std::int64_t now_us) {
    if (now_us < next_read_us_ || !may_read()) return;
    const std::uint32_t batch_id = open_batch();
    Held& held = *batches_[batch_id];
    const spi::ReadLimits limits{room(), options_.batch_bytes};
    if (const Status status = deps_.reader.read(limits, held.batch); !status.ok()) {
        let_go(batch_id, 0);
        deps_.stats.error(status.error());
        if (!read_failed_) {
            deps_.notify({Note::Level::kError,
                          "read_failed",
                          {{"route", route_.name}, {"error", describe(status.error())}}});
        }
        read_wait_us_ =
            read_failed_ ? std::min(read_wait_us_ * 2, kReadRetryMaxUs) : kReadRetryMinUs;
        read_failed_ = true;
        next_read_us_ = now_us + read_wait_us_;
        if (status.error().advice == Advice::kStop) fatal_ = status;
        return;
    }
    note_path();
    if (read_failed_) {
        deps_.notify({Note::Level::kInfo, "read_recovered", {{"route", route_.name}}});
        read_failed_ = false;
    }
    if (held.batch.empty()) {
        let_go(batch_id, 0);
        read_more_ = false;
        const bool busy = now_us - last_event_us_ < kBusyAfterEventUs;
        read_wait_us_ = busy ? options_.poll_busy_ms * 1000
                             : std::min(read_wait_us_ * 2, options_.poll_idle_ms * 1000);
        next_read_us_ = now_us + read_wait_us_;
        return;
    }
    last_event_us_ = now_us;
    read_more_ = held.batch.size() >= limits.max_events || held.batch.bytes() >= limits.max_bytes;
    read_wait_us_ = options_.poll_busy_ms * 1000;
    next_read_us_ = read_more_ ? now_us : now_us + read_wait_us_;
    admit(batch_id, now_us);
}

void Pipeline::admit(std::uint32_t batch_id, std::int64_t now_us) {
    Held& held = *batches_[batch_id];
    held.bytes = held.batch.bytes();
    held_bytes_ += held.bytes;
    note_size(held.batch);
    ++held.live;  // keeps the batch while it is walked
    const auto count = static_cast<std::uint32_t>(held.batch.size());
    // Nothing is sent behind an event that ends the route.
    for (std::uint32_t index = 0; index < count && fatal_.ok(); ++index) {
        admit_event(batch_id, index, now_us);
    }
    let_go(batch_id, 1);
}

void Pipeline::admit_event(std::uint32_t batch_id, std::uint32_t index, std::int64_t now_us) {
    Held& held = *batches_[batch_id];
    const spi::EventView& event = held.batch.events()[index];
    const bool wanted = route_.predicate.matches(event);
    std::uint32_t attempts = event.attempts;
    std::int64_t next_attempt_us = event.next_attempt_us;
    if (!failing_before_.empty()) {
        if (const auto it = failing_before_.find(std::string(event.id));
            it != failing_before_.end()) {
            attempts = it->second.attempts;
            next_attempt_us = it->second.next_attempt_us;
            failing_before_.erase(it);
        }
    }
    const core::LaneKey key = lane_key(event);
    if (!wanted) {
        const bool orphan =
            index_ == 0 && std::none_of(routes_.begin(), routes_.end(), [&](const RouteSpec& r) {
                return r.predicate.matches(event);
            });
        if (orphan && options_.unmatched == Unmatched::kStop) {
            if (fatal_.ok()) fatal_ = unmatched(event);
            return;
        }
        if (!orphan || options_.unmatched == Unmatched::kFinish) {
            outcomes_.finished.push_back(event.position);
            if (routes_.size() > 1) outcomes_.passed.push_back(event.position);
            ++unrecorded_;
            return;
        }
    }
    if (next_attempt_us != 0) {
        const std::int64_t wait_us = std::max<std::int64_t>(
            0, std::min(next_attempt_us - deps_.clock.wall_us(), options_.retry.max_ms * 1000));
        if (wait_us > 0) {
            lanes_.admit_waiting(key, event.position, attempts, now_us + wait_us);
            return;
        }
    }
    if (lanes_.admit(key, {event.position, batch_id, index, attempts})) ++held.live;
}

ErrorInfo Pipeline::unmatched(const spi::EventView& event) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "no route takes event " + std::string(event.id) + " (aggregate type '" +
                std::string(event.aggregate_type) + "', event type '" +
                std::string(event.event_type) + "', topic '" + std::string(event.topic) +
                "') and unmatched is stop: add a route for it, or choose unmatched = "
                "\"dead_letter\" or \"finish\" under [source]"};
}

void Pipeline::admit_redelivery(spi::DeadLetter&& letter) {
    // The recorder offers a letter until it is settled; room may also be short: it comes again.
    if (letter.event.empty() || redelivering_.contains(letter.dead_id) ||
        lanes_.free_slots() <= due_.size()) {
        return;
    }
    redelivering_.insert(letter.dead_id);
    Redelivery& redelivery = redeliveries_[letter.dead_id];
    redelivery.attempts_before = letter.attempts;
    redelivery.unmatched = letter.unmatched;
    const std::uint32_t batch_id = open_batch();
    Held& held = *batches_[batch_id];
    held.batch = std::move(letter.event);
    held.bytes = held.batch.bytes();
    held_bytes_ += held.bytes;
    held.live = 1;
    // A lane of its own: an operator's retry is outside the order of its key. The position names
    // the dead letter and is negative, so that it cannot be taken for a place in the table.
    held.batch.events()[0].position = -letter.dead_id;
    const auto attempts = redelivery.attempts;
    lanes_.admit(XXH3_64bits_withSeed(&letter.dead_id, sizeof letter.dead_id, lane_seed_) | 1U,
                 {-letter.dead_id, batch_id, 0, attempts});
}

// Whether the sink leads where the ledger holds for, which is asked at the start and after each
// outage: another destination has not got what the ledger says is finished.
bool Pipeline::identified() {
    if (identified_) return true;
    auto met = deps_.sink.destination();
    if (!met.ok()) {
        deps_.stats.error(met.error());
        circuit_.failed(0, deps_.clock.boot_us(), random_());
        return false;
    }
    if (destination_.empty()) {
        destination_ = *met;
        outcomes_.destination = std::move(*met);
    } else if (*met != destination_) {
        circuit_.failed(0, deps_.clock.boot_us(), random_());
        const ErrorInfo error = spi::destination_changed(route_.name, destination_, *met);
        deps_.stats.error(error);
        if (refused_destination_ != *met) {
            deps_.notify({Note::Level::kError,
                          "destination_changed",
                          {{"route", route_.name}, {"error", describe(error)}}});
        }
        refused_destination_ = std::move(*met);
        return false;
    }
    refused_destination_.clear();
    identified_ = true;
    return true;
}

void Pipeline::publish() {
    switch (circuit_.state()) {
        case core::Circuit::State::kOpen:
            return;
        case core::Circuit::State::kHalfOpen:
            if (lanes_.in_flight() == 0) probe();
            return;
        case core::Circuit::State::kClosed:
            if (!identified()) return;
            break;
    }
    // The read before may have taken long: the lease is looked at before the first event, too.
    for (std::size_t sent = 0; circuit_.state() == core::Circuit::State::kClosed; ++sent) {
        if (sent % kLeaseCheckEvery == 0 && !deps_.lease.valid(deps_.clock.boot_us())) return;
        const core::SlotId slot = lanes_.next_ready(may_expose(kSpareForProbe));
        if (slot == core::kNoSlot || !send(slot)) return;
    }
}

void Pipeline::probe() {
    if (!deps_.lease.valid(deps_.clock.boot_us())) return;
    if (!identified_) {
        circuit_.probing(0);
        if (!identified()) return;
    }
    const core::SlotId slot =
        lanes_.find_probe(circuit_.suspect(), circuit_.culprits(), may_expose(0));
    if (slot != core::kNoSlot) {
        circuit_.probing(lanes_.work(slot).position);
        lanes_.take(slot);
        static_cast<void>(send(slot));
        return;
    }
    // Nothing to probe with: ask the destination itself, so that reading can go on.
    circuit_.probing(0);
    if (const Status status = deps_.sink.check(); status.ok()) {
        circuit_.answered(0, false);
    } else {
        deps_.stats.error(status.error());
        circuit_.failed(0, deps_.clock.boot_us(), random_());
    }
}

// False: the sink is full and the event went back to its place.
bool Pipeline::send(core::SlotId slot) {
    const core::Work& work = lanes_.work(slot);
    Held& held = *batches_[work.batch];
    Encoded& encoded = encoded_[slot];
    if (encoded.serial != held.serial || encoded.index != work.index) {
        Result<spi::Record> record = encode(held.batch.events()[work.index], held);
        if (!record.ok()) {
            // What goes wrong before the destination is asked says nothing about the destination.
            settle(slot, record.error().advice, record.error());
            return true;
        }
        encoded = {*record, 0, held.serial, work.index, encoded.sends};
        if (by_topic_) encoded.channel = XXH3_64bits(record->topic.data(), record->topic.size());
    }
    if (by_topic_ && !lanes_.enter(slot, encoded.channel)) return true;
    encoded.record.token = std::uint64_t{++encoded.sends} << kSlotBits | slot;
    if (deps_.sink.publish(encoded.record)) return true;
    lanes_.put_back(slot);
    return false;
}

// Whether an operator has given this dead letter to the route, whatever that takes.
bool Pipeline::is_asked_for(spi::Position position) const {
    const auto it = redeliveries_.find(-position);
    return position < 0 && it != redeliveries_.end() && !it->second.unmatched;
}

Result<spi::Record> Pipeline::encode(const spi::EventView& event, Held& held) {
    if (!event.defect.empty()) {
        return ErrorInfo{ErrorCode::kInvalidEvent,
                         Advice::kDeadLetter,
                         {},
                         "event " + std::string(event.id) + " at position " +
                             std::to_string(event.position) + ": " + std::string(event.defect)};
    }
    if (!route_.predicate.matches(event) && !is_asked_for(event.position)) {
        return ErrorInfo{
            ErrorCode::kConfigInvalid,
            Advice::kDeadLetter,
            {},
            std::string(kNoRouteTook) + "; add a route for it, then retry the dead letter"};
    }
    const std::size_t bytes_before = held.batch.bytes();
    const Result<std::string_view> topic = route_.topics.topic(event, held.batch);
    if (!topic.ok()) return topic.status();
    Result<spi::Record> record = encoder_.encode(event, *topic, held.batch);
    const std::size_t grown = held.batch.bytes() - bytes_before;
    held.bytes += grown;
    held_bytes_ += grown;
    return record;
}

void Pipeline::collect(std::int64_t now_us) {
    completions_.clear();
    std::chrono::milliseconds wait(wait_ms(now_us));
    if (wait.count() > 0 && may_wait_for_events(now_us)) {
        const auto waited = deps_.reader.wait(wait);
        if (waited == spi::Reader::Waited::kReady) next_read_us_ = now_us;
        if (waited != spi::Reader::Waited::kCannot) wait = {};
    }
    deps_.sink.poll(wait, completions_);
    if (completions_.empty()) return;
    const std::int64_t wall_us = deps_.clock.wall_us();
    for (const std::uint64_t token : completions_.acknowledged) {
        if (!is_under_way(token)) return;
        finish(slot_of(token), wall_us);
    }
    for (const spi::FailedRecord& failed : completions_.failed) {
        if (!is_under_way(failed.token)) return;
        const core::SlotId slot = slot_of(failed.token);
        if (failed.behind) {
            lanes_.requeue(slot);
        } else if (!failed.part.empty()) {
            wait_for_part(slot, failed);
        } else {
            fail(slot, failed.error, failed.suspect);
        }
    }
    release_waiting();
}

// A sink that names a record twice may mean another one, and then one that was never sent would
// count as published. The route stops; what has no outcome by then goes again after the restart.
bool Pipeline::is_under_way(std::uint64_t token) {
    const core::SlotId slot = slot_of(token);
    if (lanes_.is_in_flight(slot) && encoded_[slot].record.token == token) return true;
    if (fatal_.ok()) {
        fatal_ = {
            ErrorCode::kInternal, Advice::kStop,
            "route '" + route_.name + "': the sink " + deps_.sink.capabilities().name +
                " told an outcome for a record that is not under way, or told it twice (token " +
                std::to_string(token) + "); its outcomes cannot be trusted"};
        deps_.stats.error(fatal_.error());
    }
    return false;
}

// With nothing under way only the reader can end the wait early, and reading follows at once.
bool Pipeline::may_wait_for_events(std::int64_t now_us) const {
    return lanes_.in_flight() == 0 && !read_failed_ && fatal_.ok() && may_read() &&
           !draining_.load(std::memory_order_relaxed) && deps_.lease.valid(now_us);
}

std::int64_t Pipeline::wait_ms(std::int64_t now_us) const {
    if (!fatal_.ok()) return 0;
    const bool draining = draining_.load(std::memory_order_relaxed);
    const std::int64_t idle_us = options_.poll_idle_ms * 1000;
    if (draining || !deps_.lease.valid(now_us)) return options_.poll_busy_ms;
    std::int64_t until_us = now_us + idle_us;
    if (circuit_.state() == core::Circuit::State::kOpen) {
        until_us = std::min(until_us, circuit_.opens_until_us());
    } else {
        const bool may_fetch = !due_.empty() && held_bytes_ < options_.max_in_flight_bytes;
        if (may_read() || may_fetch) until_us = std::min(until_us, next_read_us_);
        if (may_refill()) until_us = std::min(until_us, lanes_.next_due_us());
        if (circuit_.state() == core::Circuit::State::kClosed && !parts_.empty()) {
            until_us = std::min(until_us, parts_.next_due_us());
        }
    }
    // Full on account of the recorder, which has no way to wake the sink.
    if (lanes_.in_flight() == 0 && unrecorded_ >= options_.max_unrecorded) {
        until_us = std::min(until_us, now_us + options_.poll_busy_ms * 1000);
    }
    return std::max<std::int64_t>(0, (until_us - now_us + 999) / 1000);
}

void Pipeline::report() {
    RouteStats& stats = deps_.stats;
    constexpr auto kRelaxed = std::memory_order_relaxed;
    stats.queued.store(static_cast<std::int64_t>(lanes_.queued()), kRelaxed);
    stats.in_flight.store(static_cast<std::int64_t>(lanes_.in_flight()), kRelaxed);
    stats.unrecorded.store(static_cast<std::int64_t>(unrecorded_), kRelaxed);
    stats.waiting.store(static_cast<std::int64_t>(lanes_.waiting()), kRelaxed);
    stats.redelivering.store(static_cast<std::int64_t>(redelivering_.size()), kRelaxed);
    stats.parts_down.store(static_cast<std::int64_t>(parts_.count()), kRelaxed);
    stats.held_bytes.store(static_cast<std::int64_t>(held_bytes_), kRelaxed);
    stats.circuit.store(static_cast<int>(circuit_.state()), kRelaxed);
    stats.stream_lag_bytes.store(deps_.reader.lag_bytes(), kRelaxed);
    stats.stream_kept_bytes.store(deps_.reader.kept_bytes(), kRelaxed);
}

void Pipeline::note_path() {
    const auto path = deps_.reader.new_path();
    if (!path) return;
    deps_.stats.set_path(*path);
    deps_.notify({Note::Level::kInfo,
                  "reads_by",
                  {{"route", route_.name}, {"path", path->path}, {"reason", path->reason}}});
}

void Pipeline::note_circuit() {
    using State = core::Circuit::State;
    const State state = circuit_.state() == State::kHalfOpen ? noted_circuit_ : circuit_.state();
    if (state == noted_circuit_) return;
    noted_circuit_ = state;
    if (state == State::kOpen) {
        identified_ = false;  // what comes back may be another
        deps_.notify({Note::Level::kWarning,
                      "circuit_open",
                      {{"route", route_.name}, {"error", deps_.stats.last_error()}}});
    } else {
        deps_.notify({Note::Level::kInfo, "circuit_closed", {{"route", route_.name}}});
    }
}

core::LaneKey Pipeline::lane_key(const spi::EventView& event) const {
    const std::string_view key = event.order_key();
    // No key: no order promised, so the event gets a lane of its own.
    if (key.empty()) {
        return XXH3_64bits_withSeed(&event.position, sizeof event.position, lane_seed_);
    }
    return XXH3_64bits_withSeed(key.data(), key.size(), lane_seed_);
}

const spi::EventView& Pipeline::event_of(core::SlotId slot) const {
    const core::Work& work = lanes_.work(slot);
    return batches_[work.batch]->batch.events()[work.index];
}

std::uint32_t Pipeline::open_batch() {
    if (free_batches_.empty()) {
        free_batches_.push_back(static_cast<std::uint32_t>(batches_.size()));
        batches_.push_back(std::make_unique<Held>());
    }
    const std::uint32_t id = free_batches_.back();
    free_batches_.pop_back();
    batches_[id]->serial = next_serial_++;
    return id;
}

// `events` of the batch need its bytes no longer.
void Pipeline::let_go(std::uint32_t batch_id, std::uint32_t events) {
    Held& held = *batches_[batch_id];
    held.live -= events;
    if (held.live > 0) return;
    held_bytes_ -= held.bytes;
    held.bytes = 0;
    held.batch.clear();
    free_batches_.push_back(batch_id);
}

void Pipeline::release_waiting() {
    lanes_.take_released(released_);
    for (const std::uint32_t batch_id : released_) let_go(batch_id, 1);
    released_.clear();
}

}  // namespace outbox::relay
