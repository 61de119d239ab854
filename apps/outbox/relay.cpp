#include "relay/relay.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <functional>
#include <future>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include "admin/listener.h"
#include "admin/pages.h"
#include "admin/server.h"
#include "backend/backends.h"
#include "commands.h"
#include "core/mutex.h"
#include "core/system_clock.h"
#include "core/url.h"
#include "dashboard.h"
#include "desk.h"
#include "errand.h"
#include "hang_watch.h"
#include "look.h"
#include "registry.h"
#include "relay/tenants.h"
#include "runtime/exit_codes.h"
#include "runtime/log.h"
#include "runtime/metrics.h"
#include "runtime/signals.h"
#include "spans.h"

namespace outbox::app {
namespace {

using runtime::LogFields;
using runtime::LogLevel;
using runtime::RelayConfig;

constexpr std::chrono::milliseconds kSignalLook{100};
constexpr std::chrono::milliseconds kStartAgain{500};
constexpr std::chrono::seconds kAfterGrace{5};  // to record the last outcomes and free the lease
constexpr std::chrono::seconds kLastWord{5};    // for the log to take it

std::string owner_name() {
    char host[256] = "unknown";
    gethostname(host, sizeof(host) - 1);
    return std::string(host) + ":" + std::to_string(getpid());
}

relay::RelayOptions options_of(const RelayConfig& config) {
    relay::RelayOptions options = config.relay;
    std::random_device random;
    options.lane_seed = (std::uint64_t{random()} << 32U) | random();
    options.owner = owner_name();
    options.whose = relay::tenant_arguments(config.source.tenants);
    return options;
}

void log_note(const relay::Note& note) {
    const LogLevel level = note.level == relay::Note::Level::kError     ? LogLevel::kError
                           : note.level == relay::Note::Level::kWarning ? LogLevel::kWarn
                                                                        : LogLevel::kInfo;
    runtime::log(level, note.what, note.fields);
}

// A warning for each way that is in clear or unverified, or with require_tls an error.
Status check_transport(const RelayConfig& config) {
    for (const OpenWay& way : open_ways(config)) {
        if (config.source.require_tls) {
            return {ErrorCode::kConfigInvalid, Advice::kStop, way.where + " " + way.weakness};
        }
        runtime::log(LogLevel::kWarn, "transport_insecure",
                     {{"where", way.where}, {"error", way.weakness}});
    }
    return {};
}

// Wrong options of a destination or a format are found now and not at the first event. `--check`
// tells of files among its other findings.
Status check_sinks(const RelayConfig& config) {
    for (const runtime::RouteConfig& route : config.routes) {
        Status status = make_sink(config, route).status();
        if (status.ok() && !config.check) status = check_settings(config, route);
        if (status.ok()) status = make_format(route, config.source.table, nullptr).status();
        if (status.ok()) status = make_topics(route, config.source.table).status();
        if (status.ok()) continue;
        ErrorInfo error = status.error();
        error.message = "route '" + route.name + "': " + error.message;
        return error;
    }
    return {};
}

admin::HealthReport health_of(const relay::Relay& relay) {
    const auto health = relay.health();
    admin::HealthReport report;
    report.database = health.database;
    report.database_error = health.error;
    report.leading = health.leading;
    report.epoch = health.epoch;
    report.loop_age_us = health.loop_age_us;
    for (std::size_t i = 0; i < relay.routes().size(); ++i) {
        if (relay.stats(i).circuit.load(std::memory_order_relaxed) !=
            core::Circuit::State::kClosed) {
            report.open_circuits.push_back(relay.routes()[i].name);
        }
    }
    return report;
}

std::string metrics_of(const relay::Relay& relay, const std::string& source,
                       const relay::RelayOptions& options, const Spans& spans) {
    const auto health = relay.health();
    runtime::MetricsSnapshot snapshot;
    if (spans.stats != nullptr) snapshot.spans = spans.stats();
    snapshot.source = source;
    snapshot.database_stats = relay.database_stats();
    snapshot.leading = health.leading;
    snapshot.database = health.database;
    snapshot.epoch = health.epoch;
    snapshot.max_unrecorded = options.max_unrecorded;
    snapshot.max_in_flight_bytes = options.max_in_flight_bytes;
    for (std::size_t i = 0; i < relay.routes().size(); ++i) {
        snapshot.routes.push_back({relay.routes()[i].name, &relay.stats(i)});
    }
    return runtime::render_metrics(snapshot);
}

// What a relay knows beyond the database: how long its events take, by `LatencyHistogram`.
nlohmann::ordered_json stats_of(const relay::Relay& relay) {
    using relay::LatencyHistogram;
    nlohmann::ordered_json routes = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < relay.routes().size(); ++i) {
        const relay::RouteStats& stats = relay.stats(i);
        nlohmann::ordered_json counts = nlohmann::ordered_json::array();
        for (std::size_t bucket = 0; bucket <= LatencyHistogram::kBoundsMs.size(); ++bucket) {
            counts.push_back(stats.latency.count(bucket));
        }
        routes.push_back({{"name", relay.routes()[i].name},
                          {"latency_counts", counts},
                          {"published", stats.published.load(std::memory_order_relaxed)},
                          {"in_flight", stats.in_flight.load(std::memory_order_relaxed)},
                          {"waiting", stats.waiting.load(std::memory_order_relaxed)}});
    }
    return {{"owner", owner_name()},
            {"leading", relay.health().leading},
            {"latency_bounds_ms", LatencyHistogram::kBoundsMs},
            {"routes", routes}};
}

/// The relay whose figures a page shows, which may outlive it.
class ShownRelay {
  public:
    explicit ShownRelay(const relay::Relay& relay) : relay_(&relay) {}

    void end() {
        const core::Lock lock(mutex_);
        relay_ = nullptr;
    }
    nlohmann::ordered_json stats() {
        const core::Lock lock(mutex_);
        return relay_ != nullptr ? stats_of(*relay_) : nlohmann::ordered_json();
    }

  private:
    core::Mutex mutex_;
    const relay::Relay* relay_ OUTBOX_GUARDED_BY(mutex_);
};

/// What the dashboard is served with.
struct Dashboard {
    std::function<Result<std::string>()> token;  // null: it is not
    BlocksKey blocks_key;
};

// Null without a token.
admin::AdminServer::Site site_of(const RelayConfig& config, const Dashboard& dashboard,
                                 std::shared_ptr<ShownRelay> relay) {
    if (dashboard.token == nullptr) return {};
    SourceConfig source = config.source;
    source.make_side_tables = false;
    source.tenants.clear();  // it shows the table, as `outbox status` does
    return dashboard::make_site(
        {config.admin.host, admin::is_loopback(config.admin.host), dashboard.token},
        make_desk({.source = source,
                   .table_named = true,
                   .blocks_key = dashboard.blocks_key,
                   .relay = [relay = std::move(relay)] { return relay->stats(); }}));
}

// What the relay is made of, found good before anything is stopped for it.
struct Setup {
    RelayConfig config;
    Dashboard dashboard;
    std::unique_ptr<spi::Source> source;
    std::shared_ptr<admin::Listener> listener = {};  // the next one's, too, where they agree
};

// An address that is listened on.
struct Held {
    runtime::AdminConfig config;
    std::shared_ptr<admin::Listener> listener;  // of a relay that runs, or is to be the next
};

Result<std::unique_ptr<admin::Listener>> open_listener(const runtime::AdminConfig& config) {
    auto listener = admin::Listener::open(config.host, config.port);
    if (listener.ok()) return listener;
    ErrorInfo error = listener.error();
    error.message += "; give another address with --admin HOST:PORT, or --admin off";
    return error;
}

// Only an address that was asked for is worth an error. Null: it is off, or is tried at the start.
Result<std::shared_ptr<admin::Listener>> listen(runtime::AdminConfig config,
                                                const std::vector<Held>& held) {
    using Mode = runtime::AdminConfig::Mode;
    std::shared_ptr<admin::Listener> none;
    if (config.mode == Mode::kOff) return none;
    bool has_port = false;
    for (const Held& one : held) {
        if (one.listener == nullptr || one.config.port != config.port) continue;
        if (one.config.host == config.host) return one.listener;
        has_port = true;
    }
    // A port of ours is free on another host only when its relay has ended. That the host is ours,
    // too, shows before.
    if (has_port) config.port = 0;
    auto listener = open_listener(config);
    if (!listener.ok() && config.mode == Mode::kRequired) return listener.error();
    if (!listener.ok() || has_port) return none;
    return std::shared_ptr<admin::Listener>(std::move(*listener));
}

// Null when it is off, or when its address is taken.
std::unique_ptr<admin::AdminServer> start_admin(Setup& setup, const relay::Relay& relay,
                                                const relay::RelayOptions& options,
                                                const Spans& spans, admin::AdminServer::Site site) {
    const runtime::AdminConfig& config = setup.config.admin;
    if (config.mode == runtime::AdminConfig::Mode::kOff) return nullptr;
    const bool local = admin::is_loopback(config.host);
    if (!local) {
        runtime::log(LogLevel::kWarn, "admin_exposed",
                     {{"address", config.host},
                      {"error",
                       "other machines can read health and metrics here; nothing proves "
                       "who asks: let a firewall or a proxy decide"}});
    }
    Status status;
    if (setup.listener == nullptr) {
        auto listener = open_listener(config);
        status = listener.status();
        if (listener.ok()) setup.listener = std::move(*listener);
    }
    if (status.ok()) {
        auto server = admin::AdminServer::start(
            *setup.listener,
            {{"/health/live", [&relay] { return live_page(health_of(relay)); }},
             {"/health/ready", [&relay, local] { return ready_page(health_of(relay), local); }},
             {"/metrics",
              [&relay, &spans, options,
               // Each set of tenants has figures of its own, which pass for no other's.
               source =
                   relay::source_name(setup.source->table_name(), setup.config.source.tenants)] {
                  return admin::HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8",
                                             metrics_of(relay, source, options, spans)};
              }}},
            admin::kRequestTimeout, std::move(site));
        if (server.ok()) {
            runtime::log(LogLevel::kInfo, "admin_listening",
                         {{"address", config.host + ":" + std::to_string((*server)->port())}});
            return *std::move(server);
        }
        status = server.status();
    }
    runtime::log(LogLevel::kWarn, "admin_off", {{"error", status.error().message}});
    return nullptr;
}

// Nothing is lost by it: what is not recorded is sent again. It may be the log that a thread hangs
// in: then nothing is said.
[[noreturn]] void kill_own_process(const runtime::LogFields& why, int code = runtime::kExitFailed) {
    std::thread([code] {
        std::this_thread::sleep_for(kLastWord);
        std::_Exit(code);
    }).detach();
    runtime::log(LogLevel::kWarn, "killed", why);
    std::_Exit(code);
}

Result<Setup> set_up(const runtime::Invocation& invocation, const std::vector<Held>& held = {}) {
    auto config = runtime::make_relay_config(invocation);
    if (!config.ok()) return config.error();
    auto token = token_of(invocation.options);
    if (!token.ok()) return token.error();
    if (*token != nullptr && config->admin.mode == runtime::AdminConfig::Mode::kOff) {
        return runtime::config_error(invocation.options.where("admin-token-file"),
                                     "there is no dashboard where admin is off");
    }
    if (Status sinks = check_sinks(*config); !sinks.ok()) return sinks;
    if (Status spans = check_spans_settings(config->otlp_endpoint); !spans.ok()) return spans;
    if (Status ways = check_transport(*config); !ways.ok()) return ways;
    auto source = make_source(config->source);
    if (!source.ok()) return source.error();
    Setup setup{.config = std::move(*config),
                .dashboard = {*std::move(token), blocks_key_of(invocation.file)},
                .source = std::move(*source)};
    if (setup.config.check) return setup;
    auto listener = listen(setup.config.admin, held);
    if (!listener.ok()) return listener.error();
    setup.listener = std::move(*listener);
    return setup;
}

// Somebody else holds a lock, which passes; what else is wrong is for a person.
bool is_locked(const ErrorInfo& error) {
    return error.code == ErrorCode::kConflict && error.advice != Advice::kStop;
}

// What SIGHUP asks for.
struct Found {
    std::optional<Setup> setup = {};
    bool locked = false;  // it is to be looked for again
};

using Again = std::function<Result<runtime::Invocation>()>;
using Clock = std::chrono::steady_clock;

/// What is there before and after one relay.
struct Life {
    runtime::StopSignals& signals;
    const Again& again;
    std::optional<Setup> next = {};             ///< What SIGHUP asks to go on with.
    bool reached = false;                       ///< A relay before this one had its database.
    bool led = false;                           ///< The last one had a term.
    bool hung_up = false;                       ///< SIGHUP came and was not looked after yet.
    std::optional<Errand<Found>> looking = {};  ///< At what SIGHUP asks for.
    std::optional<Clock::time_point> look_again = {};  ///< Then, as a lock was in the way.
    std::vector<std::future<void>> left_behind = {};   ///< That may wait for a server.
    std::optional<Clock::time_point> until = {};  ///< Then the process ends, whatever it waits for.
};

// At a start. None: a signal came first.
Result<std::optional<Setup>> set_up_unlocked(const runtime::Invocation& invocation, Life& life) {
    // SIGHUP is for the relay that begins.
    const auto asked_to_end = [&life](std::chrono::milliseconds most) {
        const auto signal = life.signals.wait(most);
        if (signal == SIGHUP) life.hung_up = true;
        return signal && *signal != SIGHUP;
    };
    while (true) {
        auto looking = send<Result<Setup>>([&invocation] { return set_up(invocation); });
        while (!looking.is_over()) {
            if (!asked_to_end(kSignalLook)) continue;
            life.left_behind.push_back(std::move(looking.ended));
            return std::optional<Setup>();
        }
        Result<Setup>& setup = **looking.found;
        if (setup.ok()) return std::optional(*std::move(setup));
        const ErrorInfo& error = setup.error();
        if (!is_locked(error)) return error;
        runtime::log(LogLevel::kWarn, "start_waits", {{"error", describe(error)}});
        if (asked_to_end(kStartAgain)) return std::optional<Setup>();
    }
}

// SIGHUP: secrets and options are read anew. What is wrong with them leaves the relay as it is.
Found reload(const Again& again, const std::vector<Held>& held) {
    const auto invocation = again();
    auto setup = invocation.ok() ? set_up(*invocation, held) : Result<Setup>(invocation.error());
    Status status = setup.status();
    if (setup.ok()) {
        // Others a start would settle, or they pass: these are for a person.
        const auto beginning = preview(*setup->source, setup->config);
        const bool refused = !beginning.ok() && (beginning.error().code == ErrorCode::kRouteGone ||
                                                 beginning.error().code == ErrorCode::kNoRights);
        if (!refused) return {.setup = std::move(*setup)};
        status = beginning.status();
    }
    const runtime::LogFields why{{"error", describe(status.error())}};
    if (is_locked(status.error())) {
        runtime::log(LogLevel::kWarn, "reload_waits", why);
        return {.locked = true};
    }
    runtime::log(LogLevel::kError, "reload_refused", why);
    return {};
}

std::vector<Held> held_by(const Setup& now, const Life& life) {
    std::vector<Held> held{{now.config.admin, now.listener}};
    if (life.next) held.push_back({life.next->config.admin, life.next->listener});
    return held;
}

// Whether what SIGHUP asks for is still looked at. Reads the file anew also while the relay stops
// for an earlier one: what the file says last counts.
bool looks_after_sighup(const Setup& now, Life& life) {
    const bool ends = life.until && !life.next;
    if (life.looking && life.looking->is_over()) {
        Found& found = **life.looking->found;
        if (found.setup && !ends) life.next = std::move(found.setup);
        if (found.locked) life.look_again = Clock::now() + kStartAgain;
        life.looking.reset();
    }
    if (life.look_again && Clock::now() >= *life.look_again) life.hung_up = true;
    if (ends) life.hung_up = false;
    if (life.hung_up && !life.looking) {
        life.hung_up = false;
        life.look_again.reset();
        life.looking = send<Found>(
            [&again = life.again, held = held_by(now, life)] { return reload(again, held); });
    }
    return life.looking || life.look_again;
}

// Runs the relay on a thread of its own until a signal or its own end. A thread that waits for a
// server which has stopped answering may take longer than the grace: asked to end, the process then
// ends without it. For one that hangs it ends, too: whoever runs the relay starts it again.
Status run_until_signal(relay::Relay& relay, const Setup& setup, Life& life) {
    const std::chrono::milliseconds grace(setup.config.relay.shutdown_grace_ms);
    Status result;
    std::atomic<bool> ended{false};
    std::jthread thread([&](const std::stop_token& stop) {
        result = relay.run(stop, life.reached);
        ended.store(true);
    });
    std::optional<Clock::time_point>& until = life.until;
    std::optional<Setup>& next = life.next;
    bool looks = false;
    bool told = false;
    HangWatch hang;
    // Once it has ended, what it goes on with is waited for.
    while (!ended.load() || (next && looks)) {
        const auto signal = life.signals.wait(kSignalLook);
        if (signal == SIGHUP) life.hung_up = true;
        looks = looks_after_sighup(setup, life);
        if (until && Clock::now() >= *until) {
            if (ended.load()) break;  // it goes on with what was found before
            if (!next) {
                kill_own_process({{"error", "a server did not answer within the shutdown grace"}});
            }
            if (!std::exchange(told, true)) {
                runtime::log(LogLevel::kWarn, "reload_waits",
                             {{"error", "a server did not answer within the shutdown grace"}});
            }
        }
        if ((!until || next) && hang.is_over(relay)) {
            kill_own_process({{"error", "a thread of the relay hangs"}});
        }
        const bool asked_to_end = signal && *signal != SIGHUP;
        if (asked_to_end && until && !next) kill_own_process({{"signal", std::to_string(*signal)}});
        if (asked_to_end) next.reset();
        if (!asked_to_end && (until || !next)) continue;
        until = Clock::now() + grace + kAfterGrace;
        runtime::log(LogLevel::kInfo, "stop_requested",
                     {{"signal", std::to_string(asked_to_end ? *signal : SIGHUP)}});
        thread.request_stop();
    }
    thread.join();
    if (life.looking) life.left_behind.push_back(std::move(life.looking->ended));
    life.looking.reset();
    return result;
}

// One relay, until it ends or SIGHUP asks for the next one.
Status run_one(Setup& setup, Life& life) {
    const RelayConfig& config = setup.config;
    const std::string table = setup.source->table_name();
    auto routes = routes_of(config, *setup.source);
    if (!routes.ok()) return routes.status();
    relay::RelayOptions options = options_of(config);
    const auto spans = open_spans(config.otlp_endpoint, options.owner);
    if (!spans.ok()) return spans.status();
    options.spans = spans->queue;
    const core::SystemClock clock;
    relay::Relay relay(*setup.source, std::move(*routes), options, clock, log_note);
    const auto shown = std::make_shared<ShownRelay>(relay);  // the page, which may outlive us, too
    auto admin =
        start_admin(setup, relay, options, *spans, site_of(config, setup.dashboard, shown));
    for (const runtime::RouteConfig& route : config.routes) {
        runtime::log(LogLevel::kInfo, "route", {{"route", route.name}, {"to", redact(route.to)}});
    }
    runtime::log(LogLevel::kInfo, "started",
                 {{"version", OUTBOX_VERSION}, {"source", table}, {"owner", options.owner}});
    const Status status = run_until_signal(relay, setup, life);
    life.led = relay.health().epoch != 0;
    // A page may wait for a session that does not answer; what comes next does not.
    if (admin != nullptr) life.left_behind.push_back(admin::AdminServer::let_go(std::move(admin)));
    shown->end();
    return status;
}

// One relay after the other. The exit code. What SIGHUP asked for may turn out to be impossible
// only as it begins: a right is gone, or a route that is gone by the file has got an event since
// the look. Then the last one that could begin goes on.
int run_all(Setup first, Life& life) {
    std::optional<Setup> before;  // that led, or the first
    for (std::optional<Setup> setup = std::move(first); setup;) {
        life.next.reset();
        life.until.reset();
        const Status status = run_one(*setup, life);
        const bool asked_to_end = life.until && !life.next;
        if (!status.ok() && before && !life.led && !asked_to_end) {
            runtime::log(LogLevel::kError, "reload_refused", {{"error", describe(status.error())}});
            setup = std::exchange(before, std::nullopt);
            runtime::configure_logs(setup->config.log_level, setup->config.log_format);
            continue;
        }
        if (!status.ok()) {
            runtime::log(LogLevel::kError, "stopped", {{"error", describe(status.error())}});
            const int code = runtime::exit_code_of(status.error().code);
            return code == runtime::kExitFailed ? runtime::kExitStopped : code;
        }
        if (!before || life.led) before = std::move(setup);
        setup = std::exchange(life.next, std::nullopt);
        if (!setup) break;
        if (before->listener != setup->listener) before->listener.reset();
        std::erase_if(life.left_behind, [](const std::future<void>& one) {
            return one.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        });
        runtime::configure_logs(setup->config.log_level, setup->config.log_format);
        life.reached = true;
        runtime::log(LogLevel::kInfo, "reloaded");
    }
    return runtime::kExitOk;
}

// What waits for a server which has stopped answering is left behind.
void leave_waiting(Life& life, int code) {
    auto most = std::chrono::duration_cast<std::chrono::milliseconds>(kAfterGrace);
    if (life.until) {
        most = std::clamp(
            std::chrono::duration_cast<std::chrono::milliseconds>(*life.until - Clock::now()),
            std::chrono::milliseconds(0), most);
    }
    if (await_pages(life.left_behind, life.signals, most)) return;
    kill_own_process({{"error", "a database has not answered what it was asked"}},
                     code == runtime::kExitOk ? runtime::kExitFailed : code);
}

}  // namespace

int run_relay(const runtime::Invocation& invocation, const Again& again) {
    const auto config = runtime::make_relay_config(invocation);
    if (!config.ok()) return report(config.error());
    runtime::configure_logs(config->log_level, config->log_format);
    runtime::StopSignals signals;
    if (config->check) {
        const auto looked = set_up(invocation);
        if (!looked.ok()) return report(looked.error());
        const auto findings = look_around(*looked->source, looked->config);
        return findings.ok() ? print_findings(*findings) : report(findings.error());
    }
    Life life{.signals = signals, .again = again};
    auto started = set_up_unlocked(invocation, life);
    if (!started.ok()) return report(started.error());
    if (!*started) {
        leave_waiting(life, runtime::kExitOk);
        runtime::log(LogLevel::kInfo, "stopped");
        return runtime::kExitOk;
    }
    const int code = run_all(**std::move(started), life);
    leave_waiting(life, code);
    if (code == runtime::kExitOk) runtime::log(LogLevel::kInfo, "stopped");
    return code;
}

}  // namespace outbox::app
