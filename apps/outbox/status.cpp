#include <algorithm>
#include <cmath>
#include <iostream>
#include <nlohmann/json.hpp>

#include "commands.h"
#include "consumer/operate.h"
#include "core/url.h"
#include "core/utf8.h"
#include "print.h"
#include "registry.h"
#include "report.h"
#include "runtime/exit_codes.h"
#include "saga/operate.h"
#include "webhook/registry.h"

namespace outbox::app {
namespace {

// What the alerts of the operating guide call critical and noteworthy.
constexpr std::int64_t kBacklogWarning = 1'000;
constexpr std::int64_t kBacklogCritical = 10'000;
constexpr double kOldestWarningS = 5;

// Whether the database has a consumer's tables.
Result<bool> read_consumers(ConsumerOperations& operations, Report& report) {
    auto there = operations.has_tables();
    if (!there.ok() || !*there) return there;
    auto consumers = operations.consumers();
    if (!consumers.ok()) return consumers.error();
    report.consumers = std::move(*consumers);
    auto mailboxes = operations.mailboxes();
    if (!mailboxes.ok()) return mailboxes.error();
    report.mailboxes = std::move(*mailboxes);
    return true;
}

// Nothing where the database has no table of sagas.
Status read_sagas(saga::SagaOperations& operations, Report& report) {
    const auto there = operations.has_table();
    if (!there.ok() || !*there) return there.status();
    auto counts = operations.counts();
    if (!counts.ok()) return counts.status();
    report.sagas = std::move(*counts);
    report.has_sagas = true;
    return {};
}

// Nothing where the database has no tables of webhooks.
Status read_webhooks(webhook::Registry& registry, Report& report) {
    const auto there = registry.has_tables();
    if (!there.ok() || !*there) return there.status();
    auto delivering = registry.delivering();
    if (!delivering.ok()) return delivering.status();
    auto endpoints = registry.list(true);
    if (!endpoints.ok()) return endpoints.status();
    report.has_webhooks = true;
    report.delivering = std::move(*delivering);
    report.endpoints = std::move(*endpoints);
    return {};
}

std::int64_t waiting_of(const Report& report) {
    std::int64_t waiting = 0;
    for (const webhook::EndpointReport& one : report.endpoints) waiting += one.waiting;
    return waiting;
}

// What waits where no relay has a route to these endpoints, or none runs.
std::string webhook_remark(const Report& report) {
    const std::int64_t waiting = waiting_of(report);
    if (report.delivering.held || waiting == 0) return {};
    return "no relay delivers webhooks, and " + with_commas(waiting) +
           " wait; they stay until one has a route webhook+... to this database again, or their "
           "endpoints are deleted: outbox webhook delete ID --yes";
}

// Of a relay that would lead with others than those of its tenants are now.
bool has_other_routes(const StandbyInfo& standby, const Report& report) {
    const auto of_its_tenants =
        std::find_if(report.leases.begin(), report.leases.end(),
                     [&](const LeaseInfo& lease) { return lease.tenants == standby.tenants; });
    if (of_its_tenants == report.leases.end()) return false;
    std::vector<std::string> its = standby.routes;
    std::sort(its.begin(), its.end());
    return its != of_its_tenants->routes;
}

LeaseInfo first_lease(const Report& report) {
    return report.leases.empty() ? LeaseInfo{} : report.leases.front();
}

nlohmann::ordered_json json_of(const LeaseInfo& lease) {
    return {{"held", lease.held},
            {"owner", lease.owner},
            {"epoch", lease.epoch},
            {"acquired_at", time_text(lease.acquired_at_us)},
            {"expires_in_ms", lease.expires_in_ms}};
}

double total_rate(const Report& report) {
    double rate = 0;
    for (const RouteInfo& route : report.routes) rate += route.rate_per_s;
    return rate;
}

}  // namespace

std::string table_remark(bool is_other_table) {
    if (!is_other_table) return {};
    return other_table_text("the backlog is what these leave open");
}

nlohmann::ordered_json json_of(const Report& report) {
    nlohmann::ordered_json routes = nlohmann::ordered_json::array();
    for (const RouteInfo& route : report.routes) {
        routes.push_back({{"name", route.name},
                          {"published_total", route.published_total},
                          {"dead_total", route.dead_total},
                          {"failing", route.failing},
                          {"dead", route.dead},
                          {"circuit", route.circuit},
                          {"path", route.path},
                          {"path_reason", redact(route.path_reason)},
                          {"rate_per_s", route.rate_per_s},
                          {"last_error", redact(route.last_error)},
                          {"last_error_at", time_text(route.last_error_at_us)},
                          {"updated_at", time_text(route.updated_at_us)},
                          {"retired", route.retired}});
    }
    nlohmann::ordered_json leases = nlohmann::ordered_json::array();
    for (const LeaseInfo& lease : report.leases) {
        leases.push_back(json_of(lease));
        leases.back()["tenants"] = lease.tenants;
        leases.back()["routes"] = lease.routes;
    }
    nlohmann::ordered_json standbys = nlohmann::ordered_json::array();
    for (const StandbyInfo& standby : report.standbys) {
        standbys.push_back({{"owner", standby.owner},
                            {"routes", standby.routes},
                            {"other_routes", has_other_routes(standby, report)},
                            {"seen_at", time_text(standby.seen_at_us)}});
    }
    nlohmann::ordered_json paused = nlohmann::ordered_json::array();
    for (const Report::Paused& one : report.paused) {
        paused.push_back({{"tenant", one.tenant.tenant_id},
                          {"waiting", one.counted ? nlohmann::ordered_json(one.kept.count)
                                                  : nlohmann::ordered_json()},
                          {"more", one.kept.more},
                          {"since", time_text(one.tenant.since_us)},
                          {"who", one.tenant.who},
                          {"reason", one.tenant.reason}});
    }
    nlohmann::ordered_json consumers = nlohmann::ordered_json::array();
    for (const ConsumerInfo& consumer : report.consumers) {
        consumers.push_back(
            {{"name", consumer.name},
             {"applied_total", consumer.applied_total},
             {"repeats_total", consumer.repeats_total},
             {"failed_total", consumer.failed_total},
             {"dead", consumer.dead},
             {"lag", consumer.lag ? nlohmann::ordered_json(*consumer.lag) : nullptr},
             {"floor", time_text(consumer.floor_us)},
             {"updated_at", time_text(consumer.updated_at_us)}});
    }
    nlohmann::ordered_json mailboxes = nlohmann::ordered_json::array();
    for (const MailboxInfo& mailbox : report.mailboxes) {
        mailboxes.push_back({{"name", mailbox.name},
                             {"waiting", mailbox.waiting},
                             {"oldest_age_s", mailbox.oldest_age_s}});
    }
    nlohmann::ordered_json sagas = nlohmann::ordered_json::array();
    for (const SagaCount& count : report.sagas) {
        sagas.push_back({{"name", count.name},
                         {"state", saga_state_name(count.state)},
                         {"count", count.count},
                         {"idle_s", count.oldest_s}});
    }
    nlohmann::ordered_json webhooks;
    if (report.has_webhooks) {
        nlohmann::ordered_json endpoints = nlohmann::ordered_json::array();
        for (const webhook::EndpointReport& one : report.endpoints) {
            const webhook::Endpoint& endpoint = one.endpoint;
            endpoints.push_back(
                {{"id", endpoint.id},
                 {"state", endpoint.enabled() ? "enabled" : "disabled"},
                 {"waiting", one.waiting},
                 {"failing", one.failing},
                 {"dead", one.dead},
                 {"missed_total", endpoint.missed_total},
                 {"oldest_waiting_at", text_or_null(time_text(one.oldest_at_us))},
                 {"failing_since", text_or_null(time_text(endpoint.failing_since_us))},
                 {"next_attempt_at", text_or_null(time_text(one.next_attempt_at_us()))},
                 {"last_error", text_or_null(redact(endpoint.last_error))}});
        }
        webhooks = {{"delivered_by", report.delivering.held
                                         ? nlohmann::ordered_json(report.delivering.owner)
                                         : nlohmann::ordered_json()},
                    {"waiting", waiting_of(report)},
                    {"remark", text_or_null(webhook_remark(report))},
                    {"endpoints", endpoints}};
    }
    nlohmann::ordered_json not_shown = nlohmann::ordered_json::array();
    for (const std::string& what : report.not_shown) not_shown.push_back(redact(what));
    return {{"source", report.source},
            {"backlog", report.database.backlog},
            {"backlog_estimated", report.database.estimated},
            {"remark", text_or_null(table_remark(report.is_other_table))},
            {"oldest_age_s", report.database.oldest_age_s},
            {"failing", report.database.failing},
            {"dead", report.database.dead},
            {"scheduled", report.database.scheduled},
            {"owed", report.database.owed},
            {"rate_per_s", total_rate(report)},
            {"lease", json_of(first_lease(report))},
            {"leases", leases},
            {"standbys", standbys},
            {"paused_tenants", paused},
            {"routes", routes},
            {"consumers", consumers},
            {"mailboxes", mailboxes},
            {"sagas", sagas},
            {"webhooks", webhooks},
            {"not_shown", not_shown}};
}

struct ReportReader::Open {
    OperatedOutbox outbox = {};
    std::unique_ptr<spi::Recorder> recorder = {};
    std::unique_ptr<ConsumerOperations> consumers = {};
    std::unique_ptr<saga::SagaOperations> sagas = {};
    std::unique_ptr<webhook::Registry> webhooks = {};
};

ReportReader::ReportReader(SourceConfig config, bool table_named)
    : config_(std::move(config)), table_named_(table_named) {
    close();
}

ReportReader::~ReportReader() = default;

void ReportReader::close() {
    open_ = std::make_unique<Open>();
}

Status ReportReader::open_source() {
    if (open_->recorder != nullptr) return {};
    auto outbox = open_outbox(config_);
    if (!outbox.ok()) return outbox.status();
    auto recorder = outbox->source->open_recorder();
    if (!recorder.ok()) return recorder.status();
    open_->outbox = std::move(*outbox);
    open_->recorder = std::move(*recorder);
    return {};
}

Status ReportReader::open_others() {
    if (open_->webhooks != nullptr) return {};
    auto consumers = open_consumer_operations(config_);
    if (!consumers.ok()) return consumers.status();
    open_->consumers = std::move(*consumers);
    const auto open = [this] {
        return open_consumer_sql(config_.url, static_cast<int>(config_.connect_timeout.count()),
                                 {config_.owners});
    };
    auto sagas = open();
    if (!sagas.ok()) return sagas.status();
    open_->sagas = std::make_unique<saga::SagaOperations>(std::move(*sagas));
    auto webhooks = open();
    if (!webhooks.ok()) return webhooks.status();
    open_->webhooks = webhook::Registry::make(std::move(*webhooks), {});
    return {};
}

Status ReportReader::read_paused(Report& report) {
    constexpr std::size_t kCounted = 10;  // each reads the table
    Operations& operations = *open_->outbox.operations;
    auto paused = operations.paused_tenants();
    if (!paused.ok()) {
        if (!lacks_rights(paused.error())) return paused.status();
        report.not_shown.push_back(describe(paused.error()));
        return {};
    }
    for (PausedTenant& tenant : *paused) {
        Report::Paused& one = report.paused.emplace_back();
        one.tenant = std::move(tenant);
        if (report.paused.size() > kCounted) continue;
        const auto kept = operations.unfinished_of_tenant(one.tenant.tenant_id);
        if (!kept.ok() && !is_not_known(kept.error())) return kept.status();
        one.counted = kept.ok();
        if (kept.ok()) one.kept = *kept;
    }
    return {};
}

Status ReportReader::read_source(Report& report, bool with_destinations) {
    if (Status status = open_source(); !status.ok()) return status;
    report.source = open_->outbox.source->table_name();
    auto stats = open_->recorder->stats();
    if (!stats.ok()) return stats.status();
    report.database = *stats;
    const auto other = open_->outbox.operations->is_other_table();
    if (!other.ok()) {
        if (!lacks_rights(other.error())) return other.status();
        report.not_shown.push_back(describe(other.error()));
    }
    report.is_other_table = other.ok() && *other;
    auto leases = open_->outbox.operations->leases();
    if (!leases.ok()) return leases.status();
    report.leases = std::move(*leases);
    auto routes = open_->outbox.operations->routes();
    if (!routes.ok()) return routes.status();
    report.routes = std::move(*routes);
    // Of the table: its relays may have served other tenants.
    report.database.dead = 0;
    for (const RouteInfo& route : report.routes) report.database.dead += route.dead;
    auto standbys = open_->outbox.operations->standbys();
    if (!standbys.ok()) return standbys.status();
    report.standbys = std::move(*standbys);
    if (Status status = read_paused(report); !status.ok()) return status;
    if (!with_destinations) return {};
    auto ledgers = open_->outbox.operations->ledger_routes(true);
    if (!ledgers.ok()) return ledgers.status();
    report.ledgers = std::move(*ledgers);
    return {};
}

// A database may have one side only, and a role rights to one only, which it is shown.
Result<Report> ReportReader::read_parts(bool with_destinations) {
    Report report;
    const Status source = read_source(report, with_destinations);
    const bool is_missing = !source.ok() && source.error().code == ErrorCode::kNoSuchTable;
    const bool may_be_absent = is_missing || (!source.ok() && lacks_rights(source.error()));
    // A table that is asked for by name is not replaced by what else there is, and a server that
    // does not answer is not asked again.
    if (!source.ok() && (table_named_ || !may_be_absent)) return source;
    const Status others = open_others();
    if (!source.ok()) {
        if (is_missing && others.ok() &&
            !is_consumers_side_only(*open_->consumers, source.error())) {
            return source;
        }
        report = Report();
        report.has_source = false;
    }
    const Result<bool> consumes =
        others.ok() ? read_consumers(*open_->consumers, report) : Result<bool>(others);
    const bool has_consumers = consumes.ok() && *consumes;
    const Status sagas = has_consumers ? read_sagas(*open_->sagas, report) : Status();
    const Status webhooks = others.ok() ? read_webhooks(*open_->webhooks, report) : Status();
    if (!source.ok() && !has_consumers && !report.has_webhooks) {
        return consumes.ok() ? source : consumes.status();
    }
    for (const Status& part : {consumes.ok() ? Status() : consumes.status(), sagas, webhooks}) {
        if (part.ok()) continue;
        if (!lacks_rights(part.error())) return part;
        report.not_shown.push_back(describe(part.error()));
    }
    if (!source.ok() && lacks_rights(source.error())) {
        report.not_shown.push_back(describe(source.error()));
    }
    return report;
}

Result<Report> ReportReader::read(bool with_destinations) {
    auto report = read_parts(with_destinations);
    if (!report.ok()) close();
    return report;
}

namespace {

std::string marked(const std::string& text, bool warning, bool critical) {
    if (critical) return coloured(Colour::kRed, text);
    return warning ? coloured(Colour::kYellow, text) : text;
}

void print_line(std::string_view name, const std::string& text) {
    std::string label(name);
    label.resize(12, ' ');
    std::cout << label << text << "\n";
}

void print_paused(const Report& report) {
    constexpr std::size_t kShown = 10;
    for (std::size_t i = 0; i < std::min(report.paused.size(), kShown); ++i) {
        const Report::Paused& one = report.paused[i];
        std::string text =
            coloured(Colour::kYellow, "tenant " + to_printable(one.tenant.tenant_id));
        if (one.counted) {
            text += ", " + with_commas(one.kept.count) + (one.kept.more ? "+" : "") +
                    " of the backlog kept";
        }
        print_line("paused", text + ", since " + time_text(one.tenant.since_us).substr(0, 19) +
                                 "Z by " + to_printable(one.tenant.who) + ": " +
                                 to_printable(one.tenant.reason));
    }
    if (report.paused.size() > kShown) {
        print_line("paused", std::to_string(report.paused.size() - kShown) +
                                 " more tenants: outbox tenant list");
    }
}

void print_relay(const LeaseInfo& lease) {
    constexpr std::size_t kTenantColumns = 60;
    std::string text = lease.held ? coloured(Colour::kGreen, to_printable(lease.owner))
                                  : coloured(Colour::kYellow, "none is running");
    if (!lease.tenants.empty()) {
        std::string names;
        for (const std::string& tenant : lease.tenants)
            names += (names.empty() ? "" : ", ") + tenant;
        text += " for tenants " + shortened(names, kTenantColumns);
    }
    if (lease.held) {
        text += ", epoch " + std::to_string(lease.epoch) + ", since " +
                time_text(lease.acquired_at_us).substr(0, 19) + "Z";
    } else if (lease.epoch > 0) {
        text += ", last epoch " + std::to_string(lease.epoch);
    }
    print_line("relay", text);
}

void print_summary(const Report& report) {
    const auto& database = report.database;
    print_line("source", coloured(Colour::kBold, report.source));
    std::string backlog = (database.estimated ? "about " : "") + with_commas(database.backlog);
    backlog =
        marked(backlog, database.backlog > kBacklogWarning, database.backlog > kBacklogCritical);
    if (database.backlog > 0) {
        backlog += ", oldest " + marked(age_text(database.oldest_age_s),
                                        database.oldest_age_s > kOldestWarningS, false);
    }
    print_line("backlog", backlog);
    if (const std::string remark = table_remark(report.is_other_table); !remark.empty()) {
        print_line("remark", coloured(Colour::kYellow, remark));
    }
    print_line("scheduled", with_commas(database.scheduled));
    if (database.owed > 0) {
        print_line("owed", marked(with_commas(database.owed), true, false) +
                               ": delivered rows that somebody holds or the table keeps, and "
                               "delayed events that it refuses (rows_refused, delayed_refused in "
                               "the relay's log)");
    }
    print_line("failing", marked(with_commas(database.failing), database.failing > 0, false));
    print_line("dead", marked(with_commas(database.dead), false, database.dead > 0));
    print_paused(report);
    if (report.leases.empty()) print_relay({});
    for (const LeaseInfo& lease : report.leases) print_relay(lease);
    for (const StandbyInfo& standby : report.standbys) {
        std::string text = to_printable(standby.owner);
        if (has_other_routes(standby, report)) {
            std::string names;
            for (const std::string& name : standby.routes) {
                names += (names.empty() ? "" : ", ") + to_printable(name);
            }
            text += coloured(Colour::kYellow, " has other routes: " + names);
        }
        print_line("standby", text);
    }
}

void print_routes(const Report& report) {
    constexpr std::size_t kErrorColumns = 60;
    using Align = TextColumns::Align;
    if (report.routes.empty()) return;
    TextColumns columns({{"ROUTE", Align::kLeft},
                         {"PUBLISHED", Align::kRight},
                         {"PER SECOND", Align::kRight},
                         {"FAILING", Align::kRight},
                         {"DEAD", Align::kRight},
                         {"CIRCUIT", Align::kLeft},
                         {"READS BY", Align::kLeft},
                         {"LAST ERROR", Align::kLeft},
                         {"", Align::kLeft}});
    for (const RouteInfo& route : report.routes) {
        columns.add({route.name, with_commas(route.published_total),
                     with_commas(std::llround(route.rate_per_s)), with_commas(route.failing),
                     with_commas(route.dead),
                     route.retired           ? "retired"
                     : route.circuit.empty() ? "-"
                                             : route.circuit,
                     route.retired || route.path.empty() ? "-" : route.path,
                     route.last_error_at_us == 0
                         ? ""
                         : time_text(route.last_error_at_us).substr(0, 19) + "Z",
                     shortened(redact(route.last_error), kErrorColumns)});
    }
    std::cout << "\n";
    columns.print(std::cout);
    for (const RouteInfo& route : report.routes) {
        if (route.retired) {
            const std::string name = to_printable(route.name);
            std::cout << "route " << name
                      << " is retired; its dead letters: outbox dead retry --route " << name
                      << " --to ROUTE, or outbox dead discard --route " << name << "\n";
            continue;
        }
        if (route.path_reason.empty()) continue;
        std::cout << "route " << to_printable(route.name) << " reads by " << route.path << ": "
                  << to_printable(redact(route.path_reason)) << "\n";
    }
}

void print_consumers(const Report& report) {
    using Align = TextColumns::Align;
    if (!report.consumers.empty()) {
        TextColumns columns({{"CONSUMER", Align::kLeft},
                             {"APPLIED", Align::kRight},
                             {"REPEATS", Align::kRight},
                             {"FAILED", Align::kRight},
                             {"DEAD", Align::kRight},
                             {"LAG", Align::kRight},
                             {"REPORTED", Align::kLeft}});
        for (const ConsumerInfo& consumer : report.consumers) {
            columns.add({consumer.name, with_commas(consumer.applied_total),
                         with_commas(consumer.repeats_total), with_commas(consumer.failed_total),
                         with_commas(consumer.dead),
                         consumer.lag ? with_commas(*consumer.lag) : "?",
                         consumer.updated_at_us == 0
                             ? "-"
                             : time_text(consumer.updated_at_us).substr(0, 19) + "Z"});
        }
        std::cout << "\n";
        columns.print(std::cout);
    }
    if (!report.mailboxes.empty()) {
        TextColumns columns(
            {{"MAILBOX", Align::kLeft}, {"WAITING", Align::kRight}, {"OLDEST", Align::kRight}});
        for (const MailboxInfo& mailbox : report.mailboxes) {
            columns.add(
                {mailbox.name, with_commas(mailbox.waiting), age_text(mailbox.oldest_age_s)});
        }
        std::cout << "\n";
        columns.print(std::cout);
    }
}

void print_sagas(const Report& report) {
    using Align = TextColumns::Align;
    if (report.sagas.empty()) return;
    TextColumns columns({{"SAGA", Align::kLeft},
                         {"STATE", Align::kLeft},
                         {"COUNT", Align::kRight},
                         {"LONGEST IDLE", Align::kRight}});
    for (const SagaCount& count : report.sagas) {
        const bool open =
            count.state != SagaState::kCompleted && count.state != SagaState::kCompensated;
        columns.add({count.name, std::string(saga_state_name(count.state)),
                     with_commas(count.count), open ? age_text(count.oldest_s) : "-"});
    }
    std::cout << "\n";
    columns.print(std::cout);
}

// Those of which there is something to say.
void print_webhooks(const Report& report) {
    constexpr std::size_t kMaxRows = 50;
    constexpr std::size_t kErrorColumns = 60;
    using Align = TextColumns::Align;
    if (report.endpoints.empty()) return;
    TextColumns columns({{"WEBHOOK", Align::kLeft},
                         {"STATE", Align::kLeft},
                         {"WAITING", Align::kRight},
                         {"DEAD", Align::kRight},
                         {"OLDEST", Align::kLeft},
                         {"FAILING SINCE", Align::kLeft},
                         {"NEXT ATTEMPT", Align::kLeft},
                         {"LAST ERROR", Align::kLeft}});
    const auto time = [](std::int64_t at_us) {
        return at_us == 0 ? std::string("-") : time_text(at_us).substr(0, 19) + "Z";
    };
    std::size_t rows = 0;
    std::size_t well = 0;
    for (const webhook::EndpointReport& one : report.endpoints) {
        const webhook::Endpoint& endpoint = one.endpoint;
        const std::string& error = endpoint.enabled() ? endpoint.last_error : endpoint.reason;
        const bool quiet = endpoint.enabled() && error.empty() && one.waiting + one.dead == 0;
        well += quiet ? 1 : 0;
        if (quiet || ++rows > kMaxRows) continue;
        columns.add({endpoint.id, endpoint.enabled() ? "enabled" : "disabled",
                     with_commas(one.waiting), with_commas(one.dead), time(one.oldest_at_us),
                     time(endpoint.failing_since_us), time(one.next_attempt_at_us()),
                     shortened(redact(error), kErrorColumns)});
    }
    std::cout << "\n";
    if (rows > 0) columns.print(std::cout);
    if (rows > kMaxRows) {
        std::cout << with_commas(static_cast<std::int64_t>(rows - kMaxRows))
                  << " more: outbox webhook list\n";
    }
    if (well > 0) {
        std::cout << with_commas(static_cast<std::int64_t>(well))
                  << " webhook endpoints have nothing waiting\n";
    }
    if (const std::string remark = webhook_remark(report); !remark.empty()) {
        std::cout << coloured(Colour::kYellow, remark) << "\n";
    }
}

}  // namespace

int run_status(const runtime::Invocation& invocation) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return report(config.error());
    const auto status = ReportReader(*config, invocation.options.given("table")).read();
    if (!status.ok()) return report(status.error());
    if (invocation.options.flag("json")) {
        print_json(json_of(*status));
    } else {
        if (status->has_source) {
            print_summary(*status);
            print_routes(*status);
        } else if (status->not_shown.empty()) {
            print_line("source", "none: this database has the consumer's side only");
        }
        print_consumers(*status);
        print_sagas(*status);
        print_webhooks(*status);
        for (const std::string& what : status->not_shown) {
            std::cout << "\nnot shown: " << to_printable(redact(what)) << "\n";
        }
    }
    return runtime::kExitOk;
}

}  // namespace outbox::app
