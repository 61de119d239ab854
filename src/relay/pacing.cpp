#include "relay/pacing.h"

#include <algorithm>
#include <utility>

namespace outbox::relay {
namespace {

constexpr std::int64_t kBusyAfterEventUs = 1'000'000;  // poll at full pace this long after an event
constexpr std::int64_t kReadRetryMinUs = 100'000;
constexpr std::int64_t kReadRetryMaxUs = 2'000'000;
constexpr std::size_t kMaxRefill = 500;
constexpr std::int64_t kBackWhileReadingUs = 100'000;
constexpr std::size_t kMaxAside = 16;  // tenants, in one read

ErrorInfo unmatched(const spi::EventView& event) {
    return {ErrorCode::kConfigInvalid,
            Advice::kStop,
            {},
            "no route takes event " + std::string(event.id) + " (aggregate type '" +
                std::string(event.aggregate_type) + "', event type '" +
                std::string(event.event_type) + "', topic '" + std::string(event.topic) +
                "') and unmatched is stop: add a route for it, or choose unmatched = "
                "\"dead_letter\" or \"finish\" under [source]"};
}

}  // namespace

Pacing::Pacing(Flow& flow, const Deps& deps, std::vector<spi::Delivery> failing)
    : flow_(flow), deps_(deps), read_wait_us_(flow.options.poll_busy_ms * 1000) {
    for (spi::Delivery& delivery : failing) {
        std::string id = delivery.event_id;
        failing_before_.emplace(std::move(id), std::move(delivery));
    }
}

void Pacing::refill(std::int64_t now_us) {
    if (is_stuck()) give_way();
    if (due_.empty()) {
        const bool probe = wants_probe();
        const bool fresh = probe || flow_.may_send();
        if (!probe && (flow_.lanes.next_due_us(fresh) > now_us || !may_refill())) return;
        flow_.lanes.take_due(now_us, probe ? 1 : kMaxRefill, due_, fresh);
        if (due_.empty()) return;
        std::sort(due_.begin(), due_.end(),
                  [](const auto& a, const auto& b) { return a.position < b.position; });
    } else if (now_us < next_read_us_) {
        return;
    }
    while (!due_.empty() && flow_.fatal.ok()) {
        const std::size_t most = flow_.options.max_in_flight_bytes;
        const std::size_t room = most - std::min(most, flow_.held.bytes());
        // With no room at all one at a time, so that a key can always go on.
        if (room == 0 && flow_.held.bytes() > 0) {
            if (!return_due()) return;
            continue;
        }
        const std::size_t count =
            std::clamp<std::size_t>(room / flow_.held.bytes_per_event(), 1, due_.size());
        if (!refill_some(now_us, count)) return;
    }
}

// What is fetched of a key that failed is kept until the rest of it is there, for which there is no
// room. False: nothing could be returned.
bool Pacing::return_due() {
    const std::size_t before = due_.size();
    for (std::size_t i = before; i-- > 0;) {
        if (flow_.lanes.return_due(due_[i]))
            due_.erase(due_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    flow_.release_waiting();
    return due_.size() < before;
}

// The first `count` of those that are due. False: the database did not answer.
bool Pacing::refill_some(std::int64_t now_us, std::size_t count) {
    const auto end = due_.begin() + static_cast<std::ptrdiff_t>(count);
    positions_.clear();
    for (auto due = due_.begin(); due != end; ++due) positions_.push_back(due->position);
    const std::uint32_t batch_id = flow_.held.open();
    HeldBatches::Held& held = flow_.held[batch_id];
    if (const Status fetched = deps_.reader.fetch(positions_, held.batch); !fetched.ok()) {
        flow_.held.let_go(batch_id, 0);
        next_read_us_ = now_us + kReadRetryMinUs;
        flow_.stats.error(fetched.error());
        if (fetched.error().advice == Advice::kStop) flow_.fatal = fetched;
        return false;
    }
    flow_.held.count(held);
    held.live = 1;  // keeps the batch while it is walked
    flow_.held.note_size(held.batch);
    auto event = held.batch.events().begin();
    for (auto due = due_.begin(); due != end; ++due) {
        while (event != held.batch.events().end() && event->position < due->position) ++event;
        if (event == held.batch.events().end() || event->position != due->position) {
            // Somebody removed the row while its key waited: nothing is left to publish.
            flow_.lanes.gone(*due);
            flow_.parts.heard(due->key, now_us);
            flow_.no_longer_told(due->position);
            flow_.finish(due->position, due->tenant, true);
            continue;
        }
        const auto index = static_cast<std::uint32_t>(event - held.batch.events().begin());
        // Where the rest of its lane went, or goes with it.
        if (flow_.tenants.is_paused(due->tenant) && flow_.lanes.may_withdraw(due->key)) {
            flow_.withdraw(due->key, due->tenant);
            flow_.tenants.withdrawn(due->tenant);
            flow_.tenants.set_aside(due->tenant,
                                    {due->position, due->attempts, 0, 0, due->attempts > 0});
            flow_.lanes.gone(*due);
            continue;
        }
        ++held.live;
        flow_.hold_bytes(batch_id, index, due->tenant);
        flow_.lanes.refill(*due, batch_id, index);
    }
    due_.erase(due_.begin(), end);
    flow_.release_waiting();
    flow_.held.let_go(batch_id, 1);
    return true;
}

std::size_t Pacing::room() const {
    // What is due has its slots kept, until it is fetched.
    const std::size_t free = flow_.lanes.free_slots();
    return std::min(free - std::min(free, due_.size()), flow_.options.batch_size);
}

// Memory is full of events that may not be sent for those that are exposed, which have no memory.
bool Pacing::is_stuck() const {
    return flow_.held.bytes() >= flow_.options.max_in_flight_bytes &&
           flow_.lanes.in_flight() == 0 && flow_.unrecorded == 0 && !flow_.may_send() &&
           flow_.circuit.state() == core::Circuit::State::kClosed;
}

void Pacing::give_way() {
    letters_.clear();
    flow_.lanes.give_way(letters_);
    for (const core::SlotId letter : letters_) {
        flow_.withdraw(flow_.lanes.key(letter), flow_.lanes.tenant(letter));
    }
    flow_.release_waiting();
}

// There is nothing else to probe with than what gave up its memory.
bool Pacing::wants_probe() const {
    return flow_.circuit.state() == core::Circuit::State::kHalfOpen && flow_.lanes.fresh_wait() &&
           flow_.may_probe() && flow_.held.bytes() < flow_.options.max_in_flight_bytes &&
           lacks_probe();
}

// Another event is needed than the one that failed last, which may be the one at fault.
bool Pacing::lacks_probe() const {
    const core::Circuit& circuit = flow_.circuit;
    if (flow_.lanes.in_flight() > 0 || !circuit.suspect().is_none()) return false;
    const core::SlotId probe = flow_.lanes.find_probe({}, circuit.culprits(), flow_.may_probe());
    return probe == core::kNoSlot || circuit.is_culprit(flow_.lanes.work(probe).ref());
}

bool Pacing::may_refill() const {
    return flow_.circuit.state() == core::Circuit::State::kClosed && flow_.lanes.room_for_due() &&
           flow_.held.bytes() < flow_.options.max_in_flight_bytes;
}

// As many as are due have their room.
bool Pacing::may_take_back() const {
    return due_.empty() && room() > 0 && flow_.circuit.state() == core::Circuit::State::kClosed &&
           flow_.held.bytes() < flow_.options.max_in_flight_bytes && !flow_.lanes.waiting_full() &&
           flow_.unrecorded < flow_.options.max_unrecorded;
}

bool Pacing::may_read() const {
    if (room() == 0 || flow_.lanes.waiting_full() ||
        deps_.removals_full.load(std::memory_order_relaxed) ||
        flow_.held.bytes() >= flow_.options.max_in_flight_bytes ||
        flow_.unrecorded >= flow_.options.max_unrecorded) {
        return false;
    }
    // A destination that is down gets what memory holds; the rest waits in the table.
    switch (flow_.circuit.state()) {
        case core::Circuit::State::kClosed:
            return flow_.may_send() || !flow_.lanes.fresh_wait();
        case core::Circuit::State::kOpen:
            return false;
        case core::Circuit::State::kHalfOpen:
            break;
    }
    return lacks_probe();
}

void Pacing::fill(std::int64_t now_us) {
    if (back_first_) take_back(now_us);
    read(now_us);
    if (!back_first_) take_back(now_us);
    back_first_ = !back_first_;
}

void Pacing::read(std::int64_t now_us) {
    if (now_us < next_read_us_ || !may_read()) return;
    const std::uint32_t batch_id = flow_.held.open();
    spi::EventBatch& batch = flow_.held[batch_id].batch;
    const spi::ReadLimits limits{room(), flow_.options.batch_bytes, aside()};
    if (const Status status = deps_.reader.read(limits, batch); !status.ok()) {
        flow_.held.let_go(batch_id, 0);
        read_failed(status.error(), now_us);
        return;
    }
    note_path();
    read_recovered();
    flow_.outcomes.closed.insert(flow_.outcomes.closed.end(), batch.closed.begin(),
                                 batch.closed.end());
    const std::int64_t busy_us = flow_.options.poll_busy_ms * 1000;
    more_follows_ = batch.size() >= limits.max_events || batch.bytes() >= limits.max_bytes ||
                    !batch.aside.empty();
    if (batch.empty() && batch.aside.empty()) {
        flow_.held.let_go(batch_id, 0);
        reading_through_ = false;
        const bool busy = now_us - last_event_us_ < kBusyAfterEventUs;
        read_wait_us_ =
            busy ? busy_us : std::min(read_wait_us_ * 2, flow_.options.poll_idle_ms * 1000);
        next_read_us_ = now_us + read_wait_us_;
        return;
    }
    last_event_us_ = now_us;
    read_wait_us_ = busy_us;
    next_read_us_ = more_follows_ ? now_us : now_us + busy_us;
    admit(batch_id, now_us);
    reading_through_ = reading_through_ && more_follows_;
}

// Whose events are passed over by their positions: while most of what is read is theirs, and where
// no event is finished by being read.
std::span<const std::string> Pacing::aside() {
    aside_.clear();
    if (reading_through_ && flow_.route.predicate.takes_all()) {
        flow_.tenants.most_aside(kMaxAside, aside_);
    }
    return aside_;
}

void Pacing::read_failed(const ErrorInfo& error, std::int64_t now_us) {
    flow_.stats.error(error);
    if (!read_failed_) {
        flow_.notify({Note::Level::kError,
                      "read_failed",
                      {{"route", flow_.route.name}, {"error", describe(error)}}});
    }
    read_wait_us_ = read_failed_ ? std::min(read_wait_us_ * 2, kReadRetryMaxUs) : kReadRetryMinUs;
    read_failed_ = true;
    next_read_us_ = now_us + read_wait_us_;
    if (error.advice == Advice::kStop) flow_.fatal = error;
}

void Pacing::read_recovered() {
    if (!read_failed_) return;
    flow_.notify({Note::Level::kInfo, "read_recovered", {{"route", flow_.route.name}}});
    read_failed_ = false;
}

void Pacing::note_path() {
    const auto path = deps_.reader.new_path();
    if (!path) return;
    flow_.stats.set_path(*path);
    flow_.notify({Note::Level::kInfo,
                  "reads_by",
                  {{"route", flow_.route.name}, {"path", path->path}, {"reason", path->reason}}});
}

void Pacing::admit(std::uint32_t batch_id, std::int64_t now_us) {
    HeldBatches::Held& held = flow_.held[batch_id];
    flow_.held.count(held);
    flow_.held.note_size(held.batch);
    ++held.live;  // keeps the batch while it is walked
    std::size_t passed_over = 0;
    for (const spi::EventBatch::Aside& aside : held.batch.aside) {
        const core::TenantId tenant = flow_.tenants.of(aside.tenant_id, now_us);
        for (const Position position : aside.positions) flow_.tenants.set_aside(tenant, position);
        passed_over += aside.positions.size();
    }
    const auto count = static_cast<std::uint32_t>(held.batch.size());
    std::uint32_t taken = 0;
    // Nothing is sent behind an event that ends the route.
    for (std::uint32_t index = 0; index < count && flow_.fatal.ok(); ++index) {
        if (admit_event(batch_id, index, now_us)) ++taken;
    }
    reading_through_ = taken < (count + passed_over) / 2;
    flow_.held.let_go(batch_id, 1);
}

bool Pacing::admit_event(std::uint32_t batch_id, std::uint32_t index, std::int64_t now_us) {
    const spi::EventView& event = flow_.held[batch_id].batch.events()[index];
    const Failed failed = failed_before(event, now_us);
    if (!is_wanted(event)) return true;
    const core::TenantId tenant = flow_.tenants.of(event.tenant_id, now_us);
    if (!flow_.tenants.may_admit(tenant, now_us)) {
        flow_.tenants.set_aside(tenant, {event.position, failed.attempts, failed.due_us, 0,
                                         failed.attempts > 0 || failed.due_us > 0});
        return false;
    }
    flow_.tenants.admitted(tenant);
    enter(batch_id, index, tenant, failed.attempts, failed.due_us, now_us);
    return true;
}

// What is known of an event when it is read first, by its row or by an earlier term.
Pacing::Failed Pacing::failed_before(const spi::EventView& event, std::int64_t now_us) {
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
    if (next_attempt_us == 0) return {attempts, 0};
    return {attempts, now_us + std::min(next_attempt_us - flow_.clock.wall_us(),
                                        flow_.options.retry.max_ms * 1000)};
}

// Into its lane, not before `due_us`.
void Pacing::enter(std::uint32_t batch_id, std::uint32_t index, core::TenantId tenant,
                   std::uint32_t attempts, std::int64_t due_us, std::int64_t now_us) {
    HeldBatches::Held& held = flow_.held[batch_id];
    const spi::EventView& event = held.batch.events()[index];
    const core::LaneKey key = flow_.lane_of(event, tenant);
    if (due_us > now_us) {
        flow_.lanes.admit_waiting(key, event.position, attempts, due_us, tenant);
        return;
    }
    if (!flow_.lanes.admit(key, {event.position, batch_id, index, attempts}, tenant)) return;
    ++held.live;
    flow_.hold_bytes(batch_id, index, tenant);
}

void Pacing::pause(std::vector<std::string> tenants) {
    to_pause_ = std::move(tenants);
    if (!due_.empty()) flow_.tenants.pause_also(*to_pause_);
    pause_now();
}

// What is handed out of a lane goes where the rest of the lane went: nothing is taken back before
// all of it is there.
void Pacing::pause_now() {
    if (!to_pause_ || !due_.empty()) return;
    flow_.tenants.pause(std::move(*to_pause_));
    to_pause_.reset();
}

// Events that were set aside get their bytes and go into lanes, where their tenants have room.
void Pacing::take_back(std::int64_t now_us) {
    pause_now();
    if (flow_.tenants.waits_for_record()) flow_.outcomes.hurry = true;
    if (now_us < next_read_us_ && read_failed_) return;
    if (!may_take_back()) return;
    // Behind a burst others' events wait to be read.
    if (reading_through_ && may_read() && now_us < next_back_us_) return;
    next_back_us_ = now_us + kBackWhileReadingUs;
    back_.clear();
    const std::size_t most = flow_.options.max_in_flight_bytes - flow_.held.bytes();
    flow_.tenants.take_back(
        std::min(room(), std::max<std::size_t>(1, most / flow_.held.bytes_per_event())), now_us,
        back_);
    if (back_.empty()) return;
    std::sort(back_.begin(), back_.end(),
              [](const auto& a, const auto& b) { return a.position < b.position; });
    positions_.clear();
    for (const TenantQueues::Back& back : back_) positions_.push_back(back.position);
    const std::uint32_t batch_id = flow_.held.open();
    HeldBatches::Held& held = flow_.held[batch_id];
    if (const Status fetched = deps_.reader.fetch(positions_, held.batch); !fetched.ok()) {
        flow_.held.let_go(batch_id, 0);
        flow_.tenants.put_back(back_);
        read_failed(fetched.error(), now_us);
        return;
    }
    read_recovered();
    flow_.held.count(held);
    held.live = 1;  // keeps the batch while it is walked
    flow_.held.note_size(held.batch);
    auto event = held.batch.events().begin();
    for (const TenantQueues::Back& back : back_) {
        while (event != held.batch.events().end() && event->position < back.position) ++event;
        if (event == held.batch.events().end() || event->position != back.position) {
            // Somebody removed the row meanwhile: nothing is left to publish.
            flow_.tenants.gone(back.tenant);
            flow_.finish(back.position, back.tenant, true);
            continue;
        }
        if (!flow_.tenants.pays(back.tenant)) {
            flow_.tenants.put_back({&back, 1});
            continue;
        }
        // Also of what was passed over by its position.
        Failed failed{back.attempts, back.due_us};
        if (failed.attempts == 0 && failed.due_us == 0) failed = failed_before(*event, now_us);
        enter(batch_id, static_cast<std::uint32_t>(event - held.batch.events().begin()),
              back.tenant, failed.attempts, failed.due_us, now_us);
    }
    flow_.held.let_go(batch_id, 1);
}

// Whether it goes into a lane, also as what no route takes and therefore is to be a dead letter.
// Else it is finished, or ends the route.
bool Pacing::is_wanted(const spi::EventView& event) {
    if (flow_.route.predicate.matches(event)) return true;
    const auto takes_it = [&](const RouteSpec& route) { return route.predicate.matches(event); };
    const bool orphan =
        deps_.index == 0 && std::none_of(deps_.routes.begin(), deps_.routes.end(), takes_it);
    if (orphan && flow_.options.unmatched == Unmatched::kDeadLetter) return true;
    if (orphan && flow_.options.unmatched == Unmatched::kStop) {
        if (flow_.fatal.ok()) flow_.fatal = unmatched(event);
        return false;
    }
    flow_.finish(event.position, 0, false);
    if (deps_.routes.size() > 1) flow_.outcomes.passed.push_back(event.position);
    return false;
}

void Pacing::admit_redelivery(spi::DeadLetter&& letter) {
    // Offered until it is settled.
    if (letter.event.empty() || flow_.redeliveries.is_under_way(letter.dead_id) ||
        flow_.redeliveries.is_waiting(letter.dead_id, flow_.clock.boot_us()) ||
        flow_.lanes.free_slots() <= due_.size()) {
        return;
    }
    const core::TenantId tenant =
        flow_.tenants.of(letter.event.events()[0].tenant_id, flow_.clock.boot_us());
    if (flow_.tenants.is_paused(tenant)) return;
    // It would take the memory of what may be sent, or of what may be a better probe.
    if (!flow_.may_send() || flow_.circuit.state() != core::Circuit::State::kClosed) return;
    // One at a time goes however full it is, as a backlog may keep it full for long.
    if (flow_.held.bytes() >= flow_.options.max_in_flight_bytes &&
        flow_.redeliveries.under_way() > 0) {
        return;
    }
    Redeliveries::State& redelivery = flow_.redeliveries.begin(letter.dead_id);
    redelivery.attempts_before = letter.attempts;
    redelivery.unmatched = letter.unmatched;
    const std::uint32_t batch_id = flow_.held.open();
    HeldBatches::Held& held = flow_.held[batch_id];
    held.batch = std::move(letter.event);
    flow_.held.count(held);
    held.live = 1;
    flow_.tenants.admitted(tenant);
    flow_.hold_bytes(batch_id, 0, tenant);
    flow_.lanes.admit(
        flow_.lane_of_letter(letter.dead_id),
        {held.batch.events()[0].position, batch_id, 0, redelivery.attempts, false, letter.dead_id},
        tenant);
}

bool Pacing::waits_for_events() const {
    return flow_.lanes.in_flight() == 0 && !read_failed_ && flow_.fatal.ok() && may_read();
}

bool Pacing::wait_for_events(std::chrono::milliseconds wait, std::int64_t now_us) {
    const auto waited = deps_.reader.wait(wait);
    if (waited == spi::Reader::Waited::kReady) next_read_us_ = now_us;
    return waited != spi::Reader::Waited::kCannot;
}

bool Pacing::reader_wakes() const {
    return deps_.reader.wait({}) != spi::Reader::Waited::kCannot;
}

std::int64_t Pacing::next_us(std::int64_t now_us) const {
    const RelayOptions& options = flow_.options;
    std::int64_t until_us = now_us + options.poll_idle_ms * 1000;
    if (flow_.circuit.state() == core::Circuit::State::kOpen) {
        until_us = std::min(until_us, flow_.circuit.opens_until_us());
    } else {
        const bool may_fetch = !due_.empty() && flow_.held.bytes() < options.max_in_flight_bytes;
        if (may_read() || may_fetch) until_us = std::min(until_us, next_read_us_);
        if (may_refill()) {
            until_us = std::min(until_us, flow_.lanes.next_due_us(flow_.may_send()));
        }
        if (may_take_back()) until_us = std::min(until_us, flow_.tenants.next_back_us(now_us));
        if (flow_.circuit.state() == core::Circuit::State::kClosed && !flow_.parts.empty()) {
            until_us = std::min(until_us, flow_.parts.next_due_us(flow_.lanes.in_flight()));
        }
    }
    // Full on account of the recorder, which has no way to wake the sink.
    if ((flow_.lanes.in_flight() == 0 && flow_.unrecorded > 0 && !flow_.may_send()) ||
        flow_.tenants.waits_for_record()) {
        until_us = std::min(until_us, now_us + options.poll_busy_ms * 1000);
    }
    return until_us;
}

}  // namespace outbox::relay
