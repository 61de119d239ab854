#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <outbox/consumer/kafka.h>

#include "brokers/kafka/receive/partition.h"
#include "consumer/applying.h"
#include "consumer/env.h"
#include "consumer/log_store.h"
#include "consumer/stop_signal.h"
#include "core/mutex.h"
#include "core/retry_policy.h"

namespace outbox::consumer::kafka {

/// A session with the database, and the application's handler for its transactions.
struct Applier {
    std::unique_ptr<LogStore> store;
    std::function<void(std::span<const Message>)> handler;
};
using MakeApplier = std::function<Applier()>;

/// What the polling thread and the workers share.
struct Hub {
    Hub(KafkaConsumerOptions chosen, MakeApplier make, const Env& env = real_env())
        : options(std::move(chosen)),
          make_applier(std::move(make)),
          clock(env.clock),
          seed(env.seed) {
        retry = {options.retry_base_ms, options.retry_max_ms, options.max_attempts};
    }

    /// `clock.boot_us`, for waits.
    [[nodiscard]] std::chrono::steady_clock::time_point now() const {
        return std::chrono::steady_clock::time_point(std::chrono::microseconds(clock.boot_us()));
    }
    [[nodiscard]] bool by_id() const { return options.mode != KafkaConsumerOptions::Mode::kOffset; }
    [[nodiscard]] bool by_offset() const {
        return options.mode != KafkaConsumerOptions::Mode::kInbox;
    }

    void say(ConsumerReport::What what, const ErrorInfo& error = {},
             const Message* message = nullptr) {
        if (!options.on_report) return;
        const core::Lock lock(report_mutex_);
        options.on_report({what, error, message});
    }

    void fail(const ErrorInfo& error) {
        {
            const core::Lock lock(mutex);
            if (!fatal) fatal = error;
        }
        stop.request();
    }

    /// Of the polling thread: says it once, ends the run where nothing else helps.
    void trouble(const ErrorInfo& error) {
        if (error.advice == Advice::kStop) return fail(error);
        const std::string text = describe(error);
        if (text == std::exchange(last_trouble_, text)) return;
        say(ConsumerReport::What::kDisconnected, error);
    }
    void forget_trouble() { last_trouble_.clear(); }

    const KafkaConsumerOptions options;
    const MakeApplier make_applier;
    const core::Clock& clock;
    const std::uint64_t seed;  ///< Of a worker: this and its number.
    core::RetryPolicy retry;
    StopSignal stop;

    core::Mutex mutex;        // for all below, partitions and the workers' queues
    core::Condition drained;  // a transaction of a partition that is taken away ended
    // Records that may be applied, and those that wait behind a failing one of their key: these
    // stop, once there are as many, only the partitions that have more than their share of them.
    Amount in_flight OUTBOX_GUARDED_BY(mutex);
    Amount parked OUTBOX_GUARDED_BY(mutex);
    std::optional<ErrorInfo> fatal OUTBOX_GUARDED_BY(mutex);

    LiveStats stats;
    std::atomic<std::int64_t> lag{0};

  private:
    core::Mutex report_mutex_;
    std::string last_trouble_;
};

}  // namespace outbox::consumer::kafka
