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

#include <outbox/consumer/claims.h>
#include <outbox/consumer/mailbox.h>
#include <outbox/consumer/spans.h>

#include "consumer/applying.h"
#include "consumer/broker_store.h"
#include "consumer/env.h"
#include "consumer/stop_signal.h"
#include "consumer/workers/delivery.h"
#include "core/mutex.h"
#include "core/retry_policy.h"

namespace outbox::consumer {

/// A session with the database, and the application's handler for its transactions.
struct Applier {
    std::unique_ptr<BrokerStore> store;
    std::function<void(std::span<const Message>)> handler;
};
/// For a worker, with the consumer's clock, which outlives what is made.
using MakeApplier = std::function<Applier(const core::Clock& clock)>;

/// What the workers are told of a consumer's options, which have the same names.
struct WorkerOptions {
    std::string consumer;
    std::size_t workers = 1;
    std::size_t transaction_size = 1;
    std::size_t max_in_flight = 1;
    std::size_t max_in_flight_bytes = 1;
    core::RetryPolicy retry;
    std::int64_t inbox_retention_s = 0;
    std::int64_t max_begun = 0;  ///< Times, without an end; for `Delivery::is_suspect`.
    bool by_id = true;           ///< The inbox knows what was applied,
    bool by_offset = false;      ///< and/or the origin's place in the database does.
    std::function<void(const ConsumerReport&)> on_report;
    ClaimStore claims;
    SpanExport spans;
};

/// What the thread that polls the broker and the workers share.
struct Hub {
    Hub(WorkerOptions chosen, MakeApplier make, const Env& env)
        : options(std::move(chosen)),
          clock(env.clock),
          seed(env.seed),
          make_applier_(std::move(make)) {}

    [[nodiscard]] Applier make_applier() const { return make_applier_(clock); }

    /// `clock.boot_us`, for waits.
    [[nodiscard]] std::chrono::steady_clock::time_point now() const {
        return std::chrono::steady_clock::time_point(std::chrono::microseconds(clock.boot_us()));
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

    const WorkerOptions options;
    const core::Clock& clock;
    const std::uint64_t seed;  ///< Of a worker: this and its number.
    StopSignal stop;

    core::Mutex mutex;        // for all below, origins and the workers' queues
    core::Condition drained;  // a transaction of an origin that is taken away ended
    // Messages that may be applied, and those that wait behind a failing one of their lane: these
    // stop, once there are as many, only the origins that have more than their share of them.
    Amount in_flight OUTBOX_GUARDED_BY(mutex);
    Amount parked OUTBOX_GUARDED_BY(mutex);
    std::optional<ErrorInfo> fatal OUTBOX_GUARDED_BY(mutex);

    LiveStats stats;
    std::atomic<std::int64_t> lag{0};  // what waits for this member
    std::string queue = {};            // set before the workers start; empty: none
    static constexpr std::int64_t kNotKnown = -1;
    std::atomic<std::int64_t> queue_lag{0};  // or `kNotKnown`
    [[nodiscard]] std::optional<std::int64_t> queue_lag_if_known() const {
        const std::int64_t messages = queue_lag.load();
        return messages == kNotKnown ? std::nullopt : std::optional(messages);
    }

  private:
    const MakeApplier make_applier_;
    core::Mutex report_mutex_;
    std::string last_trouble_;
};

}  // namespace outbox::consumer
