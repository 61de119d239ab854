#include "relay/term.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

namespace outbox::relay {

namespace {
constexpr std::chrono::milliseconds kRemovalRetry{10};
constexpr std::chrono::milliseconds kRecordRetryMin{100};
constexpr std::chrono::milliseconds kRecordRetryMax{2'000};

Result<Pipeline::Inheritance> load(spi::Recorder& recorder, const RouteSpec& route, bool ledger) {
    Pipeline::Inheritance left;
    auto failing = recorder.load_deliveries(route.name);
    if (!failing.ok()) return failing.status();
    left.failing = std::move(*failing);
    if (ledger) {
        auto ranges = recorder.load_ledger(route.name);
        if (!ranges.ok()) return ranges.status();
        left.finished = core::Ledger(*ranges);
    }
    if (route.on_dead_letter == OnDeadLetter::kBlockKey) {
        auto keys = recorder.load_dead_keys(route.name);
        if (!keys.ok()) return keys.status();
        left.dead_keys = std::move(*keys);
    }
    return left;
}

}  // namespace

Result<std::unique_ptr<Term>> Term::open(const Deps& deps) {
    std::unique_ptr<Term> term(new Term(deps));
    auto recorder = deps.source.open_recorder();
    if (!recorder.ok()) return recorder.status();
    term->recorder_ = std::move(*recorder);
    // The positions of one route need no ledger: what is finished is no longer in the table.
    const bool ledgers = deps.routes.size() > 1 && deps.source.stable_positions();
    std::vector<core::Ledger> kept;
    for (std::size_t i = 0; i < deps.routes.size(); ++i) {
        RouteSpec& route = deps.routes[i];
        auto reader = deps.source.open_reader(route.name);
        if (!reader.ok()) return reader.status();
        term->readers_.push_back(std::move(*reader));
        auto sink = route.make_sink();
        if (!sink.ok()) return sink.status();
        term->sinks_.push_back(std::move(*sink));
        auto left = load(*term->recorder_, route, ledgers);
        if (!left.ok()) return left.status();
        if (ledgers) kept.push_back(left->finished);
        term->pipelines_.push_back(std::make_unique<Pipeline>(
            Pipeline::Deps{*term->readers_[i], *term->sinks_[i], term->queue_, deps.lease,
                           deps.clock, *deps.stats[i], deps.notify},
            i, deps.routes, deps.options, std::move(*left),
            static_cast<std::uint64_t>(deps.clock.wall_us()) + i));
    }
    term->keeper_ = std::make_unique<RecordKeeper>(
        RecordKeeper::Deps{*term->recorder_, term->queue_, deps.clock, deps.notify}, deps.routes,
        deps.stats, deps.options, std::move(kept), deps.epoch);
    return term;
}

Term::~Term() {
    finish(0);
}

void Term::start() {
    for (std::size_t i = 0; i < pipelines_.size(); ++i) {
        route_threads_.emplace_back([this, i] { run_route(i); });
    }
    recorder_thread_ = std::thread([this] { run_recorder(); });
}

void Term::finish(std::int64_t grace_ms) {
    for (const auto& pipeline : pipelines_) pipeline->drain();
    drain_until_us_.store(deps_.clock.boot_us() + grace_ms * 1000, std::memory_order_relaxed);
    draining_.store(true, std::memory_order_release);
    for (std::thread& thread : route_threads_) {
        if (thread.joinable()) thread.join();
    }
    routes_done_.store(true, std::memory_order_release);
    queue_.flush();
    if (recorder_thread_.joinable()) recorder_thread_.join();
}

Status Term::error() const {
    const std::scoped_lock lock(mutex_);
    return error_;
}

void Term::end(const Status& why) {
    {
        const std::scoped_lock lock(mutex_);
        if (error_.ok()) error_ = why;
    }
    over_.store(true, std::memory_order_release);
}

void Term::run_route(std::size_t route) {
    Pipeline& pipeline = *pipelines_[route];
    while (true) {
        if (Status status = pipeline.step(); !status.ok()) {
            end(status);
            return;
        }
        if (!draining_.load(std::memory_order_acquire)) continue;
        const bool late = deps_.clock.boot_us() >= drain_until_us_.load(std::memory_order_relaxed);
        if (pipeline.drained() || late) return;
    }
}

void Term::run_recorder() {
    std::chrono::milliseconds retry = kRecordRetryMin;
    bool failed = false;
    const auto late = [this] {
        return deps_.clock.boot_us() >= drain_until_us_.load(std::memory_order_relaxed);
    };
    while (true) {
        // The routes have ended before the last look at the queue: nothing can follow it.
        const bool last = routes_done_.load(std::memory_order_acquire);
        const Status status =
            keeper_->turn(std::chrono::milliseconds(deps_.options.record_interval_ms));
        if (status.ok()) {
            if (failed) deps_.notify({Note::Level::kInfo, "record_recovered", {}});
            failed = false;
            retry = kRecordRetryMin;
            if (last && (keeper_->idle() || (keeper_->recorded() && late()))) return;
            if (last) std::this_thread::sleep_for(kRemovalRetry);
            continue;
        }
        if (status.error().code == ErrorCode::kLeaseLost ||
            status.error().advice == Advice::kStop) {
            end(status);
            return;
        }
        if (!failed) {
            deps_.notify(
                {Note::Level::kError, "record_failed", {{"error", describe(status.error())}}});
            failed = true;
        }
        if (last && late()) return;
        std::this_thread::sleep_for(retry);
        retry = std::min(retry * 2, kRecordRetryMax);
    }
}

}  // namespace outbox::relay
