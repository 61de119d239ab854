#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include <outbox/spi/sink.h>

#include "core/mutex.h"
#include "prepare/preparation.h"

namespace outbox::prepare {

struct PreparedSinkOptions {
    std::size_t threads = 4;        ///< Records that are prepared at the same time.
    std::size_t max_records = 256;  ///< Prepared, and waiting for the sink; then it is full.
};

/// A sink that has records prepared before another one gets them: by threads of its own, so that
/// nobody waits but the record itself. A record that no preparation concerns, or whose preparation
/// waits for nobody, goes straight on.
///
/// The relay keeps one record of a key under way (`fail_stop_order` is false whatever the sink
/// can): what is being prepared is behind nothing of its key, and nothing of its key is behind it.
///
/// Any number may wait to be prepared: whoever publishes has them anyway, and what they wait for is
/// no reason for others to wait.
///
/// What a preparation needs is a part of the destination (`FailedRecord::part`): while it is away,
/// records that it concerns wait with their keys, no attempt is counted, and others go on.
class PreparedSink final : public spi::Sink {
  public:
    /// `make` is called for each thread, and once for who publishes.
    PreparedSink(std::unique_ptr<spi::Sink> sink, const std::function<Preparations()>& make,
                 const PreparedSinkOptions& options = {});
    /// Waits for what the threads are at, as long as preparations take to stop.
    ~PreparedSink() override;

    [[nodiscard]] const spi::SinkCapabilities& capabilities() const override {
        return capabilities_;
    }
    /// Of the sink alone: while what some records need is away the others go on, and the route's
    /// circuit with them.
    Status check() override { return sink_->check(); }
    Result<std::string> destination() override { return sink_->destination(); }
    [[nodiscard]] bool publish(const spi::Record& record) override;
    void poll(std::chrono::milliseconds max_wait, spi::Completions& out) override;
    void more_follows(bool more) override { sink_->more_follows(more); }
    void outcomes_may_wait(bool may) override { sink_->outcomes_may_wait(may); }
    void all_recorded() override { sink_->all_recorded(); }
    void report(spi::SinkReport& out) override { sink_->report(out); }

  private:
    struct Job {
        spi::Record record;
        std::size_t done = 0;  // steps
        Prepared prepared;
        Status status;
        std::string part;  // what was needed and is away
    };
    using Jobs = std::deque<std::unique_ptr<Job>>;

    [[nodiscard]] bool concerns(const spi::Record& record) const;
    void work(const std::stop_token& stop, Preparations& steps);
    Jobs* next_queue() OUTBOX_REQUIRES(mutex_);
    static bool run_at_once(Job& job, Preparations& steps);
    static void end(Job& job, const Preparation& step, Status status);
    static void run(Job& job, Preparations& steps, const std::stop_token& stop);
    void take_prepared(spi::Completions& out);
    void hand_on();
    void wait_for_prepared(std::chrono::milliseconds most);
    void forget_finished(const spi::Completions& out, std::size_t acknowledged, std::size_t failed);

    // Whose bytes the sink has, which therefore ends before them.
    std::unordered_map<std::uint64_t, std::unique_ptr<Job>> changed_;
    const std::unique_ptr<spi::Sink> sink_;
    const PreparedSinkOptions options_;
    spi::SinkCapabilities capabilities_;
    std::vector<Preparations> steps_;  // the first is the caller's, the others each a thread's
    std::size_t preparing_ = 0;        // without a result that was taken
    std::size_t published_ = 0;        // at the sink, without an outcome
    Jobs ready_;                       // for the sink

    core::Mutex mutex_;
    core::Condition news_;  // for the threads
    core::Condition done_;  // for who polls
    bool stopping_ OUTBOX_GUARDED_BY(mutex_) = false;
    Jobs waiting_ OUTBOX_GUARDED_BY(mutex_);
    Jobs doubtful_ OUTBOX_GUARDED_BY(mutex_);  // `Preparation::is_doubtful`, one at a time
    bool doubting_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool doubted_last_ OUTBOX_GUARDED_BY(mutex_) = false;
    Jobs prepared_ OUTBOX_GUARDED_BY(mutex_);

    std::vector<std::jthread> threads_;  // end first
};

}  // namespace outbox::prepare
