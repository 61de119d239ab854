#include "consumer/workers/worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace outbox::consumer {
namespace {

using What = ConsumerReport::What;

void add_other_ids(const Task& task, std::size_t number, std::vector<OtherId>& out) {
    for (std::string& id : task.delivery->other_ids()) out.push_back({number, std::move(id)});
}

Message message_of(const Task& task) {
    return consumer::message_of(task.delivery->event(), task.attempts + 1);
}

}  // namespace

Worker::Worker(Hub& hub, std::size_t number)
    : hub_(hub),
      keeper_(number == 0),
      applier_(hub.make_applier()),
      store_(*applier_.store),
      inbox_(store_.inbox()),
      executor_(
          inbox_, applier_.handler, hub.clock, hub.options.claims, ending_.get_token(),
          ApplySpans(hub.options.spans, hub.options.consumer, {hub.clock, hub.seed + number})),
      letters_(inbox_, hub.options.retry),
      janitor_(inbox_.opener(), hub.options.consumer, hub.options.inbox_retention_s),
      random_(hub.seed + number) {}

void Worker::start() {
    thread_ = std::thread([this] { run(); });
}

void Worker::join() {
    ending_.request_stop();
    if (thread_.joinable()) thread_.join();
}

void Worker::push(Task task) {
    ++hub_.in_flight.records;
    hub_.in_flight.bytes += task.bytes;
    queue_.push_back(std::move(task));
    news_.notify_one();
}

void Worker::run() {
    while (!hub_.stop.requested()) {
        std::vector<Task> batch = collect();
        if (!batch.empty()) {
            const std::int64_t began = hub_.clock.boot_us();
            apply(std::move(batch));
            const std::int64_t took = hub_.clock.boot_us() - began;
            owed_us_ = is_due_ ? owed_us_ + took : std::max<std::int64_t>(0, owed_us_ - took);
        }
        if (keeper_) keep();
    }
    janitor_.stop();
    next_keep_us_ = next_report_us_ = 0;
    if (keeper_) {
        keep();
        static_cast<void>(inbox_.retire().ok());
    }
    inbox_.disconnect();
}

// ---- what to do next ----

std::vector<Task> Worker::collect() {
    std::vector<Task> batch;
    core::Lock lock(hub_.mutex);
    drop_taken_away();
    // Many failing keys must not keep the others waiting, nor the other way round.
    if (queue_.empty()) owed_us_ = 0;
    is_due_ = owed_us_ == 0 && collect_due(batch);
    if (!is_due_) {
        while (!queue_.empty() && batch.size() < hub_.options.transaction_size) {
            Task& task = queue_.front();
            if (const auto held = held_.find(task.lane); held != held_.end()) {
                park(held->second, std::move(task));
            } else if (hub_.options.by_offset && !batch.empty() &&
                       batch.front().origin != task.origin) {
                break;
            } else {
                batch.push_back(std::move(task));
            }
            queue_.pop_front();
        }
        if (batch.empty()) is_due_ = collect_due(batch);
    }
    for (Task& task : batch) ++task.origin->in_transaction;
    if (batch.empty()) wait_for_news();
    return batch;
}

// A failing message is tried alone; what waited behind it goes before what came later.
bool Worker::collect_due(std::vector<Task>& batch) {
    const std::int64_t now = hub_.clock.boot_us();
    const auto due = std::min_element(
        held_.begin(), held_.end(),
        [](const auto& one, const auto& other) { return one.second.due_us < other.second.due_us; });
    if (due == held_.end() || due->second.due_us > now) return false;
    std::deque<Task> tasks = std::move(due->second.tasks);
    held_.erase(due);
    for (const Task& task : tasks) count_parked(task, false);
    batch.push_back(std::move(tasks.front()));
    tasks.pop_front();
    queue_.insert(queue_.begin(), std::make_move_iterator(tasks.begin()),
                  std::make_move_iterator(tasks.end()));
    return true;
}

bool Worker::owes_fresh() const {
    const core::Lock lock(hub_.mutex);
    return owed_us_ > 0 && !queue_.empty();
}

void Worker::drop_taken_away() {
    const auto drop = [&](const Task& task) OUTBOX_REQUIRES(hub_.mutex) {
        if (!task.origin->taken_away) return false;
        --hub_.in_flight.records;
        hub_.in_flight.bytes -= task.bytes;
        return true;
    };
    std::erase_if(queue_, drop);
    for (auto& [lane, held] : held_) {
        for (const Task& task : held.tasks) {
            if (task.origin->taken_away) count_parked(task, false);
        }
        std::erase_if(held.tasks, drop);
    }
    std::erase_if(held_, [](const auto& entry) { return entry.second.tasks.empty(); });
}

void Worker::park(Held& held, Task task) {
    count_parked(task, true);
    held.tasks.push_back(std::move(task));
}

// From what is in flight to what is parked, or back.
void Worker::count_parked(const Task& task, bool is_parked) {
    auto& from = is_parked ? hub_.in_flight : hub_.parked;
    auto& to = is_parked ? hub_.parked : hub_.in_flight;
    Amount& here = task.origin->parked;
    --from.records;
    from.bytes -= task.bytes;
    ++to.records;
    to.bytes += task.bytes;
    here.records = is_parked ? here.records + 1 : here.records - 1;
    here.bytes = is_parked ? here.bytes + task.bytes : here.bytes - task.bytes;
}

void Worker::wait_for_news() {
    constexpr std::int64_t kMaxWaitUs = 100'000;
    std::int64_t wait_us = kMaxWaitUs;
    for (const auto& [lane, held] : held_) {
        wait_us = std::min(wait_us, std::max<std::int64_t>(0, held.due_us - hub_.clock.boot_us()));
    }
    news_.wait_for(hub_.mutex, std::chrono::microseconds(wait_us),
                   [&]() OUTBOX_REQUIRES(hub_.mutex) { return !queue_.empty(); });
}

// ---- applying ----

void Worker::apply(std::vector<Task> batch) {
    if (batch.size() > 1 && apply_together(batch)) return;
    for (Task& task : batch) {
        if (!wait_behind(task)) apply_one(std::move(task));
    }
}

// True: a message of its lane failed before it, and it waits for that one.
bool Worker::wait_behind(Task& task) {
    const core::Lock lock(hub_.mutex);
    const auto held = held_.find(task.lane);
    if (held == held_.end()) return false;
    --task.origin->in_transaction;
    if (task.origin->taken_away) hub_.drained.notify_all();
    park(held->second, std::move(task));
    return true;
}

// False: nothing was done, and they are to be applied one by one.
bool Worker::apply_together(std::span<Task> batch) {
    std::vector<spi::EventView> events;
    std::vector<OtherId> others;
    for (const Task& task : batch) {
        if (task.delivery->is_suspect() || fault_of(task)) return false;
        add_other_ids(task, events.size(), others);
        events.push_back(task.delivery->event());
    }
    const std::optional<OffsetStep> step = step_after(batch.back());
    const auto taken = executor_.apply_together(events, [&] {
        return store_.begin(events, hub_.options.by_id, others, step ? &*step : nullptr);
    });
    if (!taken) return false;
    database_is_back();
    moved(batch.back(), step);
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const Message message = message_of(batch[i]);
        hub_.say(hub_.stats.count((*taken)[i]), {}, &message);
    }
    for (Task& task : batch) finish(task);
    return true;
}

void Worker::apply_one(Task task) {
    for (std::uint32_t conflicts = 0;;) {
        if (abandoned(task)) {
            note_ended(task, false);
            return leave(task);
        }
        const Attempt attempt = try_once(task);
        if (is_conflict(attempt.status) && ++conflicts < kMaxConflicts) {
            bump(hub_.stats.conflicts);
            hub_.stop.wait_ms(conflicts);
            continue;
        }
        if (is_outage(task, attempt)) {
            wait_for_database(attempt.status.error());
            continue;
        }
        const Outcome outcome = settle(task, attempt);
        note_ended(task, outcome == Outcome::kDone);
        switch (outcome) {
            case Outcome::kDone:
                return finish(task);
            case Outcome::kHold:
                return hold(std::move(task));
            case Outcome::kAbandon:
                return leave(task);
        }
    }
}

Attempt Worker::try_once(Task& task) {
    const Message message = message_of(task);
    const std::optional<OffsetStep> step = step_after(task);
    Attempt attempt = executor_.apply(
        message,
        [&]() -> Result<Taken> {
            if (auto fault = fault_of(task)) return *std::move(fault);
            if (Status may_begin = note_begun(task); !may_begin.ok()) return may_begin;
            const spi::EventView event = task.delivery->event();
            std::vector<OtherId> others;
            add_other_ids(task, 0, others);
            const auto taken =
                store_.begin({&event, 1}, hub_.options.by_id, others, step ? &*step : nullptr);
            if (!taken.ok()) return taken.status();
            database_is_back();
            return taken->front();
        },
        [&] { return inbox_.commit(); });
    if (attempt.status.ok()) moved(task, step);
    return attempt;
}

// What a broker counts says nothing of a handler: a restart or a lost connection counts as well. An
// error: it is not to be begun.
Status Worker::note_begun(Task& task) {
    if (!task.delivery->is_suspect() || task.noted) return {};
    const auto times = store_.note_begun(task.delivery->event().id);
    if (!times.ok()) return times.status();
    task.noted = true;
    if (*times <= hub_.options.max_begun) return {};
    const core::Lock lock(hub_.mutex);
    if (std::exchange(task.origin->guilty_known, true)) return {};
    return {ErrorCode::kHandlerFailed, Advice::kDeadLetter,
            "its handler was begun " + std::to_string(*times - 1) +
                " times and did not come to an end: it may end the process"};
}

// Where this cannot be written it counts once too often.
void Worker::note_ended(Task& task, bool for_good) {
    if (!task.noted) return;
    task.noted = !store_.note_ended(task.delivery->event().id, for_good).ok();
}

// An outage is nobody's fault, but a message that loses its session again and again is.
bool Worker::is_outage(Task& task, const Attempt& attempt) {
    if (!attempt.is_outage()) return false;
    return attempt.ended == Attempt::Ended::kBegin || ++task.lost <= kMaxLostSessions;
}

// What an attempt that is over means for its message.
Worker::Outcome Worker::settle(Task& task, const Attempt& attempt) {
    const Message message = message_of(task);
    const Means means = Executor::meaning_of(attempt, task.attempts + 1, hub_.options.retry);
    if (means == Means::kApplied) {
        hub_.say(hub_.stats.count(attempt.taken), {}, &message);
        return Outcome::kDone;
    }
    const ErrorInfo& error = attempt.status.error();
    if (means == Means::kStop) {
        if (attempt.ended == Attempt::Ended::kBegin && is_offset_lost(error)) {
            misplace(task);
        } else {
            hub_.fail(error);
        }
        return Outcome::kAbandon;
    }
    if (means != Means::kWaits) {
        bump(hub_.stats.failed);
        ++task.attempts;
    }
    if (means == Means::kDead) return give_up(task, error);
    hub_.say(What::kRetry, error, &message);
    return Outcome::kHold;
}

Worker::Outcome Worker::give_up(Task& task, const ErrorInfo& error) {
    std::string text = storable(error);
    // Entered in the inbox, a name that another message may have would make that one a repeat.
    const bool by_id = hub_.options.by_id && task.delivery->has_own_name();
    const std::optional<OffsetStep> step = step_after(task);
    spi::EventView letter = task.delivery->event();
    bool whole = true;
    while (!abandoned(task)) {
        const Result<Taken> result =
            store_.bury(letter, {task.attempts, error_code_name(error.code), text}, by_id,
                        step ? &*step : nullptr);
        if (result.ok()) {
            moved(task, step);
            const Message message = message_of(task);
            if (*result == Taken::kRepeat) {  // another group has applied it meanwhile
                hub_.say(hub_.stats.count(*result), {}, &message);
                return Outcome::kDone;
            }
            bump(hub_.stats.dead);
            hub_.say(What::kDeadLetter, error, &message);
            return Outcome::kDone;
        }
        const Status buried = result.status();
        if (is_offset_lost(buried.error())) {
            misplace(task);
            return Outcome::kAbandon;
        }
        if (buried.error().advice == Advice::kStop) {
            hub_.fail(buried.error());
            return Outcome::kAbandon;
        }
        const bool refused = buried.error().advice != Advice::kRetryDestination;
        if (refused && whole) {
            // Better without what the database does not take than never.
            whole = false;
            letter.headers = "{}";
            letter.key = {};
            text = storable(
                {error.code, error.advice, error.backend_code,
                 error.message + "; key and headers are left out here: " + buried.error().message});
            continue;
        }
        if (refused) {
            const Message message = message_of(task);
            hub_.say(What::kRetry, buried.error(), &message);
            return Outcome::kHold;
        }
        wait_for_database(buried.error());
    }
    return Outcome::kAbandon;
}

std::optional<OffsetStep> Worker::step_after(const Task& task) const {
    if (!hub_.options.by_offset) return std::nullopt;
    return task.origin->step_after(task.delivery->event());
}

void Worker::moved(const Task& task, const std::optional<OffsetStep>& step) {
    if (step) task.origin->moved_to(step->next);
}

// With offsets alone nobody asks for an id.
std::optional<ErrorInfo> Worker::fault_of(const Task& task) const {
    return hub_.options.by_id ? task.delivery->fault() : std::nullopt;
}

// The polling thread asks the database where to go on; what was taken of the origin is dropped.
void Worker::misplace(const Task& task) {
    const core::Lock lock(hub_.mutex);
    task.origin->mark_misplaced();
}

// ---- where a message goes then ----

void Worker::finish(Task& task) {
    {
        const core::Lock lock(hub_.mutex);
        task.origin->finish(task.number);
    }
    leave(task);
}

void Worker::leave(Task& task) {
    const core::Lock lock(hub_.mutex);
    --task.origin->in_transaction;
    --hub_.in_flight.records;
    hub_.in_flight.bytes -= task.bytes;
    if (task.origin->taken_away) hub_.drained.notify_all();
}

void Worker::hold(Task task) {
    const core::Lock lock(hub_.mutex);
    --task.origin->in_transaction;
    if (task.origin->taken_away) hub_.drained.notify_all();
    Held& held = held_[task.lane];
    held.due_us = hub_.clock.boot_us() + hub_.options.retry.delay_us(++task.tries, random_());
    count_parked(task, true);
    held.tasks.push_front(std::move(task));
}

bool Worker::abandoned(const Task& task) {
    const core::Lock lock(hub_.mutex);
    return task.origin->taken_away || hub_.stop.requested();
}

void Worker::wait_for_database(const ErrorInfo& error) {
    if (outages_++ == 0) hub_.say(What::kDisconnected, error);
    hub_.stop.wait_ms(kReconnect.delay_us(outages_, random_()) / 1000);
}

void Worker::database_is_back() {
    if (outages_ == 0) return;
    outages_ = 0;
    hub_.say(What::kConnected);
}

// ---- beside the messages ----

void Worker::keep() {
    const std::int64_t now = hub_.clock.boot_us();
    if (now < next_keep_us_) return;
    next_keep_us_ = now + kKeepUs;
    Status status = inbox_.connect();
    if (status.ok()) status = inbox_.check_version();
    if (!status.ok()) {
        if (status.error().advice == Advice::kStop) hub_.fail(status.error());
        return;
    }
    retry_dead_letters();
    if (const auto error = janitor_.turn()) hub_.say(What::kPruneFailed, *error);
    if (now < next_report_us_) return;
    next_report_us_ = now + kReportUs;
    // Stats are worth no error: the next ones replace them.
    static_cast<void>(
        inbox_.report(hub_.stats.member(hub_.lag.load(), hub_.queue, hub_.queue_lag_if_known()))
            .ok());
}

void Worker::retry_dead_letters() {
    constexpr std::int64_t kMostAtOnceUs = 100'000;
    const std::int64_t began = hub_.clock.boot_us();
    if (owes_fresh()) {
        next_keep_us_ = began + std::min(owed_us_, kKeepUs);
        return;
    }
    spi::EventBatch letters;
    if (!letters_.put_back_rest().ok()) return;
    if (!inbox_.fetch_retries(kMaxRetriesAtOnce, letters).ok()) return;
    bool went = false;
    for (const spi::EventView& letter : letters.events()) {
        if (hub_.stop.requested() || (owed_us_ > kMostAtOnceUs && owes_fresh())) break;
        went |= retry_one(letter);
        owed_us_ = hub_.clock.boot_us() - began;
    }
    if (went && letters.size() == kMaxRetriesAtOnce) next_keep_us_ = 0;
}

// False: it is as it was.
bool Worker::retry_one(const spi::EventView& letter) {
    const Result<Taken> taken = letters_.take(letter.id);
    if (!taken.ok() || *taken == Taken::kGone) return false;
    Attempt attempt = executor_.retry(letter);
    for (std::uint32_t conflicts = 1; is_conflict(attempt.status) && conflicts < kMaxConflicts;
         ++conflicts) {
        bump(hub_.stats.conflicts);
        hub_.stop.wait_ms(conflicts);
        attempt = executor_.retry(letter);
    }
    const Message message = message_of(letter, 1);
    const Means means = letters_.settle(letter.id, attempt, random_());
    if (means == Means::kApplied) {
        if (attempt.taken == Taken::kNew) hub_.say(hub_.stats.count(Taken::kNew), {}, &message);
        return true;
    }
    const ErrorInfo& error = attempt.status.error();
    if (means == Means::kStop) hub_.fail(error);
    if (means == Means::kWaits) hub_.say(What::kRetry, error, &message);
    if (means != Means::kDead) return false;
    bump(hub_.stats.failed);
    hub_.say(What::kDeadLetter, error, &message);
    return true;
}

void push(Workers& workers, Task task) {
    Worker& worker = *workers[std::hash<std::string>{}(task.lane) % workers.size()];
    worker.push(std::move(task));
}

}  // namespace outbox::consumer
