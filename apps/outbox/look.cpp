// What a relay of a configuration is made of, and what it would meet.
#include "look.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "backend/backends.h"
#include "core/redact.h"
#include "print.h"
#include "registry.h"
#include "relay/tenants.h"
#include "runtime/exit_codes.h"
#include "spans.h"

namespace outbox::app {
namespace {

using enum spi::Finding::Grade;

// That the route leads to what its ledger holds for.
Status check_destination(const runtime::RelayConfig& config, const runtime::RouteConfig& route,
                         const std::string& known) {
    if (known.empty()) return {};
    const auto sink = make_sink(config, route);
    if (!sink.ok()) return sink.status();
    const auto met = (*sink)->destination();
    if (!met.ok()) return met.status();
    if (*met == known) return {};
    return spi::destination_changed(route.name, known, *met,
                                    relay::tenant_arguments(config.source.tenants));
}

void look_at_route(const runtime::RelayConfig& config, const runtime::RouteConfig& route,
                   const std::string* known, std::vector<spi::Finding>& findings) {
    Status status = check_sink(config, route);
    if (status.ok() && known != nullptr) status = check_destination(config, route, *known);
    const std::string name = "route " + route.name + " to " + redact(route.to);
    findings.push_back({status.ok() ? kOk : kFail,
                        status.ok() ? name : name + ": " + describe(status.error()),
                        {}});
    if (!status.ok()) return;
    const auto text = describe_destination(config, route);
    if (!text.ok()) findings.push_back({kFail, name + ": " + describe(text.error()), {}});
    if (text.ok() && !text->empty()) {
        findings.push_back({kOk, "route " + route.name + ": " + *text, {}});
    }
    const auto warnings = warnings_of_destination(config, route);
    if (!warnings.ok()) findings.push_back({kFail, name + ": " + describe(warnings.error()), {}});
    for (std::size_t i = 0; warnings.ok() && i < warnings->size(); ++i) {
        findings.push_back({kWarn, "route " + route.name + ": " + (*warnings)[i], {}});
    }
}

}  // namespace

Result<std::vector<relay::RouteSpec>> routes_of(const runtime::RelayConfig& config,
                                                const spi::Source& source) {
    const std::string table = source.table_name();
    const spi::RowShape shape = source.shape();
    std::vector<relay::RouteSpec> routes;
    for (const runtime::RouteConfig& route : config.routes) {
        auto topics = make_topics(route, table);
        if (!topics.ok()) return topics.error();
        auto encoders = make_format(route, table, &shape);
        if (!encoders.ok()) return encoders.error();
        routes.push_back({.name = route.name,
                          .former_names = route.former_names,
                          .predicate = route.predicate,
                          .topics = std::move(*topics),
                          .on_dead_letter = route.on_dead_letter == "block_key"
                                                ? relay::OnDeadLetter::kBlockKey
                                                : relay::OnDeadLetter::kContinue,
                          .make_encoder = std::move(*encoders),
                          .make_sink = [config, route](const std::string& producer) {
                              return make_sink(config, route, producer);
                          }});
    }
    return routes;
}

// What the next start would say of routes and ledgers.
Result<spi::Beginning> preview(spi::Source& source, const runtime::RelayConfig& config) {
    const auto routes = routes_of(config, source);
    if (!routes.ok()) return routes.status();
    std::vector<spi::RouteName> names;
    for (const relay::RouteSpec& route : *routes) {
        names.push_back({route.name, route.former_names, route.predicate.fingerprint()});
    }
    return source.preview(names);
}

Result<std::vector<spi::Finding>> look_around(spi::Source& source,
                                              const runtime::RelayConfig& config) {
    auto findings = source.check();
    if (!findings.ok()) return findings;
    findings->insert(findings->begin(), {kOk, "source " + source.table_name(), {}});
    const auto beginning = preview(source, config);
    // A missing right has been told, with the statement that gives it.
    const bool told = !beginning.ok() && beginning.error().code == ErrorCode::kNoRights &&
                      std::ranges::count(*findings, kFail, &spi::Finding::grade) > 0;
    if (!beginning.ok() && !told) {
        findings->push_back({kFail, "ledger: " + describe(beginning.error()), {}});
    }
    for (std::size_t i = 0; beginning.ok() && i < beginning->notes.size(); ++i) {
        findings->push_back({kOk, "at the start: " + beginning->notes[i], {}});
    }
    for (std::size_t i = 0; i < config.routes.size(); ++i) {
        look_at_route(config, config.routes[i],
                      beginning.ok() ? &beginning->routes[i].destination : nullptr, *findings);
    }
    if (!config.otlp_endpoint.empty()) {
        const Status status = check_spans(config.otlp_endpoint);
        findings->push_back(status.ok()
                                ? spi::Finding{kOk, "spans to " + redact(config.otlp_endpoint), {}}
                                : spi::Finding{kFail, "spans: " + describe(status.error()), {}});
    }
    return findings;
}

std::vector<OpenWay> open_ways(const runtime::RelayConfig& config) {
    std::vector<OpenWay> ways;
    const auto add = [&](std::string where, std::string weakness) {
        if (!weakness.empty()) ways.push_back({std::move(where), std::move(weakness)});
    };
    add("the database", weakness_of_database(config.source.url));
    add("the receiver of spans", weakness_of_spans(config.otlp_endpoint));
    for (const runtime::RouteConfig& route : config.routes) {
        add("the destination of " + route.name, weakness_of(config, route));
        add("the object store of " + route.name, weakness_of_store(route.claim_check));
        add("the schema registry of " + route.name, weakness_of_registry(route.schema_registry));
    }
    return ways;
}

int print_findings(const std::vector<spi::Finding>& findings) {
    bool failed = false;
    for (const spi::Finding& finding : findings) {
        constexpr std::size_t kIndent = 9;
        failed = failed || finding.grade == kFail;
        std::cout << (finding.grade == kFail   ? coloured(Colour::kRed, "problem  ")
                      : finding.grade == kWarn ? coloured(Colour::kYellow, "warning  ")
                                               : coloured(Colour::kGreen, "ok       "))
                  << indented(redact(finding.text), kIndent) << "\n";
    }
    return failed ? runtime::kExitFailed : runtime::kExitOk;
}

}  // namespace outbox::app
