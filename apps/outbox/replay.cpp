// Sends events of the past again, in a run that can be gone on with.
#include <algorithm>
#include <atomic>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <future>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <thread>
#include <unistd.h>
#include <utility>

#include "codec/replay_encoder.h"
#include "commands.h"
#include "consumer/operate.h"
#include "core/redact.h"
#include "core/system_clock.h"
#include "core/utf8.h"
#include "look.h"
#include "net/uuid5.h"
#include "print.h"
#include "registry.h"
#include "replay/pace.h"
#include "replay/runner.h"
#include "replay/runs.h"
#include "replays.h"
#include "runtime/exit_codes.h"
#include "runtime/log.h"
#include "runtime/signals.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;
using std::chrono::milliseconds;

// Fewer can be sent again without being asked, where a filter was given that leaves out nothing.
constexpr std::int64_t kFewEvents = 1'000;
constexpr std::size_t kMaxKeyBytes = 4'096;
constexpr milliseconds kShowEvery{250};
constexpr milliseconds kTakeEvery{200};
constexpr milliseconds kSignalLook{100};
constexpr milliseconds kAfterGrace{5'000};  // to write down how far it is
constexpr std::int64_t kPollMs = 50;        // of a run that waits for its pace

/// Where a run goes, and what it is run with.
struct Outfit {
    runtime::ReplayConfig config;
    std::unique_ptr<spi::Source> source;  // tells how rows look
    std::unique_ptr<replay::History> history;

    [[nodiscard]] runtime::RouteConfig& route() { return config.relay.routes.front(); }
    [[nodiscard]] const runtime::RouteConfig& route() const { return config.relay.routes.front(); }
};

Result<std::int64_t> time_option(const runtime::OptionValues& options, const char* name,
                                 std::int64_t now_us) {
    if (!options.given(name)) return std::int64_t{0};
    auto time = runtime::parse_time(options.text(name), now_us);
    if (!time.ok()) return runtime::config_error("--" + std::string(name), time.error().message);
    // 0 is no time here.
    if (*time <= 0) return runtime::config_error("--" + std::string(name), "it is before 1970");
    return time;
}

Result<replay::Selection> selection_of(const runtime::OptionValues& options) {
    const std::int64_t now_us = core::SystemClock().wall_us();
    replay::Selection selection;
    const auto since = time_option(options, "since", now_us);
    if (!since.ok()) return since.error();
    const auto until = time_option(options, "until", now_us);
    if (!until.ok()) return until.error();
    if (*until != 0 && *since >= *until) {
        return runtime::config_error("--until", "it is not later than --since");
    }
    selection.since_us = *since;
    selection.until_us = *until;
    selection.key = options.text("key");
    selection.event_type = options.text("event-type");
    selection.tenants = options.list("tenant");
    selection.dead = options.flag("dead-letters");
    if (selection.key.size() > kMaxKeyBytes) {
        return runtime::config_error("--key",
                                     "it has more than " + std::to_string(kMaxKeyBytes) + " bytes");
    }
    return selection;
}

// "500/s" or "500"
Result<std::int64_t> rate_of(const std::string& text) {
    std::int64_t rate = 0;
    const char* const end = text.data() + text.size();
    const auto parsed = std::from_chars(text.data(), end, rate);
    const std::string_view rest(parsed.ptr, static_cast<std::size_t>(end - parsed.ptr));
    if (parsed.ec != std::errc() || (!rest.empty() && rest != "/s") || rate < 1 ||
        rate > replay::kMaxRate) {
        return runtime::config_error("--rate", "'" + text +
                                                   "' is no rate; give events in a second from 1/s "
                                                   "to " +
                                                   std::to_string(replay::kMaxRate) + "/s");
    }
    return rate;
}

Result<Outfit> fit_out(const runtime::Invocation& invocation, const std::string& route) {
    auto config = runtime::make_replay_config(invocation, route);
    if (!config.ok()) return config.error();
    const runtime::RouteConfig& leads = config->relay.routes.front();
    Status status = make_sink(config->relay, leads).status();
    if (status.ok()) status = check_settings(config->relay, leads);
    if (status.ok()) status = make_format(leads, config->relay.source.table, nullptr).status();
    for (const OpenWay& way : open_ways(config->relay)) {
        if (!status.ok() || !config->relay.source.require_tls) break;
        status = {ErrorCode::kConfigInvalid, Advice::kStop, way.where + " " + way.weakness};
    }
    if (!status.ok()) {
        ErrorInfo error = status.error();
        error.message = "route '" + leads.name + "': " + error.message;
        return error;
    }
    auto source = make_source(config->relay.source);
    if (!source.ok()) return source.error();
    auto history = open_history(config->relay.source);
    if (!history.ok()) return history.error();
    return Outfit{std::move(*config), std::move(*source), std::move(*history)};
}

/// A consumer's inbox that has forgotten what is from before its floor.
struct Floor {
    std::string database;
    std::string consumer;
    std::int64_t floor_us = 0;
};

Result<std::vector<Floor>> floors_of(const runtime::Invocation& invocation,
                                     const SourceConfig& source) {
    std::vector<Floor> floors;
    for (const std::string& url : invocation.options.list("consumer-db")) {
        SourceConfig place = source;
        place.url = url;
        const auto operations = open_consumer_operations(place);
        if (!operations.ok()) return operations.error();
        const auto there = (*operations)->has_tables();
        if (!there.ok()) return there.error();
        if (!*there) {
            return ErrorInfo{ErrorCode::kNoSuchTable, Advice::kStop, "",
                             "the database " + redact(url) + " has no consumer's tables"};
        }
        const auto consumers = (*operations)->consumers();
        if (!consumers.ok()) return consumers.error();
        for (const ConsumerInfo& consumer : *consumers) {
            floors.push_back({redact(url), consumer.name, consumer.floor_us});
        }
    }
    if (floors.size() > replay::History::kMaxFloors) {
        return runtime::config_error("--consumer-db",
                                     "these databases have more than " +
                                         std::to_string(replay::History::kMaxFloors) +
                                         " consumers; give fewer");
    }
    return floors;
}

/// A line on stderr that is written again and again, where that is a terminal.
class Progress {
  public:
    void show(const std::string& text) {
        const auto now = std::chrono::steady_clock::now();
        if (!is_terminal_ || now - shown_ < kShowEvery) return;
        shown_ = now;
        std::cerr << "\r" << text << "\x1b[K" << std::flush;
        is_there_ = true;
    }
    void clear() {
        if (is_there_) std::cerr << "\r\x1b[K" << std::flush;
        is_there_ = false;
    }

  private:
    const bool is_terminal_ = isatty(STDERR_FILENO) == 1;
    std::atomic<bool> is_there_{false};  // may be cleared by another thread
    std::chrono::steady_clock::time_point shown_;
};

Result<replay::Estimate> estimate_of(replay::History& history, const std::vector<Floor>& floors) {
    std::vector<std::int64_t> times;
    for (const Floor& floor : floors) times.push_back(floor.floor_us);
    Progress progress;
    auto estimate = history.estimate(times, [&](std::int64_t seen) {
        progress.show("looking: " + with_commas(seen) + " events");
    });
    progress.clear();
    return estimate;
}

ordered_json estimate_json(const replay::Estimate& estimate, const std::vector<Floor>& floors,
                           const replay::Run& run) {
    ordered_json consumers = ordered_json::array();
    for (std::size_t i = 0; i < floors.size(); ++i) {
        consumers.push_back({{"database", floors[i].database},
                             {"consumer", floors[i].consumer},
                             {"floor", text_or_null(time_text(floors[i].floor_us))},
                             {"quarantined", run.as_new ? 0 : estimate.before[i]}});
    }
    return {{"events", estimate.events},
            {"of", estimate.looked_at},
            {"bytes", estimate.bytes},
            {"left_out", estimate.left_out},
            {"first_at", text_or_null(time_text(estimate.first_us))},
            {"last_at", text_or_null(time_text(estimate.last_us))},
            {"seconds", estimate.events / run.rate},
            {"consumers", consumers}};
}

std::string left_out_text(const replay::Estimate& estimate) {
    return with_commas(estimate.left_out) +
           (estimate.left_out == replay::kMostLeftOut ? " or more" : "") +
           ", behind the first event that the route has not finished: published or not, they can "
           "be "
           "replayed once it is (outbox status says what waits)";
}

void print_estimate(const replay::Estimate& estimate, const std::vector<Floor>& floors,
                    const replay::Run& run, const Outfit& outfit) {
    std::cout << "replay of " << to_printable(describe(run.selection)) << "\n";
    print_field("events", with_commas(estimate.events) + " of " + with_commas(estimate.looked_at) +
                              ", about " + with_commas(estimate.bytes) + " bytes");
    if (estimate.left_out > 0) {
        print_field("left out", left_out_text(estimate));
    }
    if (estimate.first_us != 0) {
        print_field("occurred",
                    time_text(estimate.first_us) + " to " + time_text(estimate.last_us));
    }
    print_field("to", redact(outfit.route().to) +
                          (outfit.config.other ? ", which is not the route's own" : ""));
    print_field("pace",
                with_commas(run.rate) + "/s: about " +
                    age_text(static_cast<double>(estimate.events) / static_cast<double>(run.rate)));
    print_field("as", run.as_new ? "new events, which inboxes apply once more"
                                 : "what they are: inboxes drop what they have applied");
    for (std::size_t i = 0; i < floors.size(); ++i) {
        const std::string before =
            floors[i].floor_us == 0 || run.as_new || estimate.before[i] == 0
                ? "none is from before the floor of its inbox"
                : with_commas(estimate.before[i]) + " are from before the floor of its inbox, " +
                      time_text(floors[i].floor_us) + ", and would be quarantined";
        print_field("consumer", floors[i].consumer + ": " + before);
    }
}

// Nobody sends all of the past again by mistake.
Status confirm(const replay::Estimate& estimate, const replay::Run& run, bool yes) {
    const bool everything = run.selection.is_everything();
    if (yes || (!everything && estimate.events <= kFewEvents)) return {};
    const std::string all = (everything ? "this is all of the " : "this is of the ") +
                            std::string(run.selection.dead ? "dead letters" : "history") +
                            " of route " + run.selection.route + ": " +
                            with_commas(estimate.events) + " events";
    if (isatty(STDIN_FILENO) == 0 || isatty(STDERR_FILENO) == 0) {
        return runtime::config_error("outbox replay", all +
                                                          "; give --yes to send them, or a filter "
                                                          "such as --since 2h or --key KEY");
    }
    std::cerr << all << ". Type their number to send them: " << std::flush;
    std::string line;
    std::getline(std::cin, line);
    std::erase(line, ',');
    if (line == std::to_string(estimate.events)) return {};
    return {ErrorCode::kConflict, Advice::kStop, "that is not their number; nothing was sent"};
}

// A new id is a text, and a record of Debezium's has its id in the type of the id's column.
Status check_new_ids(const Outfit& outfit, const replay::Run& run) {
    if (!run.as_new || outfit.route().format != "debezium") return {};
    const spi::RowShape shape = outfit.source->shape();
    const auto id = shape.fields.find("id");
    for (const spi::ColumnShape& column : shape.columns) {
        if (id == shape.fields.end() || column.name != id->second) continue;
        if (!column.type.starts_with("int")) return {};
        return runtime::config_error(
            "--as-new", "the ids of " + shape.schema + "." + shape.table + " are " + column.type +
                            ", as are those in records of the format debezium, and new ones would "
                            "be no numbers; leave --as-new out, or lead the run elsewhere by a "
                            "route of another format");
    }
    return {};
}

/// What the destination is known to call itself, and whether it may be sent to: `advice` where not.
Result<std::string> meet(const Outfit& outfit, const std::string& known,
                         const std::string& advice) {
    const runtime::RouteConfig& route = outfit.route();
    if (Status there = check_broker(outfit.config.relay, route); !there.ok()) {
        return there.error();
    }
    const auto sink = make_sink(outfit.config.relay, route);
    if (!sink.ok()) return sink.error();
    auto met = (*sink)->destination();
    if (!met.ok() || known.empty() || *met == known) return met;
    return ErrorInfo{ErrorCode::kDestinationChanged,
                     Advice::kStop,
                     {},
                     "route '" + route.name + "' led to " + known + ", and " + redact(route.to) +
                         " is " + *met + ". " + advice};
}

// What is left of a run goes as what was sent of it: to the same topics, in the same format.
Status keep_as_begun(const replay::Run& run, const runtime::OptionValues& options,
                     runtime::RouteConfig& route) {
    if (run.format.empty()) return {};
    const auto begun = [&](const char* option, const std::string& value) {
        return runtime::config_error(options.where(option),
                                     "the run began with '" + value +
                                         "', and goes on as it began; outbox replay cancel ends "
                                         "it, and a new run sends the rest in another way");
    };
    if (options.origin("topic-template") == runtime::Origin::kArgument &&
        options.text("topic-template") != run.topic_template) {
        return begun("topic-template", run.topic_template);
    }
    // Its settings are the file's.
    if (route.format != run.format) return begun("format", run.format);
    route.topic_template = run.topic_template;
    return {};
}

std::string runner_name() {
    char host[256] = "unknown";
    gethostname(host, sizeof(host) - 1);
    return std::string(host) + ":" + std::to_string(getpid());
}

// Notes of the pipeline as the relay logs them; a run has no dead letters.
relay::Notify make_notify(std::size_t& refused) {
    return [&refused](const relay::Note& note) {
        const bool refusal = note.what == "dead_letter";
        if (refusal && ++refused > replay::kMaxRefusals) return;
        const runtime::LogLevel level =
            note.level == relay::Note::Level::kError     ? runtime::LogLevel::kError
            : note.level == relay::Note::Level::kWarning ? runtime::LogLevel::kWarn
                                                         : runtime::LogLevel::kInfo;
        runtime::log(level, refusal ? "replay_refused" : note.what, note.fields);
    };
}

// Repeats are not dropped for those that the relay has sent: a run is a producer of its own.
std::string producer_of(const replay::Run& run) {
    return std::string(kRunProducer) + run.id;
}

Result<relay::RouteSpec> spec_of(const Outfit& outfit, const replay::Run& run) {
    runtime::RelayConfig config = outfit.config.relay;
    for (auto& [name, value] : config.routes.front().sink_options) {
        if (name.ends_with(".producer")) value += "/" + run.id;
    }
    auto routes = routes_of(config, *outfit.source);
    if (!routes.ok()) return routes.error();
    relay::RouteSpec spec = std::move(routes->front());
    spec.predicate = {};  // the history has asked it
    spec.on_dead_letter = relay::OnDeadLetter::kContinue;
    spec.make_encoder =
        codec::as_replay(std::move(spec.make_encoder), {run.id, run.as_new, run.started_us});
    return spec;
}

relay::RelayOptions options_of(const runtime::RelayConfig& config) {
    relay::RelayOptions options = config.relay;
    options.owner = runner_name();
    std::random_device random;
    options.lane_seed = (std::uint64_t{random()} << 32U) | random();
    options.poll_idle_ms = kPollMs;
    options.poll_busy_ms = 1;
    options.unmatched = relay::Unmatched::kFinish;
    return options;
}

void report_refusals(const replay::Run& run, bool json, const ordered_json& estimate) {
    if (!json) {
        print_run(run);
        return;
    }
    ordered_json out = json_of(run);
    if (!estimate.is_null()) out["estimate"] = estimate;
    print_json(out);
}

// Where events go to standard output the report does not: on stderr it breaks no line of theirs.
void leave_stdout_to_events(const Outfit& outfit) {
    if (outfit.route().to.starts_with("stdout:")) std::cout.rdbuf(std::cerr.rdbuf());
}

// Has a signal set `stop`, and waits for the work's end. Work that waits for a server which has
// stopped answering may take longer than the grace: then, as on a second signal, the process ends
// without, and another one goes on with the run.
void await(const std::future<void>& work, std::atomic<bool>& stop, runtime::StopSignals& signals,
           milliseconds grace, Progress& progress, const replay::Run& run) {
    using Clock = std::chrono::steady_clock;
    std::optional<Clock::time_point> until;
    while (work.wait_for(kSignalLook) != std::future_status::ready) {
        const auto signal = signals.wait(milliseconds(0));
        if (until && (signal || Clock::now() >= *until)) {
            progress.clear();
            const bool asked = signal.has_value();
            runtime::log(runtime::LogLevel::kWarn, "killed",
                         {{asked ? "signal" : "error",
                           asked ? std::to_string(*signal)
                                 : "a server did not answer within the shutdown grace"}});
            std::cerr << "outbox: ended; `outbox replay resume " << run.id << "` goes on\n";
            std::_Exit(runtime::kExitFailed);
        }
        if (!signal) continue;
        until = Clock::now() + grace + kAfterGrace;
        stop.store(true);
    }
}

// Runs it until it is over, or a signal comes.
int carry_out(const Outfit& outfit, replay::Runs& runs, replay::Run run, std::uint64_t epoch,
              bool json, const ordered_json& estimate) {
    runtime::StopSignals signals;
    auto spec = spec_of(outfit, run);
    if (!spec.ok()) return report(spec.error());
    auto sink = spec->make_sink(producer_of(run));
    if (!sink.ok()) return report(sink.error());
    const core::SystemClock clock;
    std::size_t refused = 0;
    const relay::Notify notify = make_notify(refused);
    Progress progress;
    replay::Runner runner({*outfit.history, runs, clock, notify}, std::move(*spec),
                          options_of(outfit.config.relay), !outfit.config.other);
    const auto told = [&](const replay::Runner::Look& look) {
        progress.show(with_commas(look.sent) + " of " + with_commas(run.expected) + " sent, " +
                      with_commas(static_cast<std::int64_t>(look.rate_per_s)) + "/s" +
                      (look.refused > 0 ? ", " + with_commas(look.refused) + " refused" : "") +
                      (look.waits    ? "; the destination does not take events now"
                       : look.slowed ? "; slowed down for live events"
                                     : ""));
    };
    using Ending = replay::Runner::Ending;
    Result<Ending> ending = Ending::kStopped;
    std::atomic<bool> stop{false};
    const replay::Run begun = run;
    const auto work = std::async(std::launch::async, [&] {
        ending = runner.run(run, epoch, std::move(*sink), [&] { return stop.load(); }, told);
        if (!ending.ok()) return;
        if (const auto now = runs.find(run.id); now.ok() && *now) run = **now;
    });
    await(work, stop, signals, milliseconds(outfit.config.relay.relay.shutdown_grace_ms), progress,
          begun);
    progress.clear();
    if (!ending.ok()) return report(ending.error());
    report_refusals(run, json, estimate);
    if (*ending == Ending::kStopped) {
        std::cerr << "outbox: stopped; `outbox replay resume " << run.id << "` goes on\n";
    }
    return *ending == Ending::kFinished && run.refused == 0 ? runtime::kExitOk
                                                            : runtime::kExitFailed;
}

ErrorInfo held_by_other(const replay::Run& run) {
    return {ErrorCode::kConflict,
            Advice::kStop,
            {},
            "run " + run.id + " is run by " + run.runner +
                ", which has told so lately; `outbox replay cancel` ends it"};
}

// One that was killed is let go when its time is over, or it has been silent for as long, whatever
// the database's clock does; one that runs says so before.
Result<std::uint64_t> take_over(replay::Runs& runs, const replay::Run& wanted,
                                const std::string& reason) {
    replay::Run run = wanted;
    const std::int64_t last_word_us = run.updated_us;
    const auto silent_at = std::chrono::steady_clock::now() + milliseconds(replay::kRunLeaseMs);
    Progress progress;
    while (true) {
        if (run.state != "running" && run.state != "failed") {
            return ErrorInfo{ErrorCode::kConflict,
                             Advice::kStop,
                             {},
                             "run " + run.id + " is over: it is " + run.state +
                                 ". A new run begins with `outbox replay`"};
        }
        if (run.lease_ms > 0 && run.updated_us != last_word_us) {
            progress.clear();
            return held_by_other(run);
        }
        if (run.lease_ms == 0 || std::chrono::steady_clock::now() >= silent_at) {
            const auto epoch = runs.take(run, runner_name(), replay::kRunLeaseMs, reason);
            if (!epoch.ok()) return epoch.error();
            if (*epoch) return **epoch;
        } else {
            const std::int64_t left_ms = std::min(run.lease_ms, replay::kRunLeaseMs);
            progress.show(run.runner + " has not ended the run; waiting " +
                          age_text(static_cast<double>(left_ms) / 1000) + " for its word");
        }
        std::this_thread::sleep_for(kTakeEvery);
        auto now = runs.find(run.id);
        if (!now.ok()) return now.error();
        if (!*now) return run_is_gone(run);
        run = std::move(**now);
    }
}

}  // namespace

int run_replay(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    runtime::configure_logs("info", "logfmt");
    auto selection = selection_of(options);
    if (!selection.ok()) return report(selection.error());
    const auto rate = rate_of(options.text("rate"));
    if (!rate.ok()) return report(rate.error());
    const bool dry_run = options.flag("dry-run");
    const auto reason = reason_of(invocation);
    if (!reason.ok() && !(dry_run && !options.given("reason"))) return report(reason.error());
    auto outfit = fit_out(invocation, options.text("route"));
    if (!outfit.ok()) return report(outfit.error());
    if (!dry_run) leave_stdout_to_events(*outfit);
    replay::History& history = *outfit->history;
    selection->route = outfit->route().name;
    const auto known = history.select(*selection, outfit->route().predicate);
    if (!known.ok()) return report(known.error());
    const auto floors = floors_of(invocation, outfit->config.relay.source);
    if (!floors.ok()) return report(floors.error());
    const auto estimate = estimate_of(history, *floors);
    if (!estimate.ok()) return report(estimate.error());

    replay::Run run;
    run.id = net::uuid4();
    run.selection = *selection;
    run.rate = *rate;
    run.as_new = options.flag("as-new");
    if (Status ids = check_new_ids(*outfit, run); !ids.ok()) return report(ids.error());
    run.topic_template = outfit->route().topic_template;
    run.format = outfit->route().format;
    run.expected = estimate->events;
    run.end = estimate->end;
    if (outfit->config.other) run.destination = redact(outfit->route().to);
    const bool json = options.flag("json");
    const ordered_json told = estimate_json(*estimate, *floors, run);
    if (json && (dry_run || estimate->events == 0)) {
        print_json({{"dry_run", dry_run}, {"estimate", told}});
    } else if (!json) {
        print_estimate(*estimate, *floors, run, *outfit);
    }
    if (estimate->events == 0) {
        std::cerr << "outbox: no event "
                  << (estimate->left_out == 0 ? "matches"
                                              : "that can be replayed now matches; left out: " +
                                                    left_out_text(*estimate))
                  << "; nothing was sent\n";
        return runtime::kExitFailed;
    }
    if (dry_run) return runtime::kExitOk;
    run.reason = *reason;
    if (Status asked = confirm(*estimate, run, options.flag("yes")); !asked.ok()) {
        return report(asked.error());
    }
    auto met = meet(*outfit, outfit->config.other ? "" : known->destination,
                    "To send events there on purpose give it a name that is no route's: --route " +
                        outfit->route().name + " --to NAME=URL");
    if (!met.ok()) return report(met.error());
    run.met = std::move(*met);
    if (Status there = history.make_table(); !there.ok()) return report(there.error());
    replay::Runs runs(history, history.table_name(), os_user());
    if (Status begun = runs.begin(run); !begun.ok()) return report(begun.error());
    const auto epoch = runs.take(run, runner_name(), replay::kRunLeaseMs, {});
    if (!epoch.ok()) return report(epoch.error());
    const auto begun = runs.find(run.id);
    if (!begun.ok()) return report(begun.error());
    if (!*begun) return report(run_is_gone(run));
    if (!*epoch) return report(held_by_other(**begun));
    if (!json) std::cout << "run " << run.id << " begins\n" << std::flush;
    const int code = carry_out(*outfit, runs, **begun, **epoch, json, told);
    if (estimate->left_out > 0) {
        std::cerr << "outbox: left out when the run began: " << left_out_text(*estimate) << "\n";
    }
    return code;
}

int run_replay_resume(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    runtime::configure_logs("info", "logfmt");
    std::string reason = "resumed";
    if (options.given("reason")) {
        auto given = reason_of(invocation);
        if (!given.ok()) return report(given.error());
        reason = *std::move(given);
    }
    auto source = runtime::make_source_config(invocation);
    if (!source.ok()) return report(source.error());
    source->tenants.clear();
    const auto looked = open_history(*source);
    if (!looked.ok()) return report(looked.error());
    replay::Runs known(**looked, (*looked)->table_name(), os_user());
    const auto run = named_run(invocation, known);
    if (!run.ok()) return report(run.error());

    auto outfit = fit_out(invocation, run->selection.route);
    if (!outfit.ok()) return report(outfit.error());
    if (Status same = keep_as_begun(*run, options, outfit->route()); !same.ok()) {
        return report(same.error());
    }
    leave_stdout_to_events(*outfit);
    if (!run->destination.empty() && !outfit->config.other) {
        return report(runtime::config_error(
            "--to",
            "the run goes to " + run->destination +
                ", which is not the route's own destination: name it again, --to NAME=URL"));
    }
    replay::History& history = *outfit->history;
    const auto selected = history.select(run->selection, outfit->route().predicate);
    if (!selected.ok()) return report(selected.error());
    const auto met = meet(*outfit, run->met,
                          "A run goes on to where it began; outbox replay cancel ends it, and a "
                          "new run sends the rest elsewhere");
    if (!met.ok()) return report(met.error());
    replay::Runs runs(history, history.table_name(), os_user());
    const auto epoch = take_over(runs, *run, reason);
    if (!epoch.ok()) return report(epoch.error());
    const auto now = runs.find(run->id);
    if (!now.ok()) return report(now.error());
    if (!*now) return report(run_is_gone(*run));
    const bool json = options.flag("json");
    if (!json) {
        std::cout << "run " << run->id << " goes on: " << with_commas((*now)->sent) << " of "
                  << with_commas((*now)->expected) << " are sent\n"
                  << std::flush;
    }
    return carry_out(*outfit, runs, **now, *epoch, json, {});
}

}  // namespace outbox::app
