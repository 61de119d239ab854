#include "prepare/prepared_sink.h"

#include <algorithm>
#include <utility>

namespace outbox::prepare {
namespace {

using std::chrono::milliseconds;

// While the sink is waited for, what is prepared is looked at so often.
constexpr milliseconds kLook{1};

bool concerns_any(const Preparations& steps, const spi::Record& record) {
    return std::any_of(steps.begin(), steps.end(),
                       [&](const auto& step) { return step->concerns(record); });
}

bool is_doubtful_for_any(const Preparations& steps, const spi::Record& record) {
    return std::any_of(steps.begin(), steps.end(), [&](const auto& step) {
        return step->concerns(record) && step->is_doubtful(record);
    });
}

}  // namespace

PreparedSink::PreparedSink(std::unique_ptr<spi::Sink> sink,
                           const std::function<Preparations()>& make,
                           const PreparedSinkOptions& options)
    : sink_(std::move(sink)), options_(options), capabilities_(sink_->capabilities()) {
    capabilities_.fail_stop_order = false;
    for (std::size_t i = 0; i <= options_.threads; ++i) steps_.push_back(make());
    for (std::size_t i = 1; i < steps_.size(); ++i) {
        threads_.emplace_back([this, &steps = steps_[i]](const std::stop_token& stop) {  //
            work(stop, steps);
        });
    }
}

PreparedSink::~PreparedSink() {
    {
        const core::Lock lock(mutex_);
        stopping_ = true;
    }
    for (std::jthread& thread : threads_) thread.request_stop();
    news_.notify_all();
}

bool PreparedSink::publish(const spi::Record& record) {
    if (!concerns_any(steps_.front(), record)) {
        if (!sink_->publish(record)) return false;
        ++published_;
        return true;
    }
    if (ready_.size() >= options_.max_records) return false;
    auto job = std::make_unique<Job>();
    job->record = record;
    ++preparing_;
    const bool at_once = run_at_once(*job, steps_.front());
    if (at_once && job->status.ok()) {
        --preparing_;
        ready_.push_back(std::move(job));
        hand_on();
        return true;
    }
    const bool doubtful = !at_once && is_doubtful_for_any(steps_.front(), record);
    const core::Lock lock(mutex_);
    (at_once ? prepared_ : doubtful ? doubtful_ : waiting_).push_back(std::move(job));
    if (!at_once) news_.notify_one();
    return true;
}

// Null: there is nothing to do.
PreparedSink::Jobs* PreparedSink::next_queue() {
    const bool may_doubt = !doubtful_.empty() && !doubting_;
    // In turns, as there may be one thread alone.
    if (may_doubt && (waiting_.empty() || !doubted_last_)) return &doubtful_;
    return waiting_.empty() ? nullptr : &waiting_;
}

void PreparedSink::work(const std::stop_token& stop, Preparations& steps) {
    core::Lock lock(mutex_);
    while (true) {
        news_.wait(mutex_, [&]() OUTBOX_REQUIRES(mutex_) {  //
            return stopping_ || next_queue() != nullptr;
        });
        if (stopping_) return;
        Jobs& queue = *next_queue();
        const bool doubtful = &queue == &doubtful_;
        doubted_last_ = doubtful;
        doubting_ = doubting_ || doubtful;
        std::unique_ptr<Job> job = std::move(queue.front());
        queue.pop_front();
        lock.unlock();
        run(*job, steps, stop);
        lock.lock();
        if (doubtful) {
            doubting_ = false;
            if (!doubtful_.empty()) news_.notify_one();
        }
        prepared_.push_back(std::move(job));
        done_.notify_one();
    }
}

// False: some step has to wait for somebody.
bool PreparedSink::run_at_once(Job& job, Preparations& steps) {
    for (; job.done < steps.size() && job.status.ok(); ++job.done) {
        Preparation& step = *steps[job.done];
        if (!step.concerns(job.record)) continue;
        auto status = step.prepare_at_once(job.record, job.prepared);
        if (!status) return false;
        end(job, step, *std::move(status));
    }
    return true;
}

void PreparedSink::run(Job& job, Preparations& steps, const std::stop_token& stop) {
    for (; job.done < steps.size() && job.status.ok(); ++job.done) {
        Preparation& step = *steps[job.done];
        if (step.concerns(job.record)) end(job, step, step.prepare(job.record, job.prepared, stop));
    }
}

void PreparedSink::end(Job& job, const Preparation& step, Status status) {
    job.status = std::move(status);
    if (job.status.ok() || job.status.error().advice != Advice::kRetryDestination) return;
    job.part = job.prepared.part.empty() ? step.needs() : job.prepared.part;
}

void PreparedSink::poll(milliseconds max_wait, spi::Completions& out) {
    const std::size_t acknowledged = out.acknowledged.size();
    const std::size_t failed = out.failed.size();
    take_prepared(out);
    hand_on();
    if (preparing_ > 0 && published_ == 0 && ready_.empty() && out.failed.size() == failed) {
        wait_for_prepared(max_wait);
        take_prepared(out);
        hand_on();
        max_wait = {};
    }
    if (preparing_ > 0) max_wait = std::min(max_wait, kLook);
    if (out.failed.size() > failed) max_wait = {};
    const std::size_t failed_before = out.failed.size();
    sink_->poll(max_wait, out);
    forget_finished(out, acknowledged, failed_before);
    hand_on();
}

// Where what a record needs is away, those that wait for the same are told so at once: a server
// that hangs costs its timeout once, and not for each.
void PreparedSink::take_prepared(spi::Completions& out) {
    Jobs taken;
    {
        const core::Lock lock(mutex_);
        taken = std::exchange(prepared_, {});
    }
    const auto fail = [&](const Job& job, const Job& because) {
        --preparing_;
        out.failed.push_back(
            {.token = job.record.token, .error = because.status.error(), .part = because.part});
    };
    for (std::unique_ptr<Job>& job : taken) {
        if (job->status.ok()) {
            --preparing_;
            ready_.push_back(std::move(job));
            continue;
        }
        fail(*job, *job);
        if (job->part.empty()) continue;
        const auto waits_for_the_same = [&](const std::unique_ptr<Job>& other) {
            const Preparations& steps = steps_.front();
            const bool same =
                std::any_of(steps.begin() + static_cast<std::ptrdiff_t>(other->done), steps.end(),
                            [&](const auto& step) {
                                return step->needs() == job->part && step->concerns(other->record);
                            });
            if (same) fail(*other, *job);
            return same;
        };
        const core::Lock lock(mutex_);
        std::erase_if(waiting_, waits_for_the_same);
        std::erase_if(doubtful_, waits_for_the_same);
    }
}

void PreparedSink::hand_on() {
    while (!ready_.empty() && sink_->publish(ready_.front()->record)) {
        ++published_;
        std::unique_ptr<Job> job = std::move(ready_.front());
        ready_.pop_front();
        if (!job->prepared.bytes.empty()) changed_.emplace(job->record.token, std::move(job));
    }
}

void PreparedSink::wait_for_prepared(milliseconds most) {
    const core::Lock lock(mutex_);
    done_.wait_for(mutex_, most, [&]() OUTBOX_REQUIRES(mutex_) { return !prepared_.empty(); });
}

void PreparedSink::forget_finished(const spi::Completions& out, std::size_t acknowledged,
                                   std::size_t failed) {
    const auto forget = [&](std::uint64_t token) {
        if (published_ > 0) --published_;
        if (!changed_.empty()) changed_.erase(token);
    };
    for (std::size_t i = acknowledged; i < out.acknowledged.size(); ++i) {
        forget(out.acknowledged[i]);
    }
    for (std::size_t i = failed; i < out.failed.size(); ++i) forget(out.failed[i].token);
}

}  // namespace outbox::prepare
