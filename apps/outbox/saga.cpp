#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/url.h"
#include "core/utf8.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"
#include "sagas.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;
using saga::Request;
using saga::SagaFilter;
using saga::SagaInfo;
using saga::SagaOperations;

constexpr std::size_t kMaxChanged = 100'000;  // sagas that one command may change

SagaFilter filter_of(const runtime::Invocation& invocation) {
    SagaFilter filter;
    filter.ids = invocation.positionals;
    if (invocation.command == runtime::kSagaShow) return filter;
    filter.name = invocation.options.text("name");
    filter.state = invocation.options.text("state");
    if (invocation.options.given("stuck-for")) {
        filter.stuck_for_s = invocation.options.duration("stuck-for").count();
    }
    return filter;
}

bool is_empty(const SagaFilter& filter) {
    return filter.ids.empty() && filter.name.empty() && filter.state.empty() &&
           filter.stuck_for_s == 0;
}

ErrorInfo usage(const std::string& message) {
    return runtime::config_error("outbox saga", message);
}

Result<SagaOperations> open(const runtime::Invocation& invocation) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    auto sql = open_consumer_sql(config->url, static_cast<int>(config->connect_timeout.count()),
                                 {config->owners, true});
    if (!sql.ok()) return sql.status();
    SagaOperations operations(std::move(*sql), os_user());
    const auto there = operations.has_table();
    if (!there.ok()) return there.error();
    if (!*there) {
        return ErrorInfo{ErrorCode::kNoSuchTable,
                         Advice::kStop,
                         {},
                         "this database has no table outbox_saga: make it with `outbox migrate "
                         "--db URL`, or name the database of the service that leads the sagas"};
    }
    return operations;
}

// What an operator wants to know first: why it does not go on, else why it turned back.
std::string why(const SagaInfo& info) {
    if (!info.instance.trouble.empty()) return info.instance.trouble;
    if (!info.dead_error.empty()) return redact(info.dead_error);
    return info.instance.cause;
}

}  // namespace

ordered_json json_of(const SagaInfo& info, bool whole) {
    const saga::Instance& instance = info.instance;
    const saga::StepRecord* awaited = instance.awaited();
    ordered_json out{{"id", instance.id},
                     {"name", instance.name},
                     {"version", instance.version},
                     {"state", saga_state_name(instance.state)},
                     {"step", awaited == nullptr ? ordered_json() : ordered_json(awaited->name)},
                     {"cause", text_or_null(instance.cause)},
                     {"trouble", text_or_null(instance.trouble)},
                     {"dead_letters", info.dead_letters},
                     {"dead_error", text_or_null(redact(info.dead_error))},
                     {"requested", text_or_null(info.requested)},
                     {"idle_s", info.idle_s},
                     {"started_at", time_text(info.started_us)},
                     {"updated_at", time_text(info.updated_us)},
                     {"finished_at", text_or_null(time_text(info.finished_us))}};
    if (!whole) return out;
    out["due_at"] = text_or_null(time_text(info.due_us));
    out["topic"] = info.topic;
    out["steps"] = ordered_json::parse(saga::to_json(instance.steps));
    out["data"] = json_or_text(instance.data);
    return out;
}

namespace {

Colour colour_of(SagaState state) {
    return state == SagaState::kStuck          ? Colour::kRed
           : state == SagaState::kCompensating ? Colour::kYellow
                                               : Colour::kGreen;
}

void print_table(const std::vector<SagaInfo>& sagas) {
    constexpr std::size_t kWhyColumns = 60;
    using Align = TextColumns::Align;
    TextColumns columns({{"ID", Align::kLeft},
                         {"SAGA", Align::kLeft},
                         {"STATE", Align::kLeft},
                         {"STEP", Align::kLeft},
                         {"IDLE", Align::kRight},
                         {"ASKED", Align::kLeft},
                         {"WHY", Align::kLeft}});
    for (const SagaInfo& info : sagas) {
        const saga::Instance& instance = info.instance;
        const saga::StepRecord* awaited = instance.awaited();
        columns.add(
            {instance.id, instance.name + " " + std::to_string(instance.version),
             std::string(saga_state_name(instance.state)), awaited == nullptr ? "-" : awaited->name,
             info.finished_us == 0 ? age_text(info.idle_s) : "-",
             info.requested.empty() ? "-" : info.requested, shortened(why(info), kWhyColumns)});
    }
    columns.print(std::cout);
}

void print_whole(const SagaInfo& info) {
    const saga::Instance& instance = info.instance;
    print_field("id", instance.id, Colour::kBold);
    print_field("saga", instance.name + ", version " + std::to_string(instance.version));
    print_field("state", std::string(saga_state_name(instance.state)), colour_of(instance.state));
    print_field("cause", instance.cause);
    print_field("trouble", instance.trouble);
    if (info.dead_letters > 0) {
        print_field("dead letters",
                    with_commas(info.dead_letters) + ", the last: " + redact(info.dead_error));
    }
    print_field("asked for", info.requested);
    print_field("started at", time_text(info.started_us));
    print_field("progress at", time_text(info.updated_us));
    print_field("finished at", time_text(info.finished_us));
    print_field("timer due at", time_text(info.due_us));
    print_field("topic", info.topic);
    print_field("data", instance.data);
    std::cout << "\n";
    TextColumns columns({{"STEP", TextColumns::Align::kLeft},
                         {"STATE", TextColumns::Align::kLeft},
                         {"TRIES", TextColumns::Align::kRight},
                         {"LATE", TextColumns::Align::kRight},
                         {"CAN BE UNDONE", TextColumns::Align::kLeft}});
    for (const saga::StepRecord& record : instance.steps) {
        columns.add({record.name, std::string(step_state_name(record.state)),
                     std::to_string(record.attempts), std::to_string(record.late),
                     record.can_undo ? "yes" : "no"});
    }
    columns.print(std::cout);
}

int print_changes(const runtime::Invocation& invocation, const std::vector<SagaInfo>& sagas,
                  Request request, bool dry_run) {
    std::int64_t changed = 0;
    ordered_json list = ordered_json::array();
    for (const SagaInfo& info : sagas) {
        const std::string refusal = objection(info, request);
        const std::string does = refusal.empty() ? effect(info, request) : std::string();
        if (refusal.empty()) ++changed;
        list.push_back({{"id", info.instance.id},
                        {"does", text_or_null(does)},
                        {"refused", text_or_null(refusal)}});
        if (invocation.options.flag("json")) continue;
        std::cout << to_printable(info.instance.id) << ": "
                  << (refusal.empty() ? (dry_run ? "would " : "is to ") + does : refusal) << "\n";
    }
    if (invocation.options.flag("json")) {
        print_json(
            {{"matched", sagas.size()}, {"asked", changed}, {"dry_run", dry_run}, {"sagas", list}});
    } else {
        std::cout << (dry_run ? "would ask " : "asked ") << with_commas(changed)
                  << (changed == 1 ? " saga" : " sagas") << " to "
                  << (request == Request::kAbort ? "abort" : "resume") << "\n";
    }
    return changed == 0 && !invocation.positionals.empty() ? runtime::kExitFailed
                                                           : runtime::kExitOk;
}

int change(const runtime::Invocation& invocation, Request request) {
    const SagaFilter filter = filter_of(invocation);
    if (is_empty(filter)) {
        return report(usage("which ones? Give ids, or a filter such as --stuck-for 10m"));
    }
    auto operations = open(invocation);
    if (!operations.ok()) return report(operations.error());
    const auto sagas = operations->sagas(filter, kMaxChanged, false);
    if (!sagas.ok()) return report(sagas.error());
    if (sagas->empty() && !filter.ids.empty()) {
        std::cerr << "outbox: no such saga; see `outbox saga list`\n";
        return runtime::kExitFailed;
    }
    const bool dry_run = invocation.options.flag("dry-run");
    if (!dry_run) {
        for (const SagaInfo& info : *sagas) {
            if (!objection(info, request).empty()) continue;
            const Status asked = operations->ask(info, request);
            if (!asked.ok()) return report(asked.error());
        }
    }
    return print_changes(invocation, *sagas, request, dry_run);
}

}  // namespace

int run_saga_list(const runtime::Invocation& invocation) {
    auto operations = open(invocation);
    if (!operations.ok()) return report(operations.error());
    const SagaFilter filter = filter_of(invocation);
    const auto limit = static_cast<std::size_t>(invocation.options.integer("limit"));
    const auto sagas = operations->sagas(filter, limit, false);
    if (!sagas.ok()) return report(sagas.error());
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const SagaInfo& info : *sagas) list.push_back(json_of(info, false));
        print_json(list);
        return runtime::kExitOk;
    }
    if (sagas->empty()) {
        std::cout << "no sagas\n";
        return runtime::kExitOk;
    }
    print_table(*sagas);
    const auto total = operations->count(filter);
    if (!total.ok()) return report(total.error());
    print_rest(sagas->size(), *total);
    return runtime::kExitOk;
}

int run_saga_show(const runtime::Invocation& invocation) {
    const SagaFilter filter = filter_of(invocation);
    if (filter.ids.empty()) return report(usage("which one? Give its id; see `outbox saga list`"));
    auto operations = open(invocation);
    if (!operations.ok()) return report(operations.error());
    const auto sagas = operations->sagas(filter, filter.ids.size(), true);
    if (!sagas.ok()) return report(sagas.error());
    if (sagas->empty()) {
        std::cerr << "outbox: no such saga; see `outbox saga list`\n";
        return runtime::kExitFailed;
    }
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const SagaInfo& info : *sagas) list.push_back(json_of(info, true));
        print_json(list);
        return runtime::kExitOk;
    }
    for (std::size_t i = 0; i < sagas->size(); ++i) {
        if (i > 0) std::cout << "\n";
        print_whole((*sagas)[i]);
    }
    return runtime::kExitOk;
}

int run_saga_resume(const runtime::Invocation& invocation) {
    return change(invocation, Request::kResume);
}

int run_saga_abort(const runtime::Invocation& invocation) {
    return change(invocation, Request::kAbort);
}

}  // namespace outbox::app
