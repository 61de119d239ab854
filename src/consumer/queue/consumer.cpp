#include "consumer/queue/consumer.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <random>
#include <utility>

#include "consumer/janitor.h"
#include "consumer/queue/inlet.h"
#include "consumer/queue/link.h"
#include "consumer/workers/worker.h"

namespace outbox {

using consumer::Amount;
using consumer::Arrival;
using consumer::Hub;
using consumer::Inlet;
using consumer::Link;
using consumer::MakeApplier;
using consumer::QueueDelivery;
using consumer::WakeUp;
using consumer::Worker;
using consumer::WorkerOptions;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using What = ConsumerReport::What;

namespace {

constexpr milliseconds kFetch{100};
constexpr milliseconds kLagInterval{5'000};
// Deliveries, of which nobody knows whether a handler was begun; then it is written down.
constexpr std::uint32_t kSuspectAfter = 3;
constexpr std::size_t kMaxInFlight = 30'000;  // twice as many fit AMQP's prefetch

void require(bool condition, const char* message) {
    if (!condition) throw Error(ErrorCode::kConfigInvalid, Advice::kStop, message);
}

void check(const QueueConsumerOptions& options) {
    constexpr std::size_t kMaxNameBytes = 255;
    require(!options.consumer.empty() && options.consumer.size() <= kMaxNameBytes,
            "QueueConsumerOptions::consumer needs a name of 1 to 255 bytes");
    require(options.workers > 0 && options.workers <= 64,
            "QueueConsumerOptions::workers must be 1 to 64");
    require(options.transaction_size > 0 && options.transaction_size <= 10'000,
            "QueueConsumerOptions::transaction_size must be 1 to 10000");
    require(options.max_in_flight > 0 && options.max_in_flight <= kMaxInFlight,
            "QueueConsumerOptions::max_in_flight must be 1 to 30000");
    require(options.max_in_flight_bytes > 0,
            "QueueConsumerOptions::max_in_flight_bytes must be above 0");
    require(options.max_attempts > 0, "QueueConsumerOptions::max_attempts must be at least 1");
    require(options.retry_base_ms > 0 && options.retry_max_ms >= options.retry_base_ms,
            "QueueConsumerOptions: retry_base_ms must be above 0 and not above retry_max_ms");
    require(options.max_deliveries == 0 || options.max_deliveries > kSuspectAfter,
            "QueueConsumerOptions::max_deliveries must be 0 (no limit) or above 3");
    require(options.connect_timeout_s > 0,
            "QueueConsumerOptions::connect_timeout_s must be above 0");
    require(
        options.inbox_retention_s == 0 || options.inbox_retention_s >= consumer::kLeastRetentionS,
        "QueueConsumerOptions::inbox_retention_s must be 0 (never) or at least 7200");
}

WorkerOptions worker_options(const QueueConsumerOptions& options) {
    return {.consumer = options.consumer,
            .workers = options.workers,
            .transaction_size = options.transaction_size,
            .max_in_flight = options.max_in_flight,
            .max_in_flight_bytes = options.max_in_flight_bytes,
            .retry = {options.retry_base_ms, options.retry_max_ms, options.max_attempts},
            .inbox_retention_s = options.inbox_retention_s,
            .max_begun = std::int64_t{options.max_deliveries} - kSuspectAfter,
            .on_report = options.on_report,
            .claims = options.claims,
            .spans = options.spans};
}

}  // namespace

class QueueConsumer::Impl {
  public:
    Impl(const Queue& queue, MakeApplier make_applier, QueueConsumerOptions options,
         const consumer::Env& env)
        : options_(std::move(options)),
          hub_(worker_options(options_), std::move(make_applier), env),
          inlet_(queue.open(
              {2 * options_.max_in_flight, std::chrono::seconds(options_.connect_timeout_s)})),
          random_(hub_.seed) {
        hub_.queue = inlet_->queue();
    }

    ~Impl() {
        hub_.stop.request();
        workers_.clear();
    }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void run() {
        hub_.make_applier().store->inbox().connect().or_throw();
        for (std::size_t i = 0; i < options_.workers; ++i) {
            workers_.push_back(std::make_unique<Worker>(hub_, i));
        }
        for (auto& worker : workers_) worker->start();
        while (!hub_.stop.requested()) turn();
        for (auto& worker : workers_) worker->wake();
        for (auto& worker : workers_) worker->join();
        // What was taken beside the finished ones goes back with the connection.
        if (link_ != nullptr) static_cast<void>(acknowledge().ok());
        workers_.clear();
        inlet_->disconnect();
        const core::Lock lock(hub_.mutex);
        if (hub_.fatal) throw Error(*hub_.fatal);
    }

    Hub& hub() { return hub_; }

  private:
    void turn() {
        if (link_ == nullptr && !connect()) return;
        wake_up_.clear();
        arrived_.clear();
        Status status = acknowledge();
        if (status.ok()) status = inlet_->fetch(room(), kFetch, wake_up_.fd(), arrived_);
        if (status.ok() && hub_.now() >= next_lag_) status = measure_lag();
        if (!status.ok()) return lose(status.error());
        for (Arrival& arrival : arrived_) {
            waiting_bytes_ += arrival.bytes();
            waiting_.push_back(std::move(arrival));
        }
        dispatch();
    }

    bool connect() {
        if (const Status status = inlet_->connect(); !status.ok()) {
            lose(status.error());
            return false;
        }
        tries_ = 0;
        link_ = std::make_shared<Link>(wake_up_);
        hub_.forget_trouble();
        hub_.say(What::kActive);
        return true;
    }

    // What is in a transaction is finished, and comes again as a repeat; the rest is dropped, and
    // comes again as it is.
    void lose(const ErrorInfo& error) {
        if (link_ != nullptr) {
            const core::Lock lock(hub_.mutex);
            link_->taken_away = true;
        }
        link_.reset();
        waiting_.clear();
        waiting_bytes_ = 0;
        inlet_->disconnect();
        hub_.trouble(error);
        hub_.stop.wait_ms(consumer::kReconnect.delay_us(++tries_, random_()) / 1000);
    }

    Status acknowledge() {
        std::vector<std::uint64_t> numbers;
        {
            const core::Lock lock(hub_.mutex);
            numbers = link_->to_tell();
        }
        return numbers.empty() ? Status() : inlet_->acknowledge(numbers);
    }

    // What may still be taken. As much as may be in flight may be parked beside it.
    Amount room() {
        const core::Lock lock(hub_.mutex);
        const auto left = [](std::size_t most, std::size_t in_flight, std::size_t parked) {
            const std::size_t beside = parked > most ? parked - most : 0;
            return most - std::min(most, in_flight + beside);
        };
        return {left(options_.max_in_flight, hub_.in_flight.records + waiting_.size(),
                     hub_.parked.records),
                left(options_.max_in_flight_bytes, hub_.in_flight.bytes + waiting_bytes_,
                     hub_.parked.bytes)};
    }

    // One that was handed over again and again may be what ends us: it goes alone, so that those
    // before it are finished, and it is the first that comes again.
    void dispatch() {
        const core::Lock lock(hub_.mutex);
        while (!waiting_.empty()) {
            const bool suspect = waiting_.front().deliveries > kSuspectAfter;
            const bool busy = hub_.in_flight.records > 0;
            if ((suspect || alone_) && busy) return;
            alone_ = suspect;
            Arrival arrival = std::move(waiting_.front());
            waiting_.pop_front();
            waiting_bytes_ -= arrival.bytes();
            const std::uint64_t number = arrival.number;
            link_->take();
            consumer::push(workers_,
                           {std::make_unique<QueueDelivery>(std::move(arrival), options_.format,
                                                            suspect && options_.max_deliveries > 0),
                            link_, number});
        }
    }

    Status measure_lag() {
        next_lag_ = hub_.now() + kLagInterval;
        const auto there = inlet_->waiting();
        if (!there.ok()) return there.status();
        const core::Lock lock(hub_.mutex);
        hub_.queue_lag.store(there->value_or(Hub::kNotKnown));
        hub_.lag.store(
            static_cast<std::int64_t>(link_->unfinished() + waiting_.size() + inlet_->taken()));
        return {};
    }

    const QueueConsumerOptions options_;
    Hub hub_;
    WakeUp wake_up_;
    const std::unique_ptr<Inlet> inlet_;
    consumer::Workers workers_;
    std::shared_ptr<Link> link_;  // none: not connected
    std::vector<Arrival> arrived_;
    std::size_t waiting_bytes_ = 0;
    std::deque<Arrival> waiting_;  // for those before them
    bool alone_ = false;           // a suspect is under way
    std::mt19937_64 random_;
    std::uint32_t tries_ = 0;
    steady_clock::time_point next_lag_;
};

QueueConsumer::QueueConsumer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
QueueConsumer::QueueConsumer(QueueConsumer&& other) noexcept = default;
QueueConsumer& QueueConsumer::operator=(QueueConsumer&& other) noexcept = default;
QueueConsumer::~QueueConsumer() = default;

void QueueConsumer::run() {
    impl_->run();
}

void QueueConsumer::stop() noexcept {
    impl_->hub().stop.request();
}

ConsumerStats QueueConsumer::stats() const noexcept {
    return impl_->hub().stats.read();
}

std::optional<std::int64_t> QueueConsumer::lag() const noexcept {
    const auto in_queue = impl_->hub().queue_lag_if_known();
    if (!in_queue) return std::nullopt;
    return *in_queue + impl_->hub().lag.load();
}

QueueConsumer consumer::make_queue_consumer(
    const Queue& queue, QueueConsumerOptions options,
    const std::function<MakeApplier(const QueueConsumerOptions&)>& applier_for, const Env& env) {
    check(options);
    MakeApplier make_applier = applier_for(options);
    return QueueConsumer(std::make_unique<QueueConsumer::Impl>(queue, std::move(make_applier),
                                                               std::move(options), env));
}

}  // namespace outbox
