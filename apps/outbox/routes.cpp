#include "routes.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "core/url.h"
#include "core/utf8.h"
#include "print.h"
#include "registry.h"
#include "relay/tenants.h"
#include "runtime/exit_codes.h"
#include "runtime/route_names.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

struct Ledgers {
    std::string table;
    std::unique_ptr<Operations> operations;
    Operations* operator->() const { return operations.get(); }
};

Result<Ledgers> open_ledgers(const runtime::Invocation& invocation) {
    auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    config->tenants.clear();  // they say whose route is meant
    auto outbox = open_outbox(*config);
    if (!outbox.ok()) return outbox.error();
    return Ledgers{outbox->source->table_name(), std::move(outbox->operations)};
}

// The names that the command needs, and no more.
Result<std::vector<std::string>> names_of(const runtime::Invocation& invocation,
                                          std::size_t count) {
    if (invocation.positionals.size() == count) return invocation.positionals;
    const std::string command = command_of(invocation);
    const std::string_view names = runtime::command_spec(invocation.command).positional;
    return runtime::config_error(
        command, names.empty() ? "takes no names: it concerns every route of the table"
                               : "give " + std::string(names) + ": " + command + " " +
                                     std::string(names) + " --db URL");
}

std::string number(const BoundedCount& count) {
    return with_commas(count.count) + (count.more ? "+" : "");
}

ErrorInfo routes_conflict(std::string message) {
    return {ErrorCode::kConflict, Advice::kStop, {}, std::move(message)};
}

// "public.outbox_events/acme (--tenant acme)", of each that has a route of the name.
std::string sources_of(const std::vector<LedgerRoute>& routes, const std::string& name,
                       const std::string& table) {
    std::string out;
    for (const LedgerRoute& route : routes) {
        if (route.name != name) continue;
        out += (out.empty() ? "" : ", ") + route.source + " (" +
               relay::whose_arguments(route.source, table).substr(1) + ")";
    }
    return out;
}

ErrorInfo no_such_route(const std::vector<LedgerRoute>& routes, const std::string& name,
                        const std::string& source, const std::string& table, bool given) {
    std::vector<LedgerRoute> its;
    std::ranges::copy_if(routes, std::back_inserter(its), [&](const LedgerRoute& route) {
        return !given || route.source == source;
    });
    const std::string others = sources_of(routes, name, table);
    return routes_conflict(source + " has no route '" + name + "'; " + known_routes(its) +
                           (others.empty() ? "" : "; there is one of " + others));
}

// The tenants that were given, whose relay's the route is then; "" alone, or nothing: the one of
// all. What is another's, too, or only another's, must be told.
Result<std::vector<std::string>> whose_route(const runtime::Invocation& invocation,
                                             const Ledgers& ledgers, const std::string& name) {
    std::vector<std::string> tenants = invocation.options.list("tenant");
    const bool of_all = tenants == std::vector<std::string>{""};
    if (!of_all && std::ranges::count(tenants, "") > 0) {
        return runtime::config_error("--tenant", "'' means the relay of all, and stands alone");
    }
    const bool given = !tenants.empty();
    if (of_all) tenants.clear();
    const auto routes = ledgers->ledger_routes(false);
    if (!routes.ok()) return routes.status();
    const std::string source = relay::source_name(ledgers.table, tenants);
    bool there = false;
    bool others = false;
    for (const LedgerRoute& route : *routes) {
        if (route.name == name) (route.source == source ? there : others) = true;
    }
    if (!given && others) {
        return routes_conflict("route '" + name + "' is one of " +
                               sources_of(*routes, name, ledgers.table) +
                               ": say whose is meant, by --tenant as its relay has it; nothing was "
                               "changed");
    }
    if (!there) return no_such_route(*routes, name, source, ledgers.table, given);
    return tenants;
}

ErrorInfo gone_meanwhile(const std::string& name) {
    return routes_conflict("route '" + name + "' is gone meanwhile");
}

// Behind a route's name.
std::string of_source(const Ledgers& ledgers, const std::vector<std::string>& tenants) {
    return tenants.empty() ? "" : " of " + relay::source_name(ledgers.table, tenants);
}

ordered_json json_of(const LedgerRoute& route) {
    return {{"name", route.name},
            {"source", route.source},
            {"destination", text_or_null(redact(route.destination))},
            {"since", time_text(route.since_us)},
            {"unfinished", route.unfinished.count},
            {"unfinished_is_more", route.unfinished.more},
            {"dead", route.dead},
            {"circuit", text_or_null(route.circuit)},
            {"last_error", text_or_null(redact(route.last_error))}};
}

void print_table(const std::vector<LedgerRoute>& routes, const std::string& table) {
    constexpr std::size_t kErrorColumns = 60;
    using Align = TextColumns::Align;
    const bool tenants = std::any_of(routes.begin(), routes.end(), [&](const LedgerRoute& route) {
        return route.source != table;
    });
    std::vector<TextColumns::Heading> headings{{"ROUTE", Align::kLeft}};
    if (tenants) headings.push_back({"SOURCE", Align::kLeft});
    headings.insert(headings.end(), {{"DESTINATION", Align::kLeft},
                                     {"SINCE", Align::kLeft},
                                     {"UNFINISHED", Align::kRight},
                                     {"DEAD", Align::kRight},
                                     {"CIRCUIT", Align::kLeft},
                                     {"LAST ERROR", Align::kLeft}});
    TextColumns columns(std::move(headings));
    for (const LedgerRoute& route : routes) {
        std::vector<std::string> cells{route.name};
        if (tenants) cells.push_back(route.source);
        cells.insert(cells.end(),
                     {route.destination.empty() ? "(the next one met)" : redact(route.destination),
                      time_text(route.since_us).substr(0, 19) + "Z", number(route.unfinished),
                      with_commas(route.dead), route.circuit.empty() ? "-" : route.circuit,
                      shortened(redact(route.last_error), kErrorColumns)});
        columns.add(std::move(cells));
    }
    columns.print(std::cout);
}

int print_done(const ordered_json& what) {
    print_json(what);
    return runtime::kExitOk;
}

// What is said of a number that may have others' events in it: as `run_tenant_drain` does.
std::string of_no_tenant(const runtime::Invocation& invocation,
                         const std::vector<std::string>& tenants) {
    if (tenants.empty() || invocation.options.given("default-tenant")) return {};
    return " (with all that name no tenant; to count the relay's own alone give --default-tenant "
           "NAME as it has it)";
}

std::string routes_text(std::int64_t count) {
    return with_commas(count) + (count == 1 ? " route" : " routes");
}

}  // namespace

std::string known_routes(std::span<const LedgerRoute> routes) {
    std::string names;
    std::string last;
    for (const LedgerRoute& route : routes) {  // by name
        if (route.name != last)
            names += (names.empty() ? "'" : ", '") + to_printable(route.name) + "'";
        last = route.name;
    }
    return names.empty() ? "it has none: a relay makes its routes known when it starts"
                         : "its routes: " + names;
}

int run_routes_list(const runtime::Invocation& invocation) {
    const auto ledgers = open_ledgers(invocation);
    if (!ledgers.ok()) return report(ledgers.error());
    const auto routes = (*ledgers)->ledger_routes(true);
    if (!routes.ok()) return report(routes.error());
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const LedgerRoute& route : *routes) list.push_back(json_of(route));
        print_json(list);
    } else if (routes->empty()) {
        std::cout << ledgers->table
                  << " has no routes: a relay makes its routes known when it starts\n";
    } else {
        print_table(*routes, ledgers->table);
    }
    return runtime::kExitOk;
}

int run_routes_accept(const runtime::Invocation& invocation) {
    const auto names = names_of(invocation, 1);
    if (!names.ok()) return report(names.error());
    const auto ledgers = open_ledgers(invocation);
    if (!ledgers.ok()) return report(ledgers.error());
    const std::string& name = names->front();
    const auto tenants = whose_route(invocation, *ledgers, name);
    if (!tenants.ok()) return report(tenants.error());
    const auto accepted = (*ledgers)->accept_destination(*tenants, name);
    if (!accepted.ok()) return report(accepted.error());
    if (*accepted == 0) return report(gone_meanwhile(name));
    if (invocation.options.flag("json"))
        return print_done({{"route", name}, {"ledgers", *accepted}});
    std::cout << "route " << name << of_source(*ledgers, *tenants)
              << " takes the destination that it meets next for the one that it had\n";
    return runtime::kExitOk;
}

int run_routes_rename(const runtime::Invocation& invocation) {
    const auto names = names_of(invocation, 2);
    if (!names.ok()) return report(names.error());
    const std::string& from = names->front();
    const std::string& to = names->back();
    if (Status status = runtime::check_route_name(to, command_of(invocation)); !status.ok()) {
        return report(status.error());
    }
    const auto ledgers = open_ledgers(invocation);
    if (!ledgers.ok()) return report(ledgers.error());
    const auto tenants = whose_route(invocation, *ledgers, from);
    if (!tenants.ok()) return report(tenants.error());
    const auto renamed = (*ledgers)->rename_route(*tenants, from, to);
    if (!renamed.ok()) return report(renamed.error());
    if (*renamed == 0) return report(gone_meanwhile(from));
    if (invocation.options.flag("json")) {
        return print_done({{"route", to}, {"was", from}, {"ledgers", *renamed}});
    }
    std::cout << "route " << from << of_source(*ledgers, *tenants) << " is now " << to
              << "; start the relay with --to " << to << "=URL\n";
    return runtime::kExitOk;
}

int run_routes_retire(const runtime::Invocation& invocation) {
    const auto names = names_of(invocation, 1);
    if (!names.ok()) return report(names.error());
    const auto ledgers = open_ledgers(invocation);
    if (!ledgers.ok()) return report(ledgers.error());
    const std::string& name = names->front();
    const auto tenants = whose_route(invocation, *ledgers, name);
    if (!tenants.ok()) return report(tenants.error());
    const auto retired = (*ledgers)->retire_route(*tenants, name, invocation.options.flag("yes"));
    if (!retired.ok()) return report(retired.error());
    if (!retired->known) return report(gone_meanwhile(name));
    const std::string events =
        number(retired->unfinished) +
        (retired->unfinished.count == 1 && !retired->unfinished.more ? " event" : " events");
    if (!retired->done) {
        return report(runtime::config_error(
            command_of(invocation), "route '" + name + "'" + of_source(*ledgers, *tenants) +
                                        " has not finished " + events +
                                        of_no_tenant(invocation, *tenants) +
                                        ", which it will never send then; if that is meant, add "
                                        "--yes"));
    }
    if (invocation.options.flag("json")) {
        return print_done({{"route", name},
                           {"unfinished", retired->unfinished.count},
                           {"unfinished_is_more", retired->unfinished.more},
                           {"dead", retired->dead}});
    }
    std::cout << "route " << name << of_source(*ledgers, *tenants) << " is retired; it had "
              << (retired->unfinished.count == 0 ? "finished every event"
                                                 : "not finished " + events)
              << "\n";
    if (retired->dead > 0) {
        std::cout << with_commas(retired->dead)
                  << (retired->dead == 1 ? " dead letter of it stays" : " dead letters of it stay")
                  << ": outbox dead retry --route " << name
                  << " --to ROUTE, or outbox dead discard --route " << name << "\n";
    }
    return runtime::kExitOk;
}

int run_routes_continue(const runtime::Invocation& invocation) {
    const auto names = names_of(invocation, 0);
    if (!names.ok()) return report(names.error());
    const auto ledgers = open_ledgers(invocation);
    if (!ledgers.ok()) return report(ledgers.error());
    const auto kept = (*ledgers)->keep_ledgers();
    if (!kept.ok()) return report(kept.error());
    if (invocation.options.flag("json")) {
        return print_done({{"table", ledgers->table}, {"routes", *kept}});
    }
    std::cout << (*kept == 0 ? "nothing to settle: no ledger speaks of another table\n"
                             : "what " + routes_text(*kept) + " had finished holds for " +
                                   ledgers->table + " as it is now\n");
    return runtime::kExitOk;
}

int run_routes_begin(const runtime::Invocation& invocation) {
    const auto names = names_of(invocation, 0);
    if (!names.ok()) return report(names.error());
    const auto ledgers = open_ledgers(invocation);
    if (!ledgers.ok()) return report(ledgers.error());
    const auto forgotten = (*ledgers)->forget_ledgers();
    if (!forgotten.ok()) return report(forgotten.error());
    if (invocation.options.flag("json")) {
        return print_done({{"table", ledgers->table}, {"routes", *forgotten}});
    }
    std::cout << (*forgotten == 0
                      ? "nothing to forget"
                      : "what " + routes_text(*forgotten) + " had finished is forgotten")
              << ": everything in " << ledgers->table
              << " that is not marked as published is sent\n";
    return runtime::kExitOk;
}

}  // namespace outbox::app
