#include "relay/ahead_thread.h"

#include <utility>

#include "core/check.h"

namespace outbox::relay {

AheadThread::~AheadThread() {
    {
        const core::Lock lock(mutex_);
        stopping_ = true;
        changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
}

void AheadThread::start(std::function<void()> job) {
    {
        const core::Lock lock(mutex_);
        OUTBOX_CHECK(!job_, "one job at a time");
        job_ = std::move(job);
        changed_.notify_all();
    }
    if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void AheadThread::wait() {
    core::Lock lock(mutex_);
    changed_.wait(mutex_, [this]() OUTBOX_REQUIRES(mutex_) { return !job_; });
}

void AheadThread::run() {
    core::Lock lock(mutex_);
    for (;;) {
        changed_.wait(mutex_, [this]() OUTBOX_REQUIRES(mutex_) { return job_ || stopping_; });
        if (!job_) return;
        const std::function<void()> job = job_;
        lock.unlock();
        job();
        lock.lock();
        job_ = nullptr;
        changed_.notify_all();
    }
}

}  // namespace outbox::relay
