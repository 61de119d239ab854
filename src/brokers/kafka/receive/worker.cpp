#include "brokers/kafka/receive/worker.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "consumer/message_time.h"

namespace outbox::consumer::kafka {
namespace {

using What = ConsumerReport::What;

}  // namespace

Worker::Worker(Hub& hub, std::size_t number)
    : hub_(hub),
      keeper_(number == 0),
      applier_(hub.make_applier()),
      inbox_(*applier_.store),
      janitor_(inbox_.opener(), hub.options.consumer, hub.options.inbox_retention_s),
      random_(hub.seed + number) {}

void Worker::start() {
    thread_ = std::thread([this] { run(); });
}

void Worker::join() {
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
            } else if (hub_.by_offset() && !batch.empty() &&
                       batch.front().partition != task.partition) {
                break;
            } else {
                batch.push_back(std::move(task));
            }
            queue_.pop_front();
        }
        if (batch.empty()) is_due_ = collect_due(batch);
    }
    for (Task& task : batch) ++task.partition->in_transaction;
    if (batch.empty()) wait_for_news();
    return batch;
}

// A failing record is tried alone; what waited behind it goes before what came later.
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
        if (!task.partition->taken_away) return false;
        --hub_.in_flight.records;
        hub_.in_flight.bytes -= task.bytes;
        return true;
    };
    std::erase_if(queue_, drop);
    for (auto& [lane, held] : held_) {
        for (const Task& task : held.tasks) {
            if (task.partition->taken_away) count_parked(task, false);
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
    Amount& here = task.partition->parked;
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

// True: a record of its lane failed before it, and it waits for that one.
bool Worker::wait_behind(Task& task) {
    const core::Lock lock(hub_.mutex);
    const auto held = held_.find(task.lane);
    if (held == held_.end()) return false;
    --task.partition->in_transaction;
    if (task.partition->taken_away) hub_.drained.notify_all();
    park(held->second, std::move(task));
    return true;
}

// One transaction for all; false: nothing was done, and they are to be applied one by one.
bool Worker::apply_together(std::span<Task> batch) {
    std::vector<spi::EventView> events;
    for (const Task& task : batch) {
        if (hub_.by_id() && task.id_fault()) return false;
        events.push_back(task.event());
    }
    std::optional<OffsetStep> step;
    if (hub_.by_offset()) {
        step = step_after(batch.back());
    }
    const auto taken = inbox_.begin(events, hub_.by_id(), step ? &*step : nullptr);
    if (!taken.ok()) return false;
    std::vector<Message> fresh;
    for (std::size_t i = 0; i < events.size(); ++i) {
        if ((*taken)[i] == Taken::kNew) fresh.push_back(message_of(events[i], 1));
    }
    if (!fresh.empty()) {
        if (std::optional<ErrorInfo> cause = call_handler(fresh)) {
            // An error here means a lost session, which the next attempt notices.
            static_cast<void>(inbox_.roll_back(*cause).ok());
            return false;
        }
    }
    if (!inbox_.commit().ok()) return false;
    database_is_back();
    if (step) batch.back().partition->expected = step->next;
    for (std::size_t i = 0; i < batch.size(); ++i) {
        const Message message = batch[i].message();
        hub_.say(hub_.stats.count((*taken)[i]), {}, &message);
    }
    for (Task& task : batch) finish(task);
    return true;
}

void Worker::apply_one(Task task) {
    for (std::uint32_t conflicts = 0;;) {
        if (abandoned(task)) return leave(task);
        Attempt attempt = try_once(task);
        if (is_conflict(attempt.status) && ++conflicts < kMaxConflicts) {
            bump(hub_.stats.conflicts);
            hub_.stop.wait_ms(conflicts);
            continue;
        }
        if (!attempt.status.ok() && attempt.from_session &&
            attempt.status.error().advice == Advice::kRetryDestination) {
            wait_for_database(attempt.status.error());
            continue;
        }
        switch (settle(task, attempt)) {
            case Outcome::kDone:
                return finish(task);
            case Outcome::kHold:
                return hold(std::move(task));
            case Outcome::kAbandon:
                return leave(task);
        }
    }
}

Worker::Attempt Worker::try_once(Task& task) {
    Attempt attempt;
    if (hub_.by_id()) {
        if (auto fault = task.id_fault()) {
            attempt.status = Status(*std::move(fault));
            return attempt;
        }
    }
    const spi::EventView event = task.event();
    const std::optional<OffsetStep> step = step_after(task);
    const auto taken = inbox_.begin({&event, 1}, hub_.by_id(), step ? &*step : nullptr);
    if (!taken.ok()) {
        attempt.status = taken.status();
        attempt.from_session = true;
        return attempt;
    }
    database_is_back();
    attempt.taken = taken->front();
    if (attempt.taken == Taken::kNew) {
        const Message message = task.message();
        if (std::optional<ErrorInfo> cause = call_handler({&message, 1})) {
            const Status ended = inbox_.roll_back(*cause);
            if (!ended.ok()) {
                // An outage is nobody's fault, but a record that loses its session again and again
                // is.
                attempt.status = ended;
                attempt.from_session = ++task.lost <= kMaxLostSessions;
                return attempt;
            }
            attempt.counts = cause->advice != Advice::kRetryDestination;
            attempt.status = Status(*std::move(cause));
            return attempt;
        }
    }
    attempt.status = inbox_.commit();
    attempt.from_session = !attempt.status.ok() && ++task.lost <= kMaxLostSessions;
    if (attempt.status.ok() && step) task.partition->expected = step->next;
    return attempt;
}

// What an attempt that is over means for its record.
Worker::Outcome Worker::settle(Task& task, Attempt& attempt) {
    const Message message = task.message();
    if (attempt.status.ok()) {
        hub_.say(hub_.stats.count(attempt.taken), {}, &message);
        return Outcome::kDone;
    }
    const ErrorInfo& error = attempt.status.error();
    if (error.advice == Advice::kStop) {
        if (attempt.from_session && is_offset_lost(error)) {
            misplace(task);
        } else {
            hub_.fail(error);
        }
        return Outcome::kAbandon;
    }
    if (!attempt.counts) {
        hub_.say(What::kRetry, error, &message);
        return Outcome::kHold;
    }
    bump(hub_.stats.failed);
    ++task.attempts;
    if (error.advice == Advice::kDeadLetter || hub_.retry.exhausted(task.attempts)) {
        return give_up(task, error);
    }
    hub_.say(What::kRetry, error, &message);
    return Outcome::kHold;
}

Worker::Outcome Worker::give_up(Task& task, const ErrorInfo& error) {
    std::string text = storable(error);
    const std::optional<OffsetStep> step = step_after(task);
    spi::EventView letter = task.event();
    bool whole = true;
    while (!abandoned(task)) {
        const Result<Taken> result =
            inbox_.bury(letter, {task.attempts, error_code_name(error.code), text}, hub_.by_id(),
                        step ? &*step : nullptr);
        if (result.ok()) {
            if (step) task.partition->expected = step->next;
            const Message message = task.message();
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
            const Message message = task.message();
            hub_.say(What::kRetry, buried.error(), &message);
            return Outcome::kHold;
        }
        wait_for_database(buried.error());
    }
    return Outcome::kAbandon;
}

std::optional<OffsetStep> Worker::step_after(const Task& task) const {
    if (!hub_.by_offset()) return std::nullopt;
    return OffsetStep{.topic = task.record.topic(),
                      .partition = task.record.partition(),
                      .expected = task.partition->expected,
                      .next = task.record.offset() + 1,
                      .cluster_id = task.partition->cluster_id,
                      .last_id = task.name};
}

// The polling thread asks the database where to go on; what was taken of the partition is dropped.
void Worker::misplace(const Task& task) {
    const core::Lock lock(hub_.mutex);
    task.partition->mark_misplaced();
}

std::optional<ErrorInfo> Worker::call_handler(std::span<const Message> messages) const {
    return thrown_by([&] { applier_.handler(messages); });
}

// ---- where a record goes then ----

void Worker::finish(Task& task) {
    {
        const core::Lock lock(hub_.mutex);
        task.partition->finish(task.number);
    }
    leave(task);
}

void Worker::leave(Task& task) {
    const core::Lock lock(hub_.mutex);
    --task.partition->in_transaction;
    --hub_.in_flight.records;
    hub_.in_flight.bytes -= task.bytes;
    if (task.partition->taken_away) hub_.drained.notify_all();
}

void Worker::hold(Task task) {
    const core::Lock lock(hub_.mutex);
    --task.partition->in_transaction;
    if (task.partition->taken_away) hub_.drained.notify_all();
    Held& held = held_[task.lane];
    held.due_us = hub_.clock.boot_us() + hub_.retry.delay_us(++task.tries, random_());
    count_parked(task, true);
    held.tasks.push_front(std::move(task));
}

bool Worker::abandoned(const Task& task) {
    const core::Lock lock(hub_.mutex);
    return task.partition->taken_away || hub_.stop.requested();
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

// ---- beside the records ----

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
    static_cast<void>(inbox_.report(hub_.stats.member(hub_.lag.load())).ok());
}

void Worker::retry_dead_letters() {
    constexpr std::int64_t kMostAtOnceUs = 100'000;
    const std::int64_t began = hub_.clock.boot_us();
    if (owes_fresh()) {
        next_keep_us_ = began + std::min(owed_us_, kKeepUs);
        return;
    }
    spi::EventBatch letters;
    if (!inbox_.fetch_retries(kMaxRetriesAtOnce, letters).ok()) return;
    if (letters.size() == kMaxRetriesAtOnce) next_keep_us_ = 0;
    for (const spi::EventView& letter : letters.events()) {
        if (hub_.stop.requested() || (owed_us_ > kMostAtOnceUs && owes_fresh())) break;
        retry_one(letter);
        owed_us_ = hub_.clock.boot_us() - began;
    }
}

void Worker::retry_one(const spi::EventView& letter) {
    const auto taken = inbox_.begin_retry(letter.id);
    if (!taken.ok()) return;
    const Message message = message_of(letter, 1);
    std::optional<ErrorInfo> cause;
    if (*taken == Taken::kNew) cause = call_handler({&message, 1});
    if (!cause) {
        if (!inbox_.commit().ok() || *taken != Taken::kNew) return;
        hub_.say(hub_.stats.count(Taken::kNew), {}, &message);
        return;
    }
    if (!inbox_.roll_back(*cause).ok() || cause->advice == Advice::kRetryDestination) return;
    bump(hub_.stats.failed);
    const std::string text = storable(*cause);
    if (inbox_.bury_again(letter.id, {1, error_code_name(cause->code), text}).ok()) {
        hub_.say(What::kDeadLetter, *cause, &message);
    }
}

}  // namespace outbox::consumer::kafka
