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

#include "admin/pages.h"
#include "admin/server.h"
#include "backend/backends.h"
#include "commands.h"
#include "core/mutex.h"
#include "core/system_clock.h"
#include "core/url.h"
#include "dashboard.h"
#include "desk.h"
#include "look.h"
#include "registry.h"
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

std::string metrics_of(const relay::Relay& relay, const std::string& table,
                       const relay::RelayOptions& options, const Spans& spans) {
    const auto health = relay.health();
    runtime::MetricsSnapshot snapshot;
    if (spans.stats != nullptr) snapshot.spans = spans.stats();
    snapshot.source = table;
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
    return dashboard::make_site(
        {config.admin.host, admin::is_loopback(config.admin.host), dashboard.token},
        make_desk({.source = source,
                   .table_named = true,
                   .blocks_key = dashboard.blocks_key,
                   .relay = [relay = std::move(relay)] { return relay->stats(); }}));
}

// Null when it is off, or when the default address is taken: only an address that was asked for
// is worth an error.
Result<std::unique_ptr<admin::AdminServer>> start_admin(
    const runtime::AdminConfig& config, const relay::Relay& relay, const std::string& table,
    const relay::RelayOptions& options, const Spans& spans, admin::AdminServer::Site site) {
    using Mode = runtime::AdminConfig::Mode;
    if (config.mode == Mode::kOff) return std::unique_ptr<admin::AdminServer>();
    const bool local = admin::is_loopback(config.host);
    if (!local) {
        runtime::log(LogLevel::kWarn, "admin_exposed",
                     {{"address", config.host},
                      {"error",
                       "other machines can read health and metrics here; nothing proves "
                       "who asks: let a firewall or a proxy decide"}});
    }
    auto server = admin::AdminServer::start(
        config.host, config.port,
        {{"/health/live", [&relay] { return live_page(health_of(relay)); }},
         {"/health/ready", [&relay, local] { return ready_page(health_of(relay), local); }},
         {"/metrics",
          [&relay, &spans, table, options] {
              return admin::HttpResponse{200, "text/plain; version=0.0.4; charset=utf-8",
                                         metrics_of(relay, table, options, spans)};
          }}},
        admin::kRequestTimeout, std::move(site));
    if (server.ok()) {
        runtime::log(LogLevel::kInfo, "admin_listening",
                     {{"address", config.host + ":" + std::to_string((*server)->port())}});
        return server;
    }
    ErrorInfo error = server.error();
    error.message += "; give another address with --admin HOST:PORT, or --admin off";
    if (config.mode == Mode::kRequired) return error;
    runtime::log(LogLevel::kWarn, "admin_off", {{"error", error.message}});
    return std::unique_ptr<admin::AdminServer>();
}

// Nothing is lost by it: what is not recorded is sent again.
[[noreturn]] void kill_own_process(const runtime::LogFields& why, int code = runtime::kExitFailed) {
    runtime::log(LogLevel::kWarn, "killed", why);
    std::_Exit(code);
}

// What the relay is made of, found good before anything is stopped for it.
struct Setup {
    RelayConfig config;
    Dashboard dashboard;
    std::unique_ptr<spi::Source> source;
};

Result<Setup> set_up(const runtime::Invocation& invocation) {
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
    return Setup{std::move(*config),
                 {*std::move(token), blocks_key_of(invocation.file)},
                 std::move(*source)};
}

// At a start: a lock that somebody else holds passes, what else is wrong is for a person. None: a
// signal came first.
Result<std::optional<Setup>> set_up_unlocked(const runtime::Invocation& invocation,
                                             runtime::StopSignals& signals) {
    while (true) {
        auto setup = set_up(invocation);
        if (setup.ok()) return std::optional(*std::move(setup));
        const ErrorInfo& error = setup.error();
        if (error.code != ErrorCode::kConflict || error.advice == Advice::kStop) return error;
        runtime::log(LogLevel::kWarn, "start_waits", {{"error", describe(error)}});
        if (signals.wait(kStartAgain)) return std::optional<Setup>();
    }
}

using Again = std::function<Result<runtime::Invocation>()>;
using Clock = std::chrono::steady_clock;

/// What is there before and after one relay.
struct Life {
    runtime::StopSignals& signals;
    const Again& again;
    std::optional<Setup> next = {};               ///< What SIGHUP asks to go on with.
    std::vector<std::future<void>> pages = {};    ///< Of relays that have ended.
    std::optional<Clock::time_point> until = {};  ///< Then the process ends, whatever it waits for.
};

// SIGHUP: secrets and options are read anew. What is wrong with them leaves the relay as it is.
std::optional<Setup> reload(const Again& again) {
    const auto invocation = again();
    auto setup = invocation.ok() ? set_up(*invocation) : Result<Setup>(invocation.error());
    Status status = setup.status();
    if (setup.ok()) {
        // Others a start would settle, or they pass: this one is for a person.
        const auto beginning = preview(*setup->source, setup->config);
        if (beginning.ok() || beginning.error().code != ErrorCode::kRouteGone) {
            return std::move(*setup);
        }
        status = beginning.status();
    }
    runtime::log(LogLevel::kError, "reload_refused", {{"error", describe(status.error())}});
    return std::nullopt;
}

// Runs the relay on a thread of its own until a signal or its own end. A thread that waits for a
// server which has stopped answering may take longer than the grace: then the process ends without.
Status run_until_signal(relay::Relay& relay, std::chrono::milliseconds grace, Life& life) {
    Status result;
    std::atomic<bool> ended{false};
    std::jthread thread([&](const std::stop_token& stop) {
        result = relay.run(stop);
        ended.store(true);
    });
    std::optional<Clock::time_point>& until = life.until;
    std::optional<Setup>& next = life.next;
    while (!ended.load()) {
        const auto signal = life.signals.wait(kSignalLook);
        if (until && Clock::now() >= *until) {
            kill_own_process({{"error", "a server did not answer within the shutdown grace"}});
        }
        if (!signal) continue;
        if (*signal == SIGHUP) {
            if (!until) next = reload(life.again);
            if (until || !next) continue;
        }
        // Asked to end while it was stopping to begin anew.
        if (until && next && *signal != SIGHUP) {
            next.reset();
            continue;
        }
        if (until) kill_own_process({{"signal", std::to_string(*signal)}});
        until = Clock::now() + grace + kAfterGrace;
        runtime::log(LogLevel::kInfo, "stop_requested", {{"signal", std::to_string(*signal)}});
        thread.request_stop();
    }
    thread.join();
    return result;
}

// One relay, until it ends or SIGHUP asks for the next one.
Status run_one(const Setup& setup, Life& life) {
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
    auto admin = start_admin(config.admin, relay, table, options, *spans,
                             site_of(config, setup.dashboard, shown));
    if (!admin.ok()) return admin.status();
    for (const runtime::RouteConfig& route : config.routes) {
        runtime::log(LogLevel::kInfo, "route", {{"route", route.name}, {"to", redact(route.to)}});
    }
    runtime::log(LogLevel::kInfo, "started",
                 {{"version", OUTBOX_VERSION}, {"source", table}, {"owner", options.owner}});
    const Status status =
        run_until_signal(relay, std::chrono::milliseconds(options.shutdown_grace_ms), life);
    // A page may wait for a session that does not answer; what comes next does not.
    if (*admin != nullptr) life.pages.push_back(admin::AdminServer::let_go(*std::move(admin)));
    shown->end();
    return status;
}

// One relay after the other. The exit code.
int run_all(Setup first, Life& life) {
    for (std::optional<Setup> setup = std::move(first); setup;) {
        life.next.reset();
        life.until.reset();
        const Status status = run_one(*setup, life);
        if (!status.ok()) {
            runtime::log(LogLevel::kError, "stopped", {{"error", describe(status.error())}});
            const int code = runtime::exit_code_of(status.error().code);
            return code == runtime::kExitFailed ? runtime::kExitStopped : code;
        }
        setup = std::exchange(life.next, std::nullopt);
        if (!setup) break;
        std::erase_if(life.pages, [](const std::future<void>& page) {
            return page.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
        });
        runtime::configure_logs(setup->config.log_level, setup->config.log_format);
        runtime::log(LogLevel::kInfo, "reloaded");
    }
    return runtime::kExitOk;
}

// A page that waits for a server which has stopped answering is left behind.
void leave_pages(Life& life, int code) {
    auto most = std::chrono::duration_cast<std::chrono::milliseconds>(kAfterGrace);
    if (life.until) {
        most = std::clamp(
            std::chrono::duration_cast<std::chrono::milliseconds>(*life.until - Clock::now()),
            std::chrono::milliseconds(0), most);
    }
    if (await_pages(life.pages, life.signals, most)) return;
    kill_own_process({{"error", "a database has not answered what the dashboard asked"}},
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
    auto started = set_up_unlocked(invocation, signals);
    if (!started.ok()) return report(started.error());
    if (!*started) {
        runtime::log(LogLevel::kInfo, "stopped");
        return runtime::kExitOk;
    }
    Life life{.signals = signals, .again = again};
    const int code = run_all(**std::move(started), life);
    leave_pages(life, code);
    if (code == runtime::kExitOk) runtime::log(LogLevel::kInfo, "stopped");
    return code;
}

}  // namespace outbox::app
