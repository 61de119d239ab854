#pragma once

#include <functional>
#include <thread>

#include "core/mutex.h"

namespace outbox::relay {

/// A thread for one job at a time, beside the one thread that gives it jobs: what a job uses is its
/// own until `wait` has returned. The thread begins with the first job.
class AheadThread {
  public:
    AheadThread() = default;
    AheadThread(const AheadThread&) = delete;
    AheadThread& operator=(const AheadThread&) = delete;
    /// Waits for the job that is under way.
    ~AheadThread();

    /// None may be under way. Does not block.
    void start(std::function<void()> job);
    /// Blocks until no job is under way.
    void wait();

  private:
    void run();

    core::Mutex mutex_;
    core::Condition changed_;
    std::function<void()> job_ OUTBOX_GUARDED_BY(mutex_);  // null: none is under way
    bool stopping_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::thread thread_;
};

}  // namespace outbox::relay
