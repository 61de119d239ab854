// A live view of an outbox, from its database alone.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <optional>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <utility>

#include "commands.h"
#include "core/mutex.h"
#include "core/redact.h"
#include "registry.h"
#include "report.h"
#include "runtime/exit_codes.h"
#include "terminal.h"
#include "top_view.h"

namespace outbox::app {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr std::size_t kKeysShown = 20;
constexpr milliseconds kSilence{3'000};  // without an answer, after which it is said to be away
constexpr milliseconds kRedraw{1'000};   // how often ages are shown anew
constexpr milliseconds kQuitGrace{200};  // for a look that is under way
constexpr int kRestForOneLook = 4;       // a look that takes a second is followed by four

std::int64_t wall_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

/// The outbox's database, to which it connects again when it was away.
class Outbox {
  public:
    explicit Outbox(SourceConfig config) : config_(std::move(config)) {}

    Result<TopSample> look() {
        auto sample = try_look();
        // Where no relay has run there are no side tables, and the next one makes them.
        if (!sample.ok() || sample->routes.empty()) close();
        return sample;
    }

  private:
    void close() {
        recorder_.reset();
        outbox_ = {};
    }
    Status open() {
        if (recorder_) return {};
        auto outbox = open_outbox(config_);
        if (!outbox.ok()) return outbox.status();
        auto recorder = outbox->source->open_recorder();
        if (!recorder.ok()) return recorder.status();
        outbox_ = std::move(*outbox);
        recorder_ = std::move(*recorder);
        return {};
    }
    Result<TopSample> try_look() {
        if (Status status = open(); !status.ok()) return status;
        TopSample sample;
        sample.source = outbox_.source->table_name();
        const auto stats = recorder_->stats();
        if (!stats.ok()) return stats.status();
        sample.backlog = stats->backlog;
        sample.oldest_age_s = stats->oldest_age_s;
        sample.scheduled = stats->scheduled;
        sample.owed = stats->owed;
        const auto other = outbox_.operations->is_other_table();
        if (!other.ok() && !lacks_rights(other.error())) return other.status();
        sample.remark = table_remark(other.ok() && *other);
        auto leases = outbox_.operations->leases();
        if (!leases.ok()) return leases.status();
        sample.leases = std::move(*leases);
        auto routes = outbox_.operations->routes();
        if (!routes.ok()) return routes.status();
        sample.routes = std::move(*routes);
        const auto standbys = outbox_.operations->standbys();
        if (!standbys.ok()) return standbys.status();
        for (const StandbyInfo& standby : *standbys) sample.standbys.push_back(standby.owner);
        auto keys = outbox_.operations->waiting_events(kKeysShown);
        if (!keys.ok()) return keys.status();
        sample.keys = std::move(*keys);
        if (Status status = look_at_tenants(sample); !status.ok()) return status;
        rates_.measure(Seconds(Clock::now().time_since_epoch()).count(), sample.routes);
        sample.at_us = wall_us();
        return sample;
    }

    // A role of few rights sees the rest.
    Status look_at_tenants(TopSample& sample) {
        const auto paused = outbox_.operations->paused_tenants();
        if (!paused.ok()) return lacks_rights(paused.error()) ? Status() : paused.status();
        const auto backlogs = outbox_.operations->tenant_backlogs();
        if (!backlogs.ok()) return lacks_rights(backlogs.error()) ? Status() : backlogs.status();
        sample.tenants = top_tenants(*paused, *backlogs, config_.default_tenant);
        sample.paused = paused->size();
        sample.tenants_are_more = backlogs->more;
        return {};
    }

    const SourceConfig config_;
    OperatedOutbox outbox_;
    std::unique_ptr<spi::Recorder> recorder_;
    TopRates rates_;
};

/// Looks again and again on a thread of its own, so that a database that does not answer holds up
/// nobody.
class Looker {
  public:
    Looker(SourceConfig config, milliseconds interval)
        : interval_(interval), news_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
        thread_ = std::thread([this, config = std::move(config)] { run(Outbox(config)); });
    }
    Looker(const Looker&) = delete;
    Looker& operator=(const Looker&) = delete;
    /// Ends the process where the database does not let go of the thread.
    ~Looker() {
        core::Lock lock(mutex_);
        stopped_ = true;
        changed_.notify_all();
        const auto ended = [&]() OUTBOX_REQUIRES(mutex_) { return ended_; };
        if (!changed_.wait_for(mutex_, kQuitGrace, ended)) {
            std::cout.flush();
            std::_Exit(runtime::kExitOk);
        }
        lock.unlock();
        thread_.join();
        close(news_);
    }

    /// Readable once there was a look since `take`.
    [[nodiscard]] int descriptor() const { return news_; }
    void take() const {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto taken = ::read(news_, &count, sizeof count);
    }
    /// Waits for a look later than the one of this number. False: none in time.
    bool wait(std::uint64_t number, milliseconds timeout) {
        core::Lock lock(mutex_);
        const auto later = [&]() OUTBOX_REQUIRES(mutex_) { return looks_ > number; };
        return changed_.wait_for(mutex_, timeout, later);
    }
    [[nodiscard]] std::uint64_t looks() {
        const core::Lock lock(mutex_);
        return looks_;
    }
    /// What the last look met; nothing: it was answered.
    [[nodiscard]] std::optional<ErrorInfo> error() {
        const core::Lock lock(mutex_);
        return error_;
    }
    [[nodiscard]] TopState state() {
        const core::Lock lock(mutex_);
        const Clock::time_point now = Clock::now();
        TopState state;
        state.sample = sample_;
        state.now_us = wall_us();
        state.age_s = Seconds(now - answered_at_).count();
        const bool silent = looking_ && now - looked_at_ > kSilence;
        if (!error_ && !silent) return state;
        state.away = error_ ? describe(*error_) : "the database does not answer";
        return state;
    }

  private:
    void run(Outbox outbox) {
        core::Lock lock(mutex_);
        const auto stopped = [&]() OUTBOX_REQUIRES(mutex_) { return stopped_; };
        while (!stopped_) {
            const Clock::time_point began = looked_at_ = Clock::now();
            looking_ = true;
            lock.unlock();
            auto sample = outbox.look();
            lock.lock();
            looking_ = false;
            const Clock::time_point ended = Clock::now();
            if (sample.ok()) {
                sample_ = std::move(*sample);
                answered_at_ = ended;
                error_.reset();
            } else {
                error_ = sample.error();
            }
            ++looks_;
            changed_.notify_all();
            const std::uint64_t one = 1;
            [[maybe_unused]] const auto told = ::write(news_, &one, sizeof one);
            const Clock::time_point next =
                std::max(began + interval_, ended + (ended - began) * kRestForOneLook);
            changed_.wait_until(mutex_, next, stopped);
        }
        ended_ = true;
        changed_.notify_all();
    }

    const milliseconds interval_;
    const int news_;
    std::thread thread_;
    core::Mutex mutex_;
    core::Condition changed_;
    bool stopped_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool ended_ OUTBOX_GUARDED_BY(mutex_) = false;
    bool looking_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::uint64_t looks_ OUTBOX_GUARDED_BY(mutex_) = 0;
    Clock::time_point looked_at_ OUTBOX_GUARDED_BY(mutex_) = Clock::now();
    Clock::time_point answered_at_ OUTBOX_GUARDED_BY(mutex_) = Clock::now();
    TopSample sample_ OUTBOX_GUARDED_BY(mutex_);
    std::optional<ErrorInfo> error_ OUTBOX_GUARDED_BY(mutex_);
};

/// How often it is shown; nothing: until somebody ends it.
using Count = std::optional<std::uint64_t>;

int show_on_screen(const SourceConfig& config, milliseconds interval, Count count) {
    const bool colours = std::getenv("NO_COLOR") == nullptr;
    std::optional<ErrorInfo> refused;
    {
        std::optional<Screen> screen(std::in_place);
        Looker looker(config, interval);
        screen->draw({"asking the database"});
        while (screen->wait(looker.descriptor(), kRedraw) != Screen::Event::kQuit) {
            looker.take();
            const std::uint64_t looks = looker.looks();
            if (looks == 0) continue;
            if (looks == 1) refused = looker.error();
            if (refused) break;
            const Screen::Size size = Screen::size();
            screen->draw(top_screen(looker.state(), size.columns, size.rows, colours));
            if (count && looks >= *count) break;
        }
        screen.reset();  // before the end of the looker, which may be that of the process
    }
    return refused ? report(*refused) : runtime::kExitOk;
}

int print_lines(const SourceConfig& config, milliseconds interval, Count count, bool json) {
    Looker looker(config, interval);
    while (!looker.wait(0, kRedraw)) {
    }
    if (const auto error = looker.error()) return report(*error);
    std::uint64_t seen = 0;
    for (std::uint64_t shown = 0; !count || shown < *count; ++shown) {
        if (looker.wait(seen, interval + kSilence)) seen = looker.looks();
        const TopState state = looker.state();
        if (json) {
            std::cout << top_json(state) << "\n";
        } else {
            for (const std::string& line : top_lines(state)) std::cout << line << "\n";
        }
        if (!std::cout.flush()) return runtime::kExitOk;  // whoever read them has gone
    }
    return runtime::kExitOk;
}

}  // namespace

int run_top(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return report(config.error());
    if (options.flag("once") && options.given("count")) {
        return report(runtime::config_error(options.where("count"), "give --once or --count"));
    }
    Count count;
    if (options.flag("once")) count = 1;
    if (options.given("count")) count = static_cast<std::uint64_t>(options.integer("count"));
    const milliseconds interval = options.duration("interval");
    const bool json = options.flag("json");
    if (json || isatty(STDOUT_FILENO) != 1) return print_lines(*config, interval, count, json);
    return show_on_screen(*config, interval, count);
}

}  // namespace outbox::app
