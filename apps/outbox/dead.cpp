#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <sstream>

#include "backend/backends.h"
#include "commands.h"
#include "consumer/operate.h"
#include "core/ascii.h"
#include "core/base64.h"
#include "core/routing.h"
#include "core/table_layout.h"
#include "core/url.h"
#include "core/utf8.h"
#include "letters.h"
#include "print.h"
#include "registry.h"
#include "routes.h"
#include "runtime/exit_codes.h"
#include "runtime/route_names.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;

constexpr std::size_t kExported = 100;  // letters at a time
constexpr std::size_t kMostLetters = 1'000'000'000;
constexpr std::size_t kShowLimit = 1'000;  // of one event: at most one for each route

// A UUID is one in whatever letters it was copied, and an id that is a text only as it is written.
std::vector<std::string> spellings_of(const std::vector<std::string>& ids) {
    std::vector<std::string> all = ids;
    for (const std::string& id : ids) {
        if (looks_like_uuid(id) && lower(id) != id) all.push_back(lower(id));
    }
    return all;
}

DeadFilter filter_of(const runtime::Invocation& invocation) {
    DeadFilter filter;
    filter.ids = spellings_of(invocation.positionals);
    if (invocation.command == runtime::kDeadShow) return filter;
    filter.route = invocation.options.text("route");
    filter.event_type = invocation.options.text("event-type");
    filter.key = invocation.options.text("key");
    filter.error_code = invocation.options.text("error-code");
    filter.tenant = invocation.options.text("tenant");
    return filter;
}

// Nobody retries a letter of a route that is gone, whatever was asked for.
std::string state_of(const DeadInfo& dead) {
    if (!dead.route_known) return "no such route";
    return dead.is_retried() ? "retrying" : "dead";
}

void add_schema(const DeadInfo& dead, ordered_json& out) {
    out["routing_key"] = text_or_null(dead.routing_key);
    out["schema_id"] = text_or_null(dead.schema_id);
    out["schema_version"] = text_or_null(dead.schema_version);
}

}  // namespace

ordered_json json_of(const DeadInfo& dead, bool whole) {
    ordered_json out{{"id", dead.id},
                     {"dead_id", dead.dead_id},
                     {"route", dead.route},
                     {"position", dead.position},
                     {"aggregate_type", text_or_null(dead.aggregate_type)},
                     {"aggregate_id", text_or_null(dead.aggregate_id)},
                     {"event_type", text_or_null(dead.event_type)},
                     {"topic", text_or_null(dead.topic)},
                     {"key", text_or_null(dead.key)},
                     {"tenant_id", text_or_null(dead.tenant_id)},
                     {"attempts", dead.attempts},
                     {"error_code", dead.error_code},
                     {"error", redact(dead.error)},
                     {"occurred_at", text_or_null(time_text(dead.occurred_at_us))},
                     {"died_at", time_text(dead.died_at_us)},
                     {"retry_requested_at", text_or_null(time_text(dead.retry_requested_at_us))},
                     {"state", state_of(dead)}};
    if (!whole) return out;
    add_schema(dead, out);
    out["headers"] = dead.headers.empty() ? ordered_json() : json_or_text(dead.headers);
    out["metadata"] = dead.metadata.empty() ? ordered_json() : json_or_text(dead.metadata);
    out["payload"] = dead.payload_is_null ? ordered_json() : json_or_text(dead.payload);
    return out;
}

namespace {

// Whose routes are looked at, as a message has it.
std::string holder_of(const DeadRoute& route, std::span<const LedgerRoute> known) {
    constexpr std::size_t kTenantColumns = 60;
    if (route.tenants.empty()) {
        const bool alone = std::all_of(known.begin(), known.end(), [&](const LedgerRoute& one) {
            return one.source == route.source;
        });
        return alone ? "the table" : "the relay of all tenants";
    }
    std::string names;
    for (const std::string& tenant : route.tenants) {
        names += (names.empty() ? "" : ", ") + to_printable(tenant);
    }
    return (route.tenants.size() == 1 ? "the relay of tenant " : "the relay of tenants ") +
           shortened(names, kTenantColumns);
}

std::string its_routes(const std::string& source, std::span<const LedgerRoute> known) {
    std::vector<LedgerRoute> its;
    std::copy_if(known.begin(), known.end(), std::back_inserter(its),
                 [&](const LedgerRoute& one) { return one.source == source; });
    return known_routes(its);
}

// `lacking`: routes that letters would have and their source has not.
Status nobody_retries(std::span<const DeadRoute> lacking, std::span<const LedgerRoute> known,
                      const std::string& any_more, const std::string& remedy) {
    constexpr std::size_t kHoldersNamed = 3;
    std::map<std::string, std::string> by_source;
    for (const DeadRoute& route : lacking) {
        std::string& text = by_source[route.source];
        text += (text.empty() ? holder_of(route, known) + " has no route '" : ", '") +
                to_printable(route.name) + "'";
    }
    std::string what;
    std::size_t named = 0;
    for (const auto& [source, text] : by_source) {
        if (++named > kHoldersNamed) break;
        what += (what.empty() ? "" : ", ") + text + any_more;
        if (by_source.size() > 1) what += " (" + its_routes(source, known) + ")";
    }
    if (named > kHoldersNamed) {
        what += ", and so it is with " + std::to_string(by_source.size() - kHoldersNamed) + " more";
    }
    what = "nothing was asked for: " + what + ", so that these dead letters would wait for ever. " +
           remedy;
    if (by_source.size() == 1) what += "; " + its_routes(by_source.begin()->first, known);
    return ErrorInfo{ErrorCode::kConflict, Advice::kStop, {}, what};
}

}  // namespace

Status check_routes(Operations& operations, const DeadFilter& filter, const std::string& to) {
    const auto known = operations.ledger_routes(false);
    if (!known.ok()) return known.status();
    if (to.empty()) {
        const auto gone = operations.routes_of_dead(filter, true);
        if (!gone.ok() || gone->empty()) return gone.status();
        return nobody_retries(*gone, *known, " any more",
                              "Give them another, --to ROUTE, or choose others");
    }
    std::set<std::string> sources;
    for (const LedgerRoute& route : *known) {
        if (route.name == to) sources.insert(route.source);
    }
    if (sources.empty()) {
        return ErrorInfo{
            ErrorCode::kConflict,
            Advice::kStop,
            {},
            "the table has no route '" + to_printable(to) + "'; " + known_routes(*known)};
    }
    auto letters = operations.routes_of_dead(filter, false);
    if (!letters.ok()) return letters.status();
    std::vector<DeadRoute> lacking;
    for (DeadRoute& route : *letters) {
        if (!sources.insert(route.source).second) continue;
        route.name = to;
        lacking.push_back(std::move(route));
    }
    if (lacking.empty()) return {};
    return nobody_retries(lacking, *known, "",
                          "Give them a route of their own relay, or choose others (--tenant ID)");
}

namespace {

void print_table(const std::vector<DeadInfo>& letters) {
    constexpr std::size_t kErrorColumns = 60;
    constexpr std::size_t kKeyColumns = 40;  // `dead show` has the whole
    using Align = TextColumns::Align;
    TextColumns columns({{"ID", Align::kLeft},
                         {"ROUTE", Align::kLeft},
                         {"TYPE", Align::kLeft},
                         {"KEY", Align::kLeft},
                         {"TRIES", Align::kRight},
                         {"DIED", Align::kLeft},
                         {"STATE", Align::kLeft},
                         {"ERROR", Align::kLeft}});
    for (const DeadInfo& dead : letters) {
        columns.add({dead.id, dead.route, shortened(dead.event_type, kKeyColumns),
                     shortened(dead.key.empty() ? dead.aggregate_id : dead.key, kKeyColumns),
                     std::to_string(dead.attempts), time_text(dead.died_at_us).substr(0, 19) + "Z",
                     state_of(dead),
                     shortened(dead.error_code + ": " + redact(dead.error), kErrorColumns)});
    }
    columns.print(std::cout);
}

void print_whole(const DeadInfo& dead) {
    print_field("id", dead.id, Colour::kBold);
    print_field("route", dead.route);
    print_field("state", state_of(dead));
    print_field("position", std::to_string(dead.position));
    print_field("aggregate", dead.aggregate_type + " " + dead.aggregate_id);
    print_field("event type", dead.event_type);
    print_field("topic", dead.topic);
    print_field("key", dead.key);
    print_field("tenant", dead.tenant_id);
    print_field("occurred at", time_text(dead.occurred_at_us));
    print_field("died at", time_text(dead.died_at_us));
    print_field("retry asked at", time_text(dead.retry_requested_at_us));
    print_field("attempts", std::to_string(dead.attempts));
    print_field("error", dead.error_code + ": " + redact(dead.error), Colour::kRed);
    print_field("headers", dead.headers);
    print_field("metadata", dead.metadata);
    print_field("payload", dead.payload_is_null ? "(null)" : dead.payload);
}

/// The dead letters that the command is about, with what they are read through.
struct Letters {
    std::unique_ptr<ConsumerOperations> consumer;  // null: those of the relay
    std::unique_ptr<DeadLetters> dead;
    Operations* relay = nullptr;  // `dead`, where it is the relay's
    DeadLetters* operator->() const { return dead.get(); }
    DeadLetters& operator*() const { return *dead; }
};

// Where a database has the consumer's side only, that is meant.
ErrorInfo no_relay_here(const SourceConfig& config, const ErrorInfo& error) {
    const auto operations = open_consumer_operations(config);
    if (!operations.ok()) return operations.error();
    const auto there = (*operations)->has_tables();
    if (!there.ok() || !*there || !is_consumers_side_only(**operations, error)) return error;
    const auto consumers = (*operations)->consumers();
    std::string names;
    if (consumers.ok()) {
        for (const ConsumerInfo& consumer : *consumers) {
            names += (names.empty() ? "; there are: " : ", ") + to_printable(consumer.name);
        }
    }
    return {error.code, error.advice, error.backend_code,
            "this database has the consumer's side only: say whose dead letters are meant with "
            "--consumer NAME" +
                names};
}

Result<Letters> letters_of(const runtime::Invocation& invocation) {
    auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    config->tenants.clear();  // it selects letters, and is no source's
    Letters letters;
    if (invocation.options.given("consumer")) {
        auto consumer = open_consumer_operations(*config, os_user());
        if (!consumer.ok()) return consumer.error();
        letters.consumer = std::move(*consumer);
        letters.dead = letters.consumer->dead_letters(invocation.options.text("consumer"));
        return letters;
    }
    const auto source = make_source(*config);
    if (!source.ok()) {
        if (source.error().code != ErrorCode::kNoSuchTable || invocation.options.given("table")) {
            return source.error();
        }
        return no_relay_here(*config, source.error());
    }
    auto operations = open_operations(*config, (*source)->table_name());
    if (!operations.ok()) return operations.error();
    letters.relay = operations->get();
    letters.dead = std::move(*operations);
    return letters;
}

// Where nothing was found: not for want of letters, but of the route. Letters of a route that is
// gone are asked for by its name.
Status check_route_is_known(const Letters& letters, const DeadFilter& filter) {
    if (letters.relay == nullptr || filter.route.empty()) return {};
    const auto known = letters.relay->ledger_routes(false);
    if (!known.ok()) return known.status();
    for (const LedgerRoute& route : *known) {
        if (route.name == filter.route) return {};
    }
    DeadFilter all;
    all.route = filter.route;
    const auto gone = letters.relay->routes_of_dead(all, false);
    if (!gone.ok() || !gone->empty()) return gone.status();
    return ErrorInfo{ErrorCode::kConflict,
                     Advice::kStop,
                     {},
                     "the table has no route '" + to_printable(filter.route) +
                         "', nor a dead letter of one; " + known_routes(*known)};
}

// Nothing is wrong with an empty list, but for a name that nobody meant.
void hint_at_route(const Letters& letters, const DeadFilter& filter) {
    const Status status = check_route_is_known(letters, filter);
    if (!status.ok()) std::cerr << "outbox: " << status.error().message << "\n";
}

ErrorInfo usage(const std::string& message) {
    return runtime::config_error("outbox dead", message);
}

int report_change(const runtime::Invocation& invocation, const DeadFilter& filter,
                  std::int64_t count, const std::string& present, const std::string& past) {
    const bool dry_run = invocation.options.flag("dry-run");
    if (invocation.options.flag("json")) {
        print_json({{"matched", count}, {"dry_run", dry_run}});
    } else {
        std::cout << (dry_run ? "would " : "") << (dry_run ? present : past) << " "
                  << with_commas(count) << (count == 1 ? " dead letter" : " dead letters") << "\n";
    }
    if (count > 0 || filter.ids.empty()) return runtime::kExitOk;
    std::cerr << "outbox: no such dead letter; see `outbox dead list`\n";
    return runtime::kExitFailed;
}

// What is to be changed, or that this is not said.
Result<DeadFilter> chosen(const runtime::Invocation& invocation) {
    const DeadFilter filter = filter_of(invocation);
    for (const char* name : {"route", "event-type", "key", "error-code", "tenant"}) {
        if (!invocation.options.given(name) || !invocation.options.text(name).empty()) continue;
        return usage("--" + std::string(name) + " is empty; it would take every one");
    }
    const bool all = invocation.options.flag("all");
    if (filter.empty() == !all) {
        return usage(all ? "give either --all or ids and filters, not both"
                         : "which ones? Give ids, a filter such as --route NAME, or --all");
    }
    return filter;
}

Result<std::string> read_all(const std::string& path) {
    std::ostringstream text;
    if (path == "-") {
        text << std::cin.rdbuf();
        return text.str();
    }
    std::ifstream file(path, std::ios::binary);
    if (!file) return usage("--payload-file: cannot read " + path);
    text << file.rdbuf();
    if (text.bad() || std::filesystem::is_directory(path)) {
        return usage("--payload-file: cannot read " + path);
    }
    return text.str();
}

Result<DeadEdit> edit_of(const runtime::OptionValues& options) {
    DeadEdit edit;
    if (options.given("payload-file")) {
        auto payload = read_all(options.text("payload-file"));
        if (!payload.ok()) return payload.error();
        edit.payload = std::move(*payload);
    }
    if (options.given("topic")) edit.topic = options.text("topic");
    if (options.given("key")) edit.key = options.text("key");
    if (options.given("headers")) edit.headers = options.text("headers");
    if (!edit.payload && !edit.topic && !edit.key && !edit.headers) {
        return usage("change what? Give --payload-file, --topic, --key or --headers");
    }
    if (edit.topic && !edit.topic->empty()) {
        if (Status valid = core::check_topic_name(*edit.topic); !valid.ok()) return valid;
    }
    if (edit.headers) {
        const auto parsed = ordered_json::parse(*edit.headers, nullptr, false);
        if (!parsed.is_object()) return usage("--headers is not a JSON object");
    }
    return edit;
}

// What cannot be changed, or would break what reads it.
Status check_edit(const std::vector<DeadInfo>& found, const DeadEdit& edit) {
    const auto refuse = [](const std::string& what) {
        return Status(ErrorInfo{ErrorCode::kConflict, Advice::kStop, {}, what});
    };
    if (found.size() > 1) {
        return refuse("the event is dead in several routes: say in which, --route NAME");
    }
    if (found.empty()) return {};
    if (found.front().is_retried()) {
        return refuse("it is being retried: wait until it is delivered or dead again");
    }
    const std::string& before = found.front().payload;
    if (edit.payload && ordered_json::accept(before) && !ordered_json::accept(*edit.payload)) {
        return refuse("the payload was JSON and the new one is not");
    }
    return {};
}

// By the configuration, else by the name that a route to such a destination has by itself; null:
// neither says it.
const Broker* broker_of_route(const runtime::Invocation& invocation, const std::string& route) {
    for (const runtime::RouteEntry& entry : invocation.file.routes) {
        const auto value = [&](const char* key) {
            const auto found = entry.values.find(key);
            return found == entry.values.end() ? std::string() : found->second.front();
        };
        const std::string name = value("name");
        if ((name.empty() ? runtime::derived_route_name(value("to")) : name) != route) continue;
        const auto broker = find_broker(value("to"));
        return broker.ok() ? *broker : nullptr;
    }
    for (const Broker* broker : brokers()) {
        const std::string_view scheme = broker->schemes.front();
        if (scheme.substr(0, scheme.find('+')) == route) return broker;
    }
    return nullptr;
}

// With such a header the event would be a dead letter again.
Status check_headers(const runtime::Invocation& invocation, const std::vector<DeadInfo>& found,
                     const DeadEdit& edit) {
    if (!edit.headers || found.empty()) return {};
    const std::string& route = found.front().route;
    const Broker* broker = broker_of_route(invocation, route);
    if (broker == nullptr || broker->why_not_header == nullptr) return {};
    const auto headers = ordered_json::parse(*edit.headers);
    for (const auto& header : headers.items()) {
        const auto why = broker->why_not_header(header.key());
        if (why) return usage("--headers: route '" + route + "': " + *why);
    }
    return {};
}

// Letters of tenants that are paused are tried again once those are resumed.
Status note_paused(Operations& relay, const DeadFilter& filter) {
    constexpr std::size_t kLettersAtOnce = 1'000;
    const auto paused = relay.paused_tenants();
    if (!paused.ok()) return paused.error();
    if (paused->empty()) return {};
    std::map<std::string, std::int64_t> kept;
    for (const PausedTenant& one : *paused) kept.emplace(one.tenant_id, 0);
    std::int64_t last = 0;
    while (true) {
        const auto letters = relay.dead(filter, last, kLettersAtOnce, false);
        if (!letters.ok()) return letters.error();
        for (const DeadInfo& letter : *letters) {
            last = letter.dead_id;
            if (const auto of = kept.find(letter.tenant_id); of != kept.end()) ++of->second;
        }
        if (letters->size() < kLettersAtOnce) break;
    }
    for (const auto& [tenant, count] : kept) {
        if (count == 0) continue;
        std::cerr << "outbox: " << with_commas(count) << " of them wait until tenant "
                  << to_printable(tenant) << " is resumed: it is paused\n";
    }
    return {};
}

// A consumer's letters go in the transaction that applies them: who discards one has it whole.
Result<std::int64_t> count_retried(const Letters& letters, const DeadFilter& filter) {
    if (letters.relay == nullptr) return std::int64_t{0};
    auto all = letters.relay->count_dead(filter);
    if (!all.ok()) return all;
    auto idle = letters.relay->count_dead(filter.of_idle());
    if (!idle.ok()) return idle;
    return std::max<std::int64_t>(*all - *idle, 0);
}

std::string are_retried(std::int64_t count) {
    return with_commas(count) + (count == 1 ? " is" : " are") +
           " being retried and may be on the way: a running relay delivers each or has it dead "
           "again, which `outbox dead list` shows";
}

ErrorInfo none_discarded(std::int64_t retried) {
    return {
        ErrorCode::kConflict, Advice::kStop, {}, "nothing was discarded: " + are_retried(retried)};
}

}  // namespace

int run_dead_retry(const runtime::Invocation& invocation) {
    const auto filter = chosen(invocation);
    if (!filter.ok()) return report(filter.error());
    const std::string to = invocation.options.list("to").empty()
                               ? std::string()
                               : invocation.options.list("to").front();
    if (!to.empty() && invocation.options.given("consumer")) {
        return report(usage("--to names a route of the relay; it does not go with --consumer"));
    }
    auto letters = letters_of(invocation);
    if (!letters.ok()) return report(letters.error());
    if (letters->relay != nullptr) {
        if (Status status = check_routes(*letters->relay, *filter, to); !status.ok()) {
            return report(status.error());
        }
    }
    const auto count = invocation.options.flag("dry-run") ? (*letters)->count_dead(*filter)
                       : to.empty()                       ? (*letters)->retry_dead(*filter)
                                    : letters->relay->reroute_dead(*filter, to);
    if (!count.ok()) return report(count.error());
    if (*count == 0) {
        if (Status status = check_route_is_known(*letters, *filter); !status.ok()) {
            return report(status.error());
        }
    }
    if (letters->relay != nullptr && *count > 0) {
        DeadFilter now = *filter;
        if (!to.empty() && !invocation.options.flag("dry-run") && !now.route.empty())
            now.route = to;
        if (Status noted = note_paused(*letters->relay, now); !noted.ok()) {
            return report(noted.error());
        }
    }
    const std::string by = to.empty() ? "" : " by route " + to;
    const std::string whom =
        letters->relay == nullptr ? "asked the consumer to retry" : "asked the relay to retry";
    return report_change(invocation, *filter, *count, "retry" + by, whom + by);
}

int run_dead_discard(const runtime::Invocation& invocation) {
    const auto filter = chosen(invocation);
    if (!filter.ok()) return report(filter.error());
    auto letters = letters_of(invocation);
    if (!letters.ok()) return report(letters.error());
    const bool named = !filter->ids.empty();
    if (named) {
        const auto retried = count_retried(*letters, *filter);
        if (!retried.ok()) return report(retried.error());
        if (*retried > 0) return report(none_discarded(*retried));
    }
    const auto count = invocation.options.flag("dry-run")
                           ? (*letters)->count_dead(filter->of_idle())
                           : (*letters)->discard_dead(*filter);
    if (!count.ok()) return report(count.error());
    // Afterwards: also those that somebody else has had retried meanwhile.
    const auto retried = count_retried(*letters, *filter);
    if (!retried.ok()) return report(retried.error());
    if (*retried > 0 && *count == 0 && named) return report(none_discarded(*retried));
    if (*retried == 0 && *count == 0) {
        if (Status status = check_route_is_known(*letters, *filter); !status.ok()) {
            return report(status.error());
        }
    }
    if (*retried > 0) std::cerr << "outbox: left alone: " << are_retried(*retried) << "\n";
    return report_change(invocation, *filter, *count, "discard", "discarded");
}

int run_dead_list(const runtime::Invocation& invocation) {
    auto operations = letters_of(invocation);
    if (!operations.ok()) return report(operations.error());
    const DeadFilter filter = filter_of(invocation);
    const auto limit = static_cast<std::size_t>(invocation.options.integer("limit"));
    const auto letters = (*operations)->dead(filter, 0, limit, false);
    if (!letters.ok()) return report(letters.error());
    if (letters->empty()) hint_at_route(*operations, filter);
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const DeadInfo& dead : *letters) list.push_back(json_of(dead, false));
        print_json(list);
        return runtime::kExitOk;
    }
    if (letters->empty()) {
        std::cout << "no dead letters\n";
        return runtime::kExitOk;
    }
    print_table(*letters);
    const auto total = (*operations)->count_dead(filter);
    if (!total.ok()) return report(total.error());
    print_rest(letters->size(), *total);
    return runtime::kExitOk;
}

int run_dead_show(const runtime::Invocation& invocation) {
    const DeadFilter filter = filter_of(invocation);
    if (filter.ids.empty()) return report(usage("which one? Give its id; see `outbox dead list`"));
    auto operations = letters_of(invocation);
    if (!operations.ok()) return report(operations.error());
    const auto letters = (*operations)->dead(filter, 0, kShowLimit, true);
    if (!letters.ok()) return report(letters.error());
    if (letters->empty()) {
        std::cerr << "outbox: no such dead letter; see `outbox dead list`\n";
        return runtime::kExitFailed;
    }
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const DeadInfo& dead : *letters) list.push_back(json_of(dead, true));
        print_json(list);
        return runtime::kExitOk;
    }
    for (std::size_t i = 0; i < letters->size(); ++i) {
        if (i > 0) std::cout << "\n";
        print_whole((*letters)[i]);
    }
    return runtime::kExitOk;
}

namespace {

// Exactly as it is, whatever a number in it looks like: what is read and printed again is rounded.
void print_exported(const DeadInfo& dead) {
    ordered_json line = json_of(dead, false);
    add_schema(dead, line);
    std::string text = line.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
    text.pop_back();
    const auto add = [&](const char* name, const std::string& json) {
        text.append(",\"").append(name).append("\":").append(json);
    };
    add("headers", dead.headers.empty() ? "null" : json_as_written(dead.headers));
    add("metadata", dead.metadata.empty() ? "null" : json_as_written(dead.metadata));
    if (dead.payload_is_null) {
        add("payload", "null");
    } else if (is_utf8(dead.payload)) {
        add("payload", ordered_json(dead.payload).dump());
    } else {
        add("payload_base64", ordered_json(base64_encode(dead.payload)).dump());
    }
    std::cout << printable_json(text) << "}\n";
}

// Those of a consumer have no number to go on from: their ids are asked first, then some at a time.
int export_of_consumer(DeadLetters& letters, const DeadFilter& filter) {
    const auto all = letters.dead(filter, 0, kMostLetters, false);
    if (!all.ok()) return report(all.error());
    std::vector<std::string> ids;
    for (const DeadInfo& dead : *all) ids.push_back(dead.id);
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    for (std::size_t at = 0; at < ids.size() && std::cout; at += kExported) {
        DeadFilter some = filter;
        some.ids.assign(
            ids.begin() + static_cast<std::ptrdiff_t>(at),
            ids.begin() + static_cast<std::ptrdiff_t>(std::min(at + kExported, ids.size())));
        const auto page = letters.dead(some, 0, kMostLetters, true);
        if (!page.ok()) return report(page.error());
        for (const DeadInfo& dead : *page) print_exported(dead);
    }
    return runtime::kExitOk;
}

}  // namespace

int run_dead_export(const runtime::Invocation& invocation) {
    auto operations = letters_of(invocation);
    if (!operations.ok()) return report(operations.error());
    const DeadFilter filter = filter_of(invocation);
    if (operations->consumer) return export_of_consumer(**operations, filter);
    std::int64_t after = 0;
    while (std::cout) {
        const auto letters = (*operations)->dead(filter, after, kExported, true);
        if (!letters.ok()) return report(letters.error());
        if (letters->empty() && after == 0) hint_at_route(*operations, filter);
        for (const DeadInfo& dead : *letters) print_exported(dead);
        if (letters->size() < kExported) break;
        after = letters->back().dead_id;
    }
    return runtime::kExitOk;
}

int run_dead_edit(const runtime::Invocation& invocation) {
    const runtime::OptionValues& options = invocation.options;
    if (options.given("consumer")) {
        return report(usage("only the relay's dead letters can be edited, not a consumer's"));
    }
    if (invocation.positionals.size() != 1) {
        return report(usage("which one? Give one id; see `outbox dead list`"));
    }
    const auto edit = edit_of(options);
    if (!edit.ok()) return report(edit.error());
    auto letters = letters_of(invocation);
    if (!letters.ok()) return report(letters.error());
    DeadFilter filter;
    filter.ids = spellings_of(invocation.positionals);
    filter.route = options.text("route");
    const auto check = [&]() -> Status {
        const auto found = (*letters)->dead(filter, 0, 2, true);
        if (!found.ok()) return found.status();
        const Status status = check_edit(*found, *edit);
        return status.ok() ? check_headers(invocation, *found, *edit) : status;
    };
    if (Status status = check(); !status.ok()) return report(status.error());
    const auto count = letters->relay->edit_dead(filter, *edit);
    if (!count.ok()) return report(count.error());
    // Somebody else may have had it retried meanwhile.
    if (*count == 0) {
        if (Status status = check(); !status.ok()) return report(status.error());
    }
    return report_change(invocation, filter, *count, "change", "changed");
}

}  // namespace outbox::app
