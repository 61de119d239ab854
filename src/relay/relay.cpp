#include "relay/relay.h"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "relay/term.h"

namespace outbox::relay {

namespace {

constexpr std::chrono::milliseconds kTermLook{20};
constexpr std::int64_t kLostLeaseGraceMs = 200;
constexpr std::int64_t kMaxOpenWaitMs = 5'000;
// A failover may change the server twice: it recovers, and is replaced. More is a loop.
constexpr int kChangesAtOnce = 3;
constexpr std::int64_t kChangesApartUs = 60'000'000;
constexpr std::int64_t kMaxStandstillUs = std::chrono::microseconds(kMaxStandstill).count();
// Where more passes between two looks the whole process stood still, or its database did.
constexpr std::int64_t kMaxLookUs = 2'000'000;
// A term that takes longer to begin does not keep others from trying.
constexpr std::int64_t kMaxOpeningUs = 600'000'000;

void sleep_ms(const std::stop_token& stop, std::int64_t ms) {
    constexpr std::int64_t kSliceMs = 20;
    for (; ms > 0 && !stop.stop_requested(); ms -= kSliceMs) {
        std::this_thread::sleep_for(std::chrono::milliseconds(std::min(ms, kSliceMs)));
    }
}

}  // namespace

Relay::Relay(spi::Source& source, std::vector<RouteSpec> routes, RelayOptions options,
             const core::Clock& clock, Notify notify)
    : source_(source),
      routes_(std::move(routes)),
      options_(std::move(options)),
      clock_(clock),
      notify_(std::move(notify)),
      lease_(source, clock, options_, lease_view_) {
    for (std::size_t i = 0; i < routes_.size(); ++i) {
        stats_.push_back(std::make_unique<RouteStats>());
    }
}

Relay::~Relay() = default;

Status Relay::run(const std::stop_token& stop, bool reached) {
    bool waiting = false;
    while (!stop.stop_requested()) {
        loop_us_.store(clock_.boot_us(), std::memory_order_relaxed);
        const auto epoch = lease_.try_acquire();
        if (!epoch.ok()) {
            // The next look is at the one that is there now.
            if (epoch.error().code == ErrorCode::kServerChanged) {
                server_changed(stop, epoch.error());
                continue;
            }
            // Never reached so far: more likely a wrong URL than an outage. Who holds a lock there
            // lets go of it.
            reached = reached || epoch.error().code == ErrorCode::kConflict;
            if (epoch.error().advice == Advice::kStop || !reached) return epoch.status();
            database_away(epoch.error());
            sleep_ms(stop, options_.lease_retry_ms);
            continue;
        }
        reached = true;
        if (!*epoch) {
            database_back();
            if (!waiting) notify_({Note::Level::kInfo, "standby", {{"owner", options_.owner}}});
            waiting = true;
            lease_.stand_by(routes_);
            sleep_ms(stop, options_.lease_retry_ms);
            continue;
        }
        // Asked as it tried, which may have been long ago: routes may have changed since.
        if (stop.stop_requested()) {
            lease_.release();
            break;
        }
        waiting = false;
        lease_.stand_down();
        notify_({Note::Level::kInfo,
                 "lease_acquired",
                 {{"epoch", std::to_string(**epoch)}, {"owner", options_.owner}}});
        if (Status status = serve_term(stop, **epoch); !status.ok()) return status;
    }
    lease_.stand_down();
    return {};
}

bool Relay::keep_lease() {
    const auto renewed = lease_.keep();
    if (!renewed.ok()) {
        database_away(renewed.error());
        return lease_view_.valid(clock_.boot_us());
    }
    // That the lease can be had says nothing of the rest, until a term has begun.
    if (*renewed && lease_.answered() && leading_.load(std::memory_order_relaxed)) database_back();
    return *renewed;
}

// What the last owner left may take longer to read than the lease lasts.
std::jthread Relay::keep_lease_meanwhile() {
    return std::jthread([this](const std::stop_token& begun) {
        const std::int64_t until_us = clock_.boot_us() + kMaxOpeningUs;
        while (!begun.stop_requested() && clock_.boot_us() < until_us && keep_lease()) {
            loop_us_.store(clock_.boot_us(), std::memory_order_relaxed);
            std::this_thread::sleep_for(kTermLook);
        }
    });
}

Status Relay::serve_term(const std::stop_token& stop, std::uint64_t epoch) {
    std::jthread keeping = keep_lease_meanwhile();
    const auto begun = [&keeping] {
        keeping.request_stop();
        keeping.join();
    };
    std::vector<RouteStats*> stats;
    stats.reserve(stats_.size());
    for (const auto& one : stats_) stats.push_back(one.get());
    auto opened =
        Term::open({source_, routes_, stats, options_, clock_, lease_view_, notify_, epoch});
    if (!opened.ok()) {
        begun();
        lease_.release();
        if (opened.error().code == ErrorCode::kLeaseLost) {
            lease_lost(epoch);
            return {};
        }
        if (opened.error().code == ErrorCode::kServerChanged) {
            // Counts as a term of ours: nobody else has led since, so that the next one still knows
            // what the last one left.
            if (follows_own(epoch)) epoch_.store(epoch, std::memory_order_relaxed);
            server_changed(stop, opened.error());
            return {};
        }
        if (looks_for_tables(stop, opened.error())) return {};
        if (opened.error().advice == Advice::kStop) return opened.status();
        database_away(opened.error());
        // Longer each time: another may have better luck, and this one is not to flap.
        open_wait_ms_ = std::clamp(open_wait_ms_ * 2, options_.lease_retry_ms, kMaxOpenWaitMs);
        sleep_ms(stop, open_wait_ms_);
        return {};
    }
    // Not before: a database may give the lease, and no more.
    open_wait_ms_ = 0;
    database_back();
    Term& term = **opened;
    tell_ghosts(epoch);
    begun();
    epoch_.store(epoch, std::memory_order_relaxed);
    for (RouteStats* one : stats) one->last_step_us = clock_.boot_us();
    loop_us_.store(clock_.boot_us(), std::memory_order_relaxed);
    still_.assign(stats_.size(), {});
    leading_.store(true, std::memory_order_relaxed);
    has_term_.store(true, std::memory_order_relaxed);
    term.start();
    bool kept = true;
    while (kept && !stop.stop_requested() && !term.over()) {
        const std::int64_t now_us = clock_.boot_us();
        const std::int64_t passed_us = now_us - loop_us_.load(std::memory_order_relaxed);
        loop_us_.store(now_us, std::memory_order_relaxed);
        kept = !stands_still(passed_us) && keep_lease();
        {
            const core::Lock lock(mutex_);
            database_stats_ = term.database_stats();
        }
        std::this_thread::sleep_for(kTermLook);
    }
    leading_.store(false, std::memory_order_relaxed);
    const bool handing_over = stop.stop_requested();
    const bool lost = !handing_over && !term.over();
    if (handing_over) {
        notify_({Note::Level::kInfo, "stopping", {{"epoch", std::to_string(epoch)}}});
    } else if (lost) {
        lease_lost(epoch);
    }
    if (!kept) {
        lease_view_.end();
        end_figures();  // before a thread that hangs is waited for
    }
    term.finish(handing_over ? options_.shutdown_grace_ms : kLostLeaseGraceMs);
    Status error = term.error();
    opened = ErrorInfo{};  // connections and sinks close before another relay may begin
    end_figures();
    has_term_.store(false, std::memory_order_relaxed);
    hangs_.store(false, std::memory_order_relaxed);
    if (kept) lease_.release();
    if (!error.ok() && looks_for_tables(stop, error.error())) return {};
    misses_tables_ = false;
    if (error.ok()) return {};
    if (error.error().code == ErrorCode::kLeaseLost) {
        if (!lost) lease_lost(epoch);
        return {};
    }
    if (error.error().code == ErrorCode::kServerChanged) {
        server_changed(stop, error.error());
        return {};
    }
    return error;
}

// Who leads next has the figures; those of before would raise alarms for ever.
void Relay::end_figures() {
    for (const auto& one : stats_) one->end_term();
    const core::Lock lock(mutex_);
    database_stats_ = {};
}

// Where a route's thread hangs for whatever reason, this relay would keep events from every other
// for as long as it renews its lease.
bool Relay::stands_still(std::int64_t passed_us) {
    for (std::size_t i = 0; i < stats_.size(); ++i) {
        const std::int64_t step_us = stats_[i]->last_step_us.load(std::memory_order_relaxed);
        if (step_us != still_[i].step_us) {
            still_[i] = {.step_us = step_us};
            continue;
        }
        still_[i].for_us += std::min(passed_us, kMaxLookUs);
        if (still_[i].for_us < kMaxStandstillUs) continue;
        hangs_.store(true, std::memory_order_relaxed);
        notify_({Note::Level::kError,
                 "route_hangs",
                 {{"route", routes_[i].name},
                  {"seconds", std::to_string(still_[i].for_us / 1'000'000)}}});
    }
    return hangs();
}

// Whether the lease is asked first, which knows what to do where all our tables are missing: the
// database may be another. Two terms in a row: it is another table.
bool Relay::looks_for_tables(const std::stop_token& stop, const ErrorInfo& error) {
    if (error.code != ErrorCode::kNoSuchTable || misses_tables_) return false;
    misses_tables_ = true;
    server_changed(stop, error);
    return true;
}

void Relay::lease_lost(std::uint64_t epoch) {
    notify_({Note::Level::kWarning, "lease_lost", {{"epoch", std::to_string(epoch)}}});
}

void Relay::server_changed(const std::stop_token& stop, const ErrorInfo& error) {
    notify_({Note::Level::kWarning, "server_changed", {{"error", describe(error)}}});
    const std::int64_t now_us = clock_.boot_us();
    if (now_us - std::exchange(changed_us_, now_us) > kChangesApartUs) changes_ = 0;
    if (++changes_ <= kChangesAtOnce) return;
    changed_wait_ms_ = changes_ == kChangesAtOnce + 1
                           ? options_.lease_retry_ms
                           : std::min(changed_wait_ms_ * 2, kMaxOpenWaitMs);
    sleep_ms(stop, changed_wait_ms_);
}

// Where another relay led meanwhile, what it published and removed would pass for lost.
void Relay::tell_ghosts(std::uint64_t epoch) {
    constexpr std::size_t kMaxNamed = 20;
    const auto ghosts = source_.ghosts();
    if (!ghosts.ok() || ghosts->empty() || !follows_own(epoch)) return;
    std::string ids;
    for (std::size_t i = 0; i < std::min(ghosts->size(), kMaxNamed); ++i) {
        ids += (i == 0 ? "" : ",") + (*ghosts)[i].id;
    }
    notify_({Note::Level::kError,
             "ghosts",
             {{"count", std::to_string(ghosts->size())},
              {"positions", std::to_string(ghosts->front().position) + "-" +
                                std::to_string(ghosts->back().position)},
              {"ids", ids}}});
}

void Relay::database_away(const ErrorInfo& error) {
    {
        const core::Lock lock(mutex_);
        const std::string text = describe(error);
        if (database_error_ == text && !database_.load(std::memory_order_relaxed)) return;
        database_error_ = text;
    }
    database_.store(false, std::memory_order_relaxed);
    notify_({Note::Level::kError, "database_away", {{"error", describe(error)}}});
}

void Relay::database_back() {
    if (database_.exchange(true, std::memory_order_relaxed)) return;
    const core::Lock lock(mutex_);
    if (!database_error_.empty()) notify_({Note::Level::kInfo, "database_back", {}});
    database_error_.clear();
}

Relay::Health Relay::health() const {
    Health health;
    health.leading = leading_.load(std::memory_order_relaxed);
    health.database = database_.load(std::memory_order_relaxed);
    health.epoch = epoch_.load(std::memory_order_relaxed);
    const std::int64_t now_us = clock_.boot_us();
    health.loop_age_us = now_us - loop_us_.load(std::memory_order_relaxed);
    if (has_term_.load(std::memory_order_relaxed)) {
        for (const auto& stats : stats_) {
            health.loop_age_us = std::max(
                health.loop_age_us, now_us - stats->last_step_us.load(std::memory_order_relaxed));
        }
    }
    const core::Lock lock(mutex_);
    health.error = database_error_;
    return health;
}

spi::Recorder::Stats Relay::database_stats() const {
    const core::Lock lock(mutex_);
    return database_stats_;
}

}  // namespace outbox::relay
