// Delayed events, before they are due.
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

ScheduledFilter filter_of(const runtime::Invocation& invocation) {
    return {invocation.positionals, invocation.options.text("event-type"),
            invocation.options.text("key"), invocation.options.text("tenant")};
}

Result<std::unique_ptr<Operations>> open(const runtime::Invocation& invocation) {
    auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    config->tenants.clear();  // it selects delayed events, and is no source's
    auto outbox = open_outbox(*config);
    if (!outbox.ok()) return outbox.error();
    return std::move(outbox->operations);
}

void print_table(const std::vector<ScheduledInfo>& events) {
    using Align = TextColumns::Align;
    TextColumns columns({{"ID", Align::kLeft},
                         {"DUE", Align::kLeft},
                         {"TYPE", Align::kLeft},
                         {"TOPIC", Align::kLeft},
                         {"KEY", Align::kLeft}});
    for (const ScheduledInfo& event : events) {
        columns.add({event.id, time_text(event.available_at_us).substr(0, 19) + "Z",
                     event.event_type, event.topic,
                     event.key.empty() ? event.aggregate_id : event.key});
    }
    columns.print(std::cout);
}

ErrorInfo usage(const std::string& message) {
    return runtime::config_error("outbox scheduled", message);
}

}  // namespace

int run_scheduled_list(const runtime::Invocation& invocation) {
    const auto operations = open(invocation);
    if (!operations.ok()) return report(operations.error());
    const ScheduledFilter filter = filter_of(invocation);
    const auto limit = static_cast<std::size_t>(invocation.options.integer("limit"));
    const auto events = (*operations)->scheduled(filter, limit);
    if (!events.ok()) return report(events.error());
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const ScheduledInfo& event : *events) {
            list.push_back({{"id", event.id},
                            {"available_at", time_text(event.available_at_us)},
                            {"aggregate_type", text_or_null(event.aggregate_type)},
                            {"aggregate_id", text_or_null(event.aggregate_id)},
                            {"event_type", text_or_null(event.event_type)},
                            {"topic", text_or_null(event.topic)},
                            {"key", text_or_null(event.key)},
                            {"tenant_id", text_or_null(event.tenant_id)}});
        }
        print_json(list);
        return runtime::kExitOk;
    }
    if (events->empty()) {
        std::cout << "no delayed events\n";
        return runtime::kExitOk;
    }
    print_table(*events);
    const auto total = (*operations)->count_scheduled(filter);
    if (!total.ok()) return report(total.error());
    print_rest(events->size(), *total);
    return runtime::kExitOk;
}

int run_scheduled_cancel(const runtime::Invocation& invocation) {
    const ScheduledFilter filter = filter_of(invocation);
    for (const char* name : {"event-type", "key", "tenant"}) {
        if (!invocation.options.given(name) || !invocation.options.text(name).empty()) continue;
        return report(usage("--" + std::string(name) + " is empty; it would take every one"));
    }
    const bool none = filter.ids.empty() && filter.event_type.empty() && filter.key.empty() &&
                      filter.tenant.empty();
    if (none != invocation.options.flag("all")) {
        return report(usage(none ? "which ones? Give ids, a filter such as --key KEY, or --all"
                                 : "give either --all or ids and filters, not both"));
    }
    const auto operations = open(invocation);
    if (!operations.ok()) return report(operations.error());
    const bool dry_run = invocation.options.flag("dry-run");
    const auto count =
        dry_run ? (*operations)->count_scheduled(filter) : (*operations)->cancel_scheduled(filter);
    if (!count.ok()) return report(count.error());
    if (invocation.options.flag("json")) {
        print_json({{"matched", *count}, {"dry_run", dry_run}});
    } else {
        std::cout << (dry_run ? "would cancel " : "cancelled ") << with_commas(*count)
                  << (*count == 1 ? " delayed event" : " delayed events") << "\n";
    }
    if (*count > 0 || filter.ids.empty()) return runtime::kExitOk;
    std::cerr << "outbox: no such delayed event; one that is due is on its way already\n";
    return runtime::kExitFailed;
}

}  // namespace outbox::app
