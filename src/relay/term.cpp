#include "relay/term.h"

#include <algorithm>
#include <chrono>
#include <pthread.h>
#include <string>
#include <utility>

#include "relay/later_sink.h"

namespace outbox::relay {

namespace {
constexpr std::chrono::milliseconds kLastLook{10};
constexpr std::chrono::milliseconds kRetryMin{100};
constexpr std::chrono::milliseconds kRetryMax{2'000};
constexpr std::chrono::milliseconds kRemoveInterval{100};
constexpr std::chrono::milliseconds kHousekeeping{20};

Result<Pipeline::Inheritance> load(spi::Recorder& recorder, const RouteSpec& route) {
    Pipeline::Inheritance left;
    auto failing = recorder.load_deliveries(route.name);
    if (!failing.ok()) return failing.status();
    left.failing = std::move(*failing);
    if (route.on_dead_letter == OnDeadLetter::kBlockKey) {
        auto keys = recorder.load_dead_keys(route.name);
        if (!keys.ok()) return keys.status();
        left.dead_keys = std::move(*keys);
    }
    return left;
}

// It could be made as the process started, and what is wrong with one destination is no trouble of
// the others.
std::unique_ptr<spi::Sink> make_sink(const RouteSpec& route, const std::string& producer) {
    auto sink = route.make_sink(producer);
    if (sink.ok()) return *std::move(sink);
    return std::make_unique<LaterSink>(
        [make = route.make_sink, producer] { return make(producer); }, sink.error());
}

}  // namespace

Result<std::unique_ptr<Term>> Term::open(const Deps& deps) {
    std::unique_ptr<Term> term(new Term(deps));
    deps.source.begin_term();
    for (auto* recorder : {&term->recorder_, &term->removals_, &term->chores_}) {
        auto opened = deps.source.open_recorder();
        if (!opened.ok()) return opened.status();
        *recorder = std::move(*opened);
    }
    std::vector<spi::RouteName> names;
    for (const RouteSpec& route : deps.routes) {
        names.push_back({route.name, route.former_names, route.predicate.fingerprint()});
    }
    auto begun = term->recorder_->begin(deps.epoch, names);
    if (!begun.ok()) return begun.status();
    for (const std::string& note : begun->notes) {
        deps.notify({Note::Level::kWarning, "ledger", {{"what", note}}});
    }
    term->remover_ = std::make_unique<Remover>(*term->removals_, deps.epoch);
    const bool keeps = deps.source.keeps_rows();
    std::vector<spi::PositionSet> ledgers;
    std::vector<Position> settled;
    for (std::size_t i = 0; i < deps.routes.size(); ++i) {
        RouteSpec& route = deps.routes[i];
        spi::RouteBeginning& beginning = begun->routes[i];
        auto reader = deps.source.open_reader(route.name, beginning.finished);
        if (!reader.ok()) return reader.status();
        term->readers_.push_back(std::move(*reader));
        term->sinks_.push_back(make_sink(route, beginning.producer));
        auto left = load(*term->recorder_, route);
        if (!left.ok()) return left.status();
        left->destination = std::move(beginning.destination);
        if (deps.source.stable_positions()) ledgers.push_back(std::move(beginning.finished));
        if (keeps) settled.push_back(beginning.settled);
        term->pipelines_.push_back(std::make_unique<Pipeline>(
            Pipeline::Deps{*term->readers_[i], *term->sinks_[i], term->queue_, deps.lease,
                           deps.clock, *deps.stats[i], deps.notify, term->remover_->full()},
            i, deps.routes, deps.options, std::move(*left),
            static_cast<std::uint64_t>(deps.clock.boot_us()) + i));
    }
    term->keeper_ = std::make_unique<RecordKeeper>(
        RecordKeeper::Deps{*term->recorder_, term->queue_, *term->remover_}, deps.routes,
        deps.stats, deps.options, std::move(ledgers), std::move(settled), deps.epoch);
    term->housekeeper_ = std::make_unique<Housekeeper>(
        Housekeeper::Deps{*term->chores_, term->queue_, deps.clock, deps.notify, !keeps},
        deps.routes, deps.stats, deps.options, deps.epoch);
    // Before the first event is read.
    if (Status status = term->housekeeper_->tell_paused(); !status.ok()) return status.error();
    return term;
}

Term::~Term() {
    finish(0);
}

void Term::start() {
    for (std::size_t i = 0; i < pipelines_.size(); ++i) {
        route_threads_.emplace_back([this, i] { run_route(i); });
    }
    // What works in turn on one thread where the database takes one writer at a time.
    const bool alone = !deps_.source.writes_concurrently();
    recorder_thread_ = std::thread([this, alone] {
        run({"record_failed", "record_recovered",
             [this, alone] {
                 Status status = record();
                 return status.ok() && alone ? remove() : status;
             },
             [this, alone] { return keeper_->idle() && (!alone || remover_->idle() || late()); },
             routes_done_});
        recorder_done_.store(true, std::memory_order_release);
    });
    if (!alone) {
        remover_thread_ = std::thread([this] {
            run({"remove_failed", "remove_recovered", [this] { return remove(); },
                 [this] { return remover_->idle() || late(); }, recorder_done_});
        });
    }
    housekeeper_thread_ = std::thread([this] {
        run({"housekeeping_failed", "housekeeping_recovered",
             [this] {
                 Status status = housekeeper_->turn();
                 housekept_ = status.ok();
                 if (status.ok() && !draining_.load(std::memory_order_acquire)) {
                     std::this_thread::sleep_for(kHousekeeping);
                 }
                 return status;
             },
             [] { return true; }, draining_});
    });
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
    if (remover_) remover_->flush();
    if (remover_thread_.joinable()) remover_thread_.join();
    if (housekeeper_thread_.joinable()) housekeeper_thread_.join();
    // What is not told is missing in the totals. A database that is away is not waited for.
    if (housekept_ && error().ok() && !late()) {
        Status told = housekeeper_->tell_last();
        if (!told.ok() && told.error().code == ErrorCode::kServerChanged) end(told);
    }
}

spi::Recorder::Stats Term::database_stats() const {
    spi::Recorder::Stats stats = housekeeper_->database_stats();
    stats.owed += static_cast<std::int64_t>(remover_->kept());
    // Rows that are finished and not yet removed are no backlog.
    if (stats.without_finished) return stats;
    const auto done = static_cast<std::int64_t>(remover_->pending());
    stats.backlog = std::max(stats.at_least, stats.backlog - done);
    return stats;
}

Status Term::error() const {
    const core::Lock lock(mutex_);
    return error_;
}

void Term::end(const Status& why) {
    {
        const core::Lock lock(mutex_);
        // A source says once that its server has changed, and a restored one forgets the lease too.
        const bool changed = why.error().code == ErrorCode::kServerChanged;
        if (error_.ok() || (changed && error_.error().code == ErrorCode::kLeaseLost)) error_ = why;
    }
    over_.store(true, std::memory_order_release);
}

void Term::run_route(std::size_t route) {
    // A debugger, which is to say where it hangs, shows it; 15 bytes are taken.
    pthread_setname_np(pthread_self(), ("route " + deps_.routes[route].name).substr(0, 15).c_str());
    Pipeline& pipeline = *pipelines_[route];
    while (true) {
        if (Status status = pipeline.step(); !status.ok()) {
            end(status);
            break;
        }
        if (!draining_.load(std::memory_order_acquire)) continue;
        const bool late = deps_.clock.boot_us() >= drain_until_us_.load(std::memory_order_relaxed);
        if (pipeline.drained() || late) break;
    }
    pipeline.report_last();
}

bool Term::late() const {
    return draining_.load(std::memory_order_acquire) &&
           deps_.clock.boot_us() >= drain_until_us_.load(std::memory_order_relaxed);
}

Status Term::record() {
    keeper_->forget_below(housekeeper_->lowest());
    return keeper_->turn(std::chrono::milliseconds(deps_.options.record_interval_ms));
}

Status Term::remove() {
    const bool alone = !deps_.source.writes_concurrently();
    Status status = remover_->turn(alone ? std::chrono::milliseconds(0) : kRemoveInterval);
    if (const auto refusal = remover_->new_refusal()) deps_.notify(rows_refused(*refusal));
    // Rows that stay leave this thread time for whole segments of them, each of which may take
    // some.
    if (deps_.source.keeps_rows()) housekeeper_->prune(*removals_);
    return status;
}

void Term::run(const Work& work) {
    std::chrono::milliseconds retry = kRetryMin;
    bool failed = false;
    // A state of the database that is restored meanwhile may hold the lost lease again.
    while (!deps_.lease.lost()) {
        // What hands it work has ended before this look: nothing can follow.
        const bool last = work.ending.load(std::memory_order_acquire);
        const Status status = work.turn();
        if (status.ok()) {
            if (failed) deps_.notify({Note::Level::kInfo, work.recovered, {}});
            failed = false;
            retry = kRetryMin;
            if (last && work.done()) return;
            if (last) std::this_thread::sleep_for(kLastLook);
            continue;
        }
        if (status.error().code == ErrorCode::kLeaseLost ||
            status.error().advice == Advice::kStop) {
            end(status);
            return;
        }
        if (!failed) {
            deps_.notify({Note::Level::kError, work.failed, {{"error", describe(status.error())}}});
            failed = true;
        }
        if (last && late()) return;
        std::this_thread::sleep_for(retry);
        retry = std::min(retry * 2, kRetryMax);
    }
}

}  // namespace outbox::relay
