// The life of one event, and why it waits.
#include "explain.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>

#include "commands.h"
#include "core/explanation.h"
#include "core/redact.h"
#include "core/table_layout.h"
#include "core/url.h"
#include "core/utf8.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"
#include "webhook/registry.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kLettersOfEvent = 1'000;  // at most one for each route
constexpr std::size_t kLettersOfKey = 100;      // of one route, of which the first is told
constexpr std::size_t kEndpointsOfEvent = 50;
constexpr std::size_t kFieldColumns = 60;
constexpr std::size_t kTextColumn = 22;  // behind a time
constexpr std::size_t kReasonColumn = 4;

ErrorInfo usage(const std::string& message) {
    return runtime::config_error("outbox explain", message);
}

std::int64_t clock_us() {
    return std::chrono::duration_cast<std::chrono::microseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

// What is asked: an id or a key.
struct Question {
    std::string id;
    std::string key;
    std::string tenant = {};  // of the key; empty: of all that have such a key
};

Result<Question> question_of(const runtime::Invocation& invocation) {
    const bool has_key = invocation.options.given("key");
    Question question{{}, has_key ? invocation.options.text("key") : std::string()};
    if (invocation.positionals.size() + (has_key ? 1 : 0) != 1) {
        return usage("give the id of one event, or --key KEY");
    }
    if (!has_key) question.id = invocation.positionals.front();
    if (invocation.options.given("tenant")) {
        question.tenant = invocation.options.text("tenant");
        if (!has_key) return usage("--tenant goes with --key; an id is that of one event");
        if (question.tenant.empty()) return usage("the tenant is empty");
        if (!is_utf8(question.tenant)) return usage("the tenant is not UTF-8");
    }
    const std::string& text = has_key ? question.key : question.id;
    if (text.empty()) return usage(has_key ? "the key is empty" : "the id is empty");
    if (!is_utf8(text)) return usage("what is asked for is not UTF-8, so that no event has it");
    if (!has_key && text.size() > kMaxIdBytes) {
        return usage("an id has at most " + std::to_string(kMaxIdBytes) + " bytes");
    }
    return question;
}

// What the configuration file says of a route's dead letters, where it says something.
std::optional<bool> blocks_key(const runtime::FileContent& file, const std::string& route) {
    constexpr std::string_view kBlocks = "block_key";
    std::optional<bool> known;
    for (const auto& [spec, value] : file.options) {
        if (spec->name == "on-dead-letter") known = value.texts.front() == kBlocks;
    }
    for (const runtime::RouteEntry& entry : file.routes) {
        const auto name = entry.values.find("name");
        if (name == entry.values.end() || name->second.front() != route) continue;
        const auto own = entry.values.find("on_dead_letter");
        if (own != entry.values.end()) return own->second.front() == kBlocks;
        return known.value_or(false);
    }
    return known;
}

Status open_consumer(const runtime::Invocation& invocation, SourceConfig config, Places& places) {
    const runtime::OptionValues& options = invocation.options;
    if (!options.given("consumer-db")) return {};
    if (options.list("consumer-db").size() > 1) {
        return runtime::config_error(options.where("consumer-db"), "one of them at a time");
    }
    config.url = options.text("consumer-db");
    if (const std::string weakness = weakness_of_database(config.url);
        config.require_tls && !weakness.empty()) {
        return runtime::config_error(options.where("consumer-db"), "the database " + weakness);
    }
    auto consumer = open_consumer_operations(config);
    if (!consumer.ok()) return consumer.status();
    const auto there = (*consumer)->has_tables();
    if (!there.ok()) return there.status();
    if (!*there) {
        return {ErrorCode::kNoSuchTable, Advice::kStop,
                "the database of --consumer-db has no consumer's tables: outbox migrate --db URL "
                "--only consumer makes them"};
    }
    if (places.webhooks.front().url != config.url) places.webhooks.push_back(config);
    places.consumers.push_back(
        {config.url, [asked = std::shared_ptr(std::move(*consumer))](const std::string& id) {
             return asked->find(id);
         }});
    return {};
}

}  // namespace

BlocksKey blocks_key_of(const runtime::FileContent& file) {
    return [file](const std::string& route) { return blocks_key(file, route); };
}

Result<Places> open_places(const SourceConfig& config, BlocksKey blocks_key) {
    Places places;
    auto tracer = open_tracer(config);
    if (!tracer.ok()) return tracer.error();
    places.tracer = std::move(*tracer);
    auto operations = open_operations(config, places.tracer->table().name);
    if (!operations.ok()) return operations.error();
    places.operations = std::move(*operations);
    places.webhooks.push_back(config);
    places.blocks_key = std::move(blocks_key);
    return places;
}

namespace {

Result<Places> places_of(const runtime::Invocation& invocation) {
    auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    config->tenants.clear();  // it says whose key is meant, and is no source's
    auto places = open_places(*config, blocks_key_of(invocation.file));
    if (!places.ok()) return places;
    if (Status status = open_consumer(invocation, *config, *places); !status.ok()) return status;
    return places;
}

// What may hold it back is only looked for where it is not sent yet.
Status add_what_holds(Places& places, Facts& facts) {
    const EventTrace& trace = facts.trace;
    const bool unfinished = trace.routes.empty() ||
                            std::any_of(trace.routes.begin(), trace.routes.end(),
                                        [](const TracedRoute& route) { return !route.finished; });
    if (!trace.row || unfinished) {
        auto writers = places.tracer->open_writers();
        if (!writers.ok()) return writers.status();
        facts.writers = std::move(*writers);
    }
    if (!trace.row || trace.row->key.empty()) return {};
    for (const TracedRoute& route : trace.routes) {
        if (route.finished) continue;
        const auto letters = places.operations->dead(
            {.route = route.route, .key = trace.row->key, .tenant = trace.row->tenant_id}, 0,
            kLettersOfKey, false);
        if (!letters.ok()) return letters.status();
        for (const DeadInfo& dead : *letters) {
            const bool earlier = trace.row->position == 0 || dead.position < trace.row->position;
            if (dead.unmatched || dead.id == facts.id || !earlier) continue;
            facts.dead_of_key.push_back(dead);
            break;
        }
    }
    return {};
}

void add_received(const Places& places, const std::string& id, Facts& facts) {
    // Records of the format debezium have the id that stands in the row.
    const std::string prefix = facts.table.name + ":";
    const std::string bare = id.starts_with(prefix) ? id.substr(prefix.size()) : "";
    for (const ConsumersPlace& place : places.consumers) {
        auto received = place.find(id);
        if (received.ok() && received->found.empty() && !bare.empty()) {
            received = place.find(bare);
            if (received.ok() && !received->found.empty()) facts.received_as = bare;
        }
        if (!received.ok()) {
            facts.unasked.push_back(redact(place.url) + ": " + redact(describe(received.error())));
            continue;
        }
        ReceivedMessages& all = facts.received ? *facts.received : facts.received.emplace();
        std::move(received->found.begin(), received->found.end(), std::back_inserter(all.found));
        std::move(received->consumers.begin(), received->consumers.end(),
                  std::back_inserter(all.consumers));
    }
}

// Nothing: the database has no tables of webhooks.
Result<std::optional<EndpointDeliveries>> deliveries_in(const SourceConfig& config,
                                                        const std::string& id,
                                                        const std::string& key, std::size_t limit) {
    auto sql = open_consumer_sql(config.url, static_cast<int>(config.connect_timeout.count()),
                                 {config.owners});
    if (!sql.ok()) return sql.status();
    const auto registry = webhook::Registry::make(std::move(*sql), {});
    const auto there = registry->has_tables();
    if (!there.ok()) return there.status();
    if (!*there) return std::optional<EndpointDeliveries>();
    auto found = id.empty() ? registry->deliveries_of_key(key, limit)
                            : registry->deliveries_of_event(id, limit);
    if (!found.ok()) return found.status();
    return std::optional(std::move(*found));
}

// Of an event, or of a key where no id is given. A database that does not answer is told by
// `unasked`.
std::optional<EndpointDeliveries> deliveries_of(const Places& places, const std::string& id,
                                                const std::string& key, std::size_t limit,
                                                std::vector<std::string>& unasked) {
    std::optional<EndpointDeliveries> all;
    for (const SourceConfig& config : places.webhooks) {
        auto found = deliveries_in(config, id, key, limit);
        if (!found.ok()) {
            unasked.push_back(redact(config.url) + ": " + redact(describe(found.error())));
            continue;
        }
        if (!*found) continue;
        if (!all) all.emplace();
        std::move((*found)->found.begin(), (*found)->found.end(), std::back_inserter(all->found));
        all->more = all->more || (*found)->more;
    }
    return all;
}

// The event itself, out of a dead letter where its row is gone; nothing: it is not known.
std::optional<TracedEvent> event_of(const Facts& facts) {
    if (facts.trace.row || facts.dead.empty()) return facts.trace.row;
    const DeadInfo& dead = facts.dead.front();
    return TracedEvent{.id = dead.id,
                       .position = facts.table.keeps_ledger ? dead.position : 0,
                       .aggregate_type = dead.aggregate_type,
                       .event_type = dead.event_type,
                       .tenant_id = dead.tenant_id,
                       .topic = dead.topic,
                       .key = dead.key.empty() ? dead.aggregate_id : dead.key,
                       .occurred_at_us = dead.occurred_at_us};
}

Result<Facts> collect(Places& places, EventTrace trace, const std::string& id) {
    Facts facts;
    facts.id = id;
    facts.table = places.tracer->table();
    facts.trace = std::move(trace);
    facts.now_us = clock_us();
    facts.blocks_key = places.blocks_key;
    const auto leases = places.operations->leases();
    if (!leases.ok()) return leases.status();
    auto paused = places.operations->paused_tenants();
    if (!paused.ok() && !lacks_rights(paused.error())) return paused.status();
    if (paused.ok()) facts.paused = std::move(*paused);
    auto routes = places.operations->routes();
    if (!routes.ok()) return routes.status();
    facts.routes = std::move(*routes);
    auto dead = places.operations->dead({.ids = {id}}, 0, kLettersOfEvent, false);
    if (!dead.ok()) return dead.status();
    facts.dead = std::move(*dead);
    // They may be of an event that had the id in a former life of the table.
    if (facts.trace.row && facts.table.is_other && !facts.table.ids_are_uuids) facts.dead.clear();
    const auto event = event_of(facts);
    facts.lease = event             ? lease_of_tenant(*leases, event->tenant_id)
                  : leases->empty() ? LeaseInfo{}
                                    : leases->front();
    facts.others_are_served =
        std::any_of(leases->begin(), leases->end(), [&](const LeaseInfo& one) {
            return one.held && !one.tenants.empty() && one.tenants != facts.lease.tenants;
        });
    auto audit = places.tracer->audit(id);
    if (!audit.ok()) return audit.status();
    facts.audit = std::move(*audit);
    add_received(places, id, facts);
    facts.webhooks = deliveries_of(places, id, {}, kEndpointsOfEvent, facts.unasked_webhooks);
    if (Status status = add_what_holds(places, facts); !status.ok()) return status;
    return facts;
}

// --- How it looks

Colour colour_of(std::string_view state) {
    if (state == "dead") return Colour::kRed;
    return state == "sent" || state == "applied" ? Colour::kGreen : Colour::kYellow;
}

void print_event(const Facts& facts, const Explanation& explanation) {
    print_field("event", shortened(facts.id, kMaxIdBytes), Colour::kBold);
    print_field("state", std::string(explanation.state), colour_of(explanation.state));
    print_field("table", facts.table.name);
    if (facts.lease.held) print_field("relay", shortened(facts.lease.owner, kFieldColumns));
    const auto row = event_of(facts);
    if (!row) return;
    if (row->position > 0) print_field("position", std::to_string(row->position));
    print_field("key", shortened(row->key, kFieldColumns));
    print_field("aggregate type", shortened(row->aggregate_type, kFieldColumns));
    print_field("event type", shortened(row->event_type, kFieldColumns));
    print_field("topic", shortened(row->topic, kFieldColumns));
    if (row->tenant_id != "default") {
        print_field("tenant", shortened(row->tenant_id, kFieldColumns));
    }
}

void print_timeline(const Explanation& explanation) {
    if (!explanation.timeline.empty()) std::cout << "\n";
    for (const Moment& moment : explanation.timeline) {
        std::string time = moment.at_us == 0 ? "(no time is kept)" : second_text(moment.at_us);
        time.resize(kTextColumn, ' ');
        const std::string text = wrapped(
            moment.where.empty() ? moment.text : moment.where + ": " + moment.text, kTextColumn);
        std::cout << time << (moment.bad ? coloured(Colour::kRed, text) : text) << "\n";
    }
}

void print_waits(const Explanation& explanation) {
    if (explanation.waits.empty()) return;
    std::cout << "\n" << coloured(Colour::kBold, "why it waits") << "\n";
    for (const Waiting& waiting : explanation.waits) {
        const std::string where =
            waiting.route.empty() ? std::string() : "route " + waiting.route + ": ";
        std::cout << "  - " << wrapped(where + waiting.text, kReasonColumn) << "\n";
    }
}

void print_remarks(const Explanation& explanation) {
    if (!explanation.remarks.empty()) std::cout << "\n";
    for (const std::string& remark : explanation.remarks) {
        std::cout << "  - " << wrapped(remark, kReasonColumn) << "\n";
    }
}

void print_whole(const Facts& facts, const Explanation& explanation) {
    print_event(facts, explanation);
    print_timeline(explanation);
    print_waits(explanation);
    print_remarks(explanation);
}

ordered_json json_of(const TracedRoute& route) {
    ordered_json out{{"name", route.route},
                     {"finished", route.finished},
                     {"passed_over", route.passed},
                     {"attempts", route.failing ? route.failing->attempts : 0}};
    if (route.failing) {
        out["first_failed_at"] = time_or_null(route.failing->first_failed_us);
        out["next_attempt_at"] = time_or_null(route.failing->next_attempt_us);
        out["error_code"] = route.failing->error_code;
        out["error"] = redact(route.failing->error);
    }
    return out;
}

ordered_json json_of(const EndpointDelivery& one) {
    return {{"endpoint", one.endpoint},
            {"id", one.event_id},
            {"dead", one.dead},
            {"written_at", time_or_null(one.written_at_us)},
            {"attempts", one.failing.attempts},
            {"first_failed_at", time_or_null(one.failing.first_failed_us)},
            {"next_attempt_at", time_or_null(one.failing.next_attempt_us)},
            {"error", text_or_null(redact(one.failing.error))},
            {"endpoint_disabled", one.endpoint_disabled}};
}

ordered_json json_of(const std::optional<EndpointDeliveries>& webhooks) {
    ordered_json out = ordered_json::array();
    if (!webhooks) return out;
    for (const EndpointDelivery& one : webhooks->found) out.push_back(json_of(one));
    return out;
}

ordered_json json_of(const OpenWriter& writer) {
    return {{"pid", writer.pid == 0 ? ordered_json() : ordered_json(writer.pid)},
            {"prepared", text_or_null(writer.prepared)},
            {"user", writer.user},
            {"application", writer.application},
            {"state", text_or_null(writer.state)},
            {"began_at", time_or_null(writer.began_at_us)},
            {"statement_at", time_or_null(writer.statement_at_us)}};
}

ordered_json json_of(const Facts& facts, const Explanation& explanation) {
    ordered_json out{{"id", facts.id}, {"state", explanation.state}};
    if (const auto row = event_of(facts)) {
        out["position"] = row->position > 0 ? ordered_json(row->position) : ordered_json();
        out["key"] = text_or_null(row->key);
        out["aggregate_type"] = text_or_null(row->aggregate_type);
        out["event_type"] = text_or_null(row->event_type);
        out["topic"] = text_or_null(row->topic);
        out["tenant_id"] = text_or_null(row->tenant_id);
        out["transaction"] = text_or_null(row->transaction);
        out["occurred_at"] = time_or_null(row->occurred_at_us);
        out["available_at"] = time_or_null(row->available_at_us);
    }
    out["relay"] = facts.lease.held ? ordered_json(facts.lease.owner) : ordered_json();
    out["routes"] = ordered_json::array();
    for (const TracedRoute& route : facts.trace.routes) out["routes"].push_back(json_of(route));
    out["webhooks"] = json_of(facts.webhooks);
    out["timeline"] = ordered_json::array();
    for (const Moment& moment : explanation.timeline) {
        out["timeline"].push_back({{"at", time_or_null(moment.at_us)},
                                   {"where", text_or_null(moment.where)},
                                   {"text", moment.text}});
    }
    out["waits"] = ordered_json::array();
    for (const Waiting& waiting : explanation.waits) {
        out["waits"].push_back({{"route", text_or_null(waiting.route)},
                                {"reason", waiting.reason},
                                {"behind", text_or_null(waiting.behind)},
                                {"next_attempt_at", time_or_null(waiting.next_attempt_us)},
                                {"text", waiting.text}});
    }
    out["open_transactions"] = ordered_json::array();
    for (const OpenWriter& writer : facts.writers) {
        out["open_transactions"].push_back(json_of(writer));
    }
    out["remarks"] = explanation.remarks;
    return out;
}

// --- What is done

/// An event, and what there is to say of it.
struct Explained {
    Facts facts;
    Explanation explanation;
};

// Events of an id, or one that nobody knows.
Result<std::vector<Explained>> explain_id(Places& places, const std::string& asked) {
    const TracedTable& table = places.tracer->table();
    const std::string id = places.tracer->event_id(asked);
    if (table.ids_are_uuids && !looks_like_uuid(id)) {
        return usage("'" + asked + "' is no id of " + table.name +
                     ", whose ids are UUIDs; a key is asked for with --key");
    }
    auto traces = places.tracer->find(asked);
    if (!traces.ok()) return traces.status();
    if (traces->empty()) traces->emplace_back();
    std::vector<Explained> events;
    for (EventTrace& trace : *traces) {
        auto facts = collect(places, std::move(trace), id);
        if (!facts.ok()) return facts.status();
        Explanation explanation = explain(*facts);
        events.push_back({std::move(*facts), std::move(explanation)});
    }
    return events;
}

bool is_known(const std::vector<Explained>& events) {
    return std::any_of(events.begin(), events.end(),
                       [](const Explained& event) { return event.explanation.state != "unknown"; });
}

ordered_json json_of_id(const Places& places, const std::string& asked,
                        const std::vector<Explained>& explained) {
    ordered_json events = ordered_json::array();
    for (const Explained& event : explained) {
        events.push_back(json_of(event.facts, event.explanation));
    }
    return {{"table", places.tracer->table().name},
            {"id", places.tracer->event_id(asked)},
            {"events", events}};
}

int print_id(const runtime::Invocation& invocation, Places& places, const Question& question) {
    const auto events = explain_id(places, question.id);
    if (!events.ok()) return report(events.error());
    if (invocation.options.flag("json")) {
        print_json(json_of_id(places, question.id, *events));
    } else {
        bool first = true;
        for (const Explained& event : *events) {
            if (!first) std::cout << "\n";
            print_whole(event.facts, event.explanation);
            first = false;
        }
    }
    return is_known(*events) ? runtime::kExitOk : runtime::kExitFailed;
}

/// What is not over of a key.
struct OfKey {
    std::vector<EventTrace> waiting;
    bool more_waiting = false;
    std::vector<DeadInfo> dead;
    std::int64_t all_dead = 0;
    std::vector<ScheduledInfo> delayed;
    std::int64_t all_delayed = 0;
    std::optional<EndpointDeliveries> webhooks;
    std::vector<std::string> unasked;
    std::vector<OpenWriter> writers;  // where nothing else is known
    [[nodiscard]] bool nothing() const {
        return waiting.empty() && dead.empty() && delayed.empty() &&
               (!webhooks || webhooks->found.empty());
    }
};

Result<OfKey> read_key(Places& places, const std::string& key, const std::string& tenant,
                       std::size_t limit) {
    OfKey out;
    auto waiting = places.tracer->of_key(key, tenant, limit + 1);
    if (!waiting.ok()) return waiting.status();
    out.waiting = std::move(*waiting);
    out.more_waiting = out.waiting.size() > limit;
    if (out.more_waiting) out.waiting.pop_back();
    const DeadFilter letters{.key = key, .tenant = tenant};
    auto dead = places.operations->dead(letters, 0, limit, false);
    if (!dead.ok()) return dead.status();
    out.dead = std::move(*dead);
    const auto all_dead = places.operations->count_dead(letters);
    if (!all_dead.ok()) return all_dead.status();
    out.all_dead = *all_dead;
    // Whatever the tenant: deliveries keep none.
    out.webhooks = deliveries_of(places, {}, key, limit, out.unasked);
    const ScheduledFilter delayed_of_key{.key = key, .tenant = tenant};
    auto delayed = places.operations->scheduled(delayed_of_key, limit);
    if (!delayed.ok()) {  // not every table has some
        if (delayed.error().code == ErrorCode::kUnsupported) return out;
        return delayed.status();
    }
    out.delayed = std::move(*delayed);
    const auto all_delayed = places.operations->count_scheduled(delayed_of_key);
    if (!all_delayed.ok()) return all_delayed.status();
    out.all_delayed = *all_delayed;
    return out;
}

std::string times_text(std::int64_t count) {
    return std::to_string(count) + (count == 1 ? " time" : " times");
}

std::string state_of(const EventTrace& trace) {
    std::int64_t attempts = 0;
    for (const TracedRoute& route : trace.routes) {
        if (route.failing) attempts = std::max(attempts, route.failing->attempts);
    }
    if (attempts == 0) return "waiting";  // perhaps for its topic
    return "failed " + times_text(attempts);
}

std::string state_of(const EndpointDelivery& one) {
    const std::int64_t attempts = one.failing.attempts;
    return (one.dead        ? std::string("dead")
            : attempts == 0 ? std::string("waiting")
                            : "failed " + times_text(attempts)) +
           " at endpoint " + one.endpoint;
}

void print_key(const OfKey& of_key, const std::string& key, const TracedTable& table) {
    constexpr std::size_t kTypeColumns = 20;
    constexpr const char* kNoTenant = "-";  // deliveries to endpoints keep none
    using Align = TextColumns::Align;
    print_field("key", shortened(key, kFieldColumns), Colour::kBold);
    print_field("table", table.name);
    std::cout << "\n";
    struct Line {
        std::string id;
        std::string state;
        std::string type;
        std::string tenant;
    };
    std::vector<Line> lines;
    for (const DeadInfo& dead : of_key.dead) {
        lines.push_back({dead.id, "dead in " + shortened(dead.route, kTypeColumns), dead.event_type,
                         dead.tenant_id});
    }
    for (const EventTrace& trace : of_key.waiting) {
        lines.push_back(
            {trace.row->id, state_of(trace), trace.row->event_type, trace.row->tenant_id});
    }
    if (of_key.webhooks) {
        for (const EndpointDelivery& one : of_key.webhooks->found) {
            lines.push_back({one.event_id, state_of(one), one.event_type, kNoTenant});
        }
    }
    for (const ScheduledInfo& delayed : of_key.delayed) {
        lines.push_back({delayed.id, "due " + second_text(delayed.available_at_us),
                         delayed.event_type, delayed.tenant_id});
    }
    std::set<std::string> tenants;
    for (Line& line : lines) {
        if (line.tenant.empty()) line.tenant = "default";
        if (line.tenant != kNoTenant) tenants.insert(line.tenant);
    }
    std::vector<TextColumns::Heading> heads{
        {"ID", Align::kLeft}, {"STATE", Align::kLeft}, {"TYPE", Align::kLeft}};
    if (tenants.size() > 1) heads.push_back({"TENANT", Align::kLeft});
    TextColumns columns(heads);
    for (const Line& line : lines) {
        std::vector<std::string> cells{line.id, line.state, shortened(line.type, kTypeColumns)};
        if (tenants.size() > 1) cells.push_back(shortened(line.tenant, kTypeColumns));
        columns.add(std::move(cells));
    }
    columns.print(std::cout);
    const auto rest = [](std::size_t shown, std::int64_t all, const char* what) {
        if (all > static_cast<std::int64_t>(shown)) {
            std::cout << "of " << with_commas(all) << " " << what << "; see more with --limit\n";
        }
    };
    rest(of_key.dead.size(), of_key.all_dead, "dead letters");
    if (of_key.more_waiting) std::cout << "more wait; see them with --limit\n";
    if (of_key.webhooks && of_key.webhooks->more) {
        std::cout << "endpoints wait for more; see them with --limit\n";
    }
    rest(of_key.delayed.size(), of_key.all_delayed, "delayed events");
}

ordered_json json_of_key(const OfKey& of_key, const std::string& key, const TracedTable& table) {
    ordered_json waiting = ordered_json::array();
    for (const EventTrace& trace : of_key.waiting) {
        ordered_json routes = ordered_json::array();
        for (const TracedRoute& route : trace.routes) routes.push_back(json_of(route));
        waiting.push_back({{"id", trace.row->id},
                           {"position", trace.row->position > 0 ? ordered_json(trace.row->position)
                                                                : ordered_json()},
                           {"event_type", text_or_null(trace.row->event_type)},
                           {"tenant_id", text_or_null(trace.row->tenant_id)},
                           {"routes", routes}});
    }
    ordered_json dead = ordered_json::array();
    for (const DeadInfo& one : of_key.dead) {
        dead.push_back({{"id", one.id},
                        {"route", one.route},
                        {"error_code", one.error_code},
                        {"tenant_id", text_or_null(one.tenant_id)}});
    }
    ordered_json delayed = ordered_json::array();
    for (const ScheduledInfo& one : of_key.delayed) {
        delayed.push_back({{"id", one.id},
                           {"available_at", time_or_null(one.available_at_us)},
                           {"tenant_id", text_or_null(one.tenant_id)}});
    }
    ordered_json open = ordered_json::array();
    for (const OpenWriter& writer : of_key.writers) open.push_back(json_of(writer));
    return {{"table", table.name},
            {"key", key},
            {"waiting", waiting},
            {"waiting_is_more", of_key.more_waiting},
            {"dead", dead},
            {"dead_total", of_key.all_dead},
            {"delayed", delayed},
            {"delayed_total", of_key.all_delayed},
            {"webhooks", json_of(of_key.webhooks)},
            {"webhooks_are_more", of_key.webhooks && of_key.webhooks->more},
            {"not_asked", of_key.unasked},
            {"open_transactions", open},
            {"events", ordered_json::array()}};
}

/// A key, and the first event of it that waits.
struct ExplainedKey {
    OfKey of_key;
    std::optional<Explained> first;
};

Result<ExplainedKey> explain_key(Places& places, const std::string& key, const std::string& tenant,
                                 std::size_t limit) {
    auto of_key = read_key(places, key, tenant, limit);
    if (!of_key.ok()) return of_key.status();
    ExplainedKey out{std::move(*of_key), std::nullopt};
    if (out.of_key.nothing()) {
        auto writers = places.tracer->open_writers();
        if (!writers.ok()) return writers.status();
        out.of_key.writers = std::move(*writers);
    }
    if (out.of_key.waiting.empty()) return out;
    const TracedEvent& first = *out.of_key.waiting.front().row;
    auto traces = places.tracer->find(first.id);
    if (!traces.ok()) return traces.status();
    for (EventTrace& trace : *traces) {
        if (!trace.row || trace.row->position != first.position) continue;
        auto facts = collect(places, std::move(trace), first.id);
        if (!facts.ok()) return facts.status();
        Explanation explanation = explain(*facts);
        out.first.emplace(Explained{std::move(*facts), std::move(explanation)});
        break;
    }
    return out;
}

ordered_json json_of_key(const ExplainedKey& explained, const std::string& key,
                         const TracedTable& table) {
    ordered_json out = json_of_key(explained.of_key, key, table);
    if (explained.first) {
        out["events"].push_back(json_of(explained.first->facts, explained.first->explanation));
    }
    return out;
}

int print_key(const runtime::Invocation& invocation, Places& places, const Question& question) {
    const TracedTable& table = places.tracer->table();
    const auto limit = static_cast<std::size_t>(invocation.options.integer("limit"));
    const auto explained = explain_key(places, question.key, question.tenant, limit);
    if (!explained.ok()) return report(explained.error());
    const OfKey& of_key = explained->of_key;
    if (invocation.options.flag("json")) {
        print_json(json_of_key(*explained, question.key, table));
    } else if (of_key.nothing()) {
        std::cout << wrapped("no event of " + table.name + " with the key " +
                                 shortened(question.key, kFieldColumns) +
                                 " is unfinished, delayed or dead" +
                                 (table.removes ? "; rows of what was sent are gone" : "") +
                                 (of_key.writers.empty()
                                      ? ""
                                      : ". What an open transaction writes is not seen before its "
                                        "COMMIT:"),
                             0)
                  << "\n";
        for (const OpenWriter& writer : of_key.writers) {
            std::cout << wrapped(describe(writer, clock_us()), 2) << "\n";
        }
    } else {
        print_key(of_key, question.key, table);
    }
    for (const std::string& place : of_key.unasked) {
        if (invocation.options.flag("json")) break;
        std::cout << "whether endpoints of webhooks wait for it is not known: " << place << "\n";
    }
    if (explained->first && !invocation.options.flag("json")) {
        std::cout << "\nthe first that waits:\n\n";
        print_whole(explained->first->facts, explained->first->explanation);
    }
    return of_key.nothing() ? runtime::kExitFailed : runtime::kExitOk;
}

}  // namespace

Result<ordered_json> explanation_of_id(Places& places, const std::string& id) {
    const auto events = explain_id(places, id);
    if (!events.ok()) return events.status();
    return json_of_id(places, id, *events);
}

Result<ordered_json> explanation_of_key(Places& places, const std::string& key,
                                        const std::string& tenant, std::size_t limit) {
    const auto explained = explain_key(places, key, tenant, limit);
    if (!explained.ok()) return explained.status();
    return json_of_key(*explained, key, places.tracer->table());
}

int run_explain(const runtime::Invocation& invocation) {
    const auto question = question_of(invocation);
    if (!question.ok()) return report(question.error());
    auto places = places_of(invocation);
    if (!places.ok()) return report(places.error());
    return question->key.empty() ? print_id(invocation, *places, *question)
                                 : print_key(invocation, *places, *question);
}

}  // namespace outbox::app
