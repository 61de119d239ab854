// The runs of `outbox replay`: what became of them, and their end before they are over.
#include "replays.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/redact.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kMaxReason = 500;
constexpr std::size_t kReasonColumns = 40;
constexpr std::size_t kShownRefusals = 10;

// "480/s", of one that runs.
std::string pace_of(const replay::Run& run) {
    if (run.state != "running" || run.lease_ms == 0) return {};
    return with_commas(static_cast<std::int64_t>(run.rate_per_s)) + "/s";
}

Result<std::unique_ptr<replay::History>> open(const runtime::Invocation& invocation) {
    auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    config->tenants.clear();
    return open_history(*config);
}

}  // namespace

ordered_json json_of(const replay::Run& run) {
    ordered_json refusals = ordered_json::array();
    for (const replay::Refusal& one : run.refusals) {
        refusals.push_back(
            {{"id", one.id}, {"key", text_or_null(one.key)}, {"error", redact(one.error)}});
    }
    const replay::Selection& selection = run.selection;
    return {{"run", run.id},
            {"state", run.state},
            {"runner", text_or_null(run.lease_ms > 0 ? run.runner : "")},
            {"route", selection.route},
            {"scope", describe(selection)},
            {"from", selection.dead ? "dead_letters" : "history"},
            {"since", text_or_null(time_text(selection.since_us))},
            {"until", text_or_null(time_text(selection.until_us))},
            {"key", text_or_null(selection.key)},
            {"event_type", text_or_null(selection.event_type)},
            {"tenants", selection.tenants},
            {"to", text_or_null(redact(run.destination))},
            {"destination", run.met},
            {"rate", run.rate},
            {"as_new", run.as_new},
            {"expected", run.expected},
            {"sent", run.sent},
            {"refused", run.refused},
            {"refusals", refusals},
            {"rate_per_s", run.lease_ms > 0 ? run.rate_per_s : 0},
            {"error", text_or_null(redact(run.error))},
            {"reason", run.reason},
            {"who", run.who},
            {"started_at", text_or_null(time_text(run.started_us))},
            {"updated_at", text_or_null(time_text(run.updated_us))},
            {"ended_at", text_or_null(time_text(run.ended_us))}};
}

std::string state_of(const replay::Run& run) {
    if (run.state != "running") return run.state;
    return run.lease_ms > 0 ? "running by " + run.runner : "stopped";
}

void print_run(const replay::Run& run) {
    std::cout << "run " << run.id << " " << run.state << ": sent " << with_commas(run.sent)
              << (run.sent == 1 ? " event" : " events") << " of " << with_commas(run.expected)
              << (run.refused > 0 ? ", " + with_commas(run.refused) + " refused" : "") << "\n";
    for (std::size_t i = 0; i < std::min(run.refusals.size(), kShownRefusals); ++i) {
        const replay::Refusal& one = run.refusals[i];
        std::cout << "  refused " << indented(one.id, 2) << ": " << indented(redact(one.error), 2)
                  << "\n";
    }
    if (run.refused > static_cast<std::int64_t>(kShownRefusals)) {
        std::cout << "  the first " << replay::kMaxRefusals
                  << " are in `outbox replay list --json`\n";
    }
    const std::int64_t gone = run.expected - run.sent - run.refused;
    if (run.state == "finished" && gone > 0) {
        std::cout << with_commas(gone) << " were no longer there when their turn came: "
                  << (run.selection.dead ? "others discarded or retried these letters meanwhile\n"
                                         : "their rows were removed meanwhile, by the table's "
                                           "retention (prune, --after-publish), or by somebody's "
                                           "DELETE or TRUNCATE\n");
    }
}

Result<std::string> reason_of(const runtime::Invocation& invocation) {
    const std::string reason = invocation.options.text("reason");
    if (reason.find_first_not_of(" \t\n") == std::string::npos) {
        return runtime::config_error("--reason", "why? It is kept with the audit");
    }
    if (reason.size() > kMaxReason) {
        return runtime::config_error("--reason",
                                     "it has more than " + std::to_string(kMaxReason) + " bytes");
    }
    return reason;
}

Result<replay::Run> named_run(const runtime::Invocation& invocation, replay::Runs& runs) {
    if (invocation.positionals.size() != 1) {
        return runtime::config_error("outbox replay",
                                     "which run? Give its id; see `outbox replay list`");
    }
    auto run = runs.find(invocation.positionals.front());
    if (!run.ok()) return run.error();
    if (*run) return std::move(**run);
    return ErrorInfo{ErrorCode::kConflict,
                     Advice::kStop,
                     {},
                     "there is no run " + invocation.positionals.front() +
                         " of this table; see `outbox replay list`"};
}

int run_replay_list(const runtime::Invocation& invocation) {
    const auto history = open(invocation);
    if (!history.ok()) return report(history.error());
    replay::Runs runs(**history, (*history)->table_name(), os_user());
    const auto list = runs.list(static_cast<std::size_t>(invocation.options.integer("limit")));
    if (!list.ok()) return report(list.error());
    if (invocation.options.flag("json")) {
        ordered_json all = ordered_json::array();
        for (const replay::Run& run : *list) all.push_back(json_of(run));
        print_json(all);
        return runtime::kExitOk;
    }
    if (list->empty()) {
        std::cout << "no replays\n";
        return runtime::kExitOk;
    }
    using Align = TextColumns::Align;
    TextColumns columns({{"RUN", Align::kLeft},
                         {"ROUTE", Align::kLeft},
                         {"STATE", Align::kLeft},
                         {"SENT", Align::kRight},
                         {"OF", Align::kRight},
                         {"REFUSED", Align::kRight},
                         {"PACE", Align::kRight},
                         {"STARTED", Align::kLeft},
                         {"REASON", Align::kLeft}});
    for (const replay::Run& run : *list) {
        columns.add({run.id, run.selection.route, state_of(run), with_commas(run.sent),
                     with_commas(run.expected), with_commas(run.refused), pace_of(run),
                     time_text(run.started_us).substr(0, 19) + "Z",
                     shortened(run.reason, kReasonColumns)});
    }
    columns.print(std::cout);
    return runtime::kExitOk;
}

int run_replay_cancel(const runtime::Invocation& invocation) {
    const auto reason = reason_of(invocation);
    if (!reason.ok()) return report(reason.error());
    const auto history = open(invocation);
    if (!history.ok()) return report(history.error());
    replay::Runs runs(**history, (*history)->table_name(), os_user());
    const auto run = named_run(invocation, runs);
    if (!run.ok()) return report(run.error());
    const auto cancelled = runs.cancel(*run, *reason);
    if (!cancelled.ok()) return report(cancelled.error());
    const auto now = runs.find(run->id);
    if (!now.ok()) return report(now.error());
    if (!*cancelled) {
        return report({ErrorCode::kConflict,
                       Advice::kStop,
                       {},
                       "run " + run->id + " is over: it is " + now->value_or(*run).state +
                           "; nothing was changed"});
    }
    if (invocation.options.flag("json")) {
        print_json(json_of(now->value_or(*run)));
    } else {
        std::cout << "cancelled run " << run->id << ", which had sent " << with_commas(run->sent)
                  << " of " << with_commas(run->expected) << "\n";
    }
    return runtime::kExitOk;
}

}  // namespace outbox::app
