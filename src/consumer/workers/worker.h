#pragma once

#include <deque>
#include <memory>
#include <random>
#include <span>
#include <stop_token>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "consumer/executor.h"
#include "consumer/janitor.h"
#include "consumer/letters.h"
#include "consumer/workers/hub.h"
#include "core/mutex.h"

namespace outbox::consumer {

/// Applies messages, in transactions of its own connection, on its own thread.
class Worker {
  public:
    /// The first, `number` 0, also retries dead letters and writes the figures.
    Worker(Hub& hub, std::size_t number);
    ~Worker() { join(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    void start();
    /// After `hub.stop`: the transaction in hand is finished first.
    void join();
    /// With the hub's mutex held, which the caller has under another name.
    void push(Task task) OUTBOX_UNCHECKED;
    void wake() { news_.notify_one(); }

  private:
    enum class Outcome : std::uint8_t { kDone, kHold, kAbandon };
    struct Held {
        std::deque<Task> tasks;  // the failing one first
        std::int64_t due_us = 0;
    };
    void run();
    std::vector<Task> collect();
    bool collect_due(std::vector<Task>& batch) OUTBOX_REQUIRES(hub_.mutex);
    [[nodiscard]] bool owes_fresh() const;
    void drop_taken_away() OUTBOX_REQUIRES(hub_.mutex);
    void park(Held& held, Task task) OUTBOX_REQUIRES(hub_.mutex);
    void count_parked(const Task& task, bool is_parked) OUTBOX_REQUIRES(hub_.mutex);
    void wait_for_news() OUTBOX_REQUIRES(hub_.mutex);

    void apply(std::vector<Task> batch);
    bool apply_together(std::span<Task> batch);
    bool wait_behind(Task& task);
    void apply_one(Task task);
    Outcome settle(Task& task, const Attempt& attempt);
    Attempt try_once(Task& task);
    Status note_begun(Task& task);
    void note_ended(Task& task, bool for_good);
    [[nodiscard]] bool is_outage(Task& task, const Attempt& attempt);
    Outcome give_up(Task& task, const ErrorInfo& error);
    std::optional<OffsetStep> step_after(const Task& task) const;
    static void moved(const Task& task, const std::optional<OffsetStep>& step);
    [[nodiscard]] std::optional<ErrorInfo> fault_of(const Task& task) const;
    void misplace(const Task& task);

    void finish(Task& task);
    void leave(Task& task);
    void hold(Task task);
    [[nodiscard]] bool abandoned(const Task& task);
    void wait_for_database(const ErrorInfo& error);
    void database_is_back();
    void keep();
    void retry_dead_letters();
    bool retry_one(const spi::EventView& letter);

    Hub& hub_;
    const bool keeper_;
    const Applier applier_;
    BrokerStore& store_;
    InboxStore& inbox_;
    std::stop_source ending_;  // a payload that is being fetched is not waited for
    Executor executor_;
    Letters letters_;
    Janitor janitor_;
    core::Condition news_;
    std::deque<Task> queue_ OUTBOX_GUARDED_BY(hub_.mutex);
    std::unordered_map<std::string, Held> held_ OUTBOX_GUARDED_BY(hub_.mutex);
    std::mt19937_64 random_;
    bool is_due_ = false;  // what was collected last had failed before
    // Time that failing messages had more than fresh ones: it is the fresh ones' before another
    // failing one is tried, however long each takes to fail.
    std::int64_t owed_us_ = 0;
    std::uint32_t outages_ = 0;
    std::int64_t next_keep_us_ = 0;
    std::int64_t next_report_us_ = 0;
    std::thread thread_;
};

using Workers = std::vector<std::unique_ptr<Worker>>;

/// Hands a task to the worker of its lane, with the hub's mutex held.
void push(Workers& workers, Task task);

}  // namespace outbox::consumer
