#include "runtime/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <unistd.h>

#include "backend/backends.h"
#include "codec/formats.h"
#include "core/suggest.h"
#include "core/url.h"
#include "runtime/command_line.h"
#include "runtime/metrics.h"
#include "runtime/route_names.h"

namespace outbox::runtime {
namespace {

constexpr std::string_view kDefaultFile = "outbox.toml";
constexpr std::size_t kMaxRoutes = kMaxRouteLabels;

// One variable holds several values separated by spaces; URLs have none.
std::vector<std::string> split_words(std::string_view text) {
    std::vector<std::string> words;
    std::size_t pos = 0;
    while ((pos = text.find_first_not_of(" \t\n", pos)) != std::string_view::npos) {
        const std::size_t end = std::min(text.find_first_of(" \t\n", pos), text.size());
        words.emplace_back(text.substr(pos, end - pos));
        pos = end;
    }
    return words;
}

Status take_arguments(const CommandLine& line, Invocation& out) {
    for (const auto& [name, texts] : line.options) {
        const OptionSpec* spec = find_option(name, line.command);
        Status status = out.options.set(*spec, {texts, Origin::kArgument, "--" + name});
        if (!status.ok()) return status;
        if (spec->type != OptionType::kUrl && spec->type != OptionType::kDestination) continue;
        for (const std::string& text : texts) {
            if (!holds_secret(text)) continue;
            out.warnings.push_back("--" + name +
                                   " holds a password, which other users of this machine can see "
                                   "in the process list; use " +
                                   environment_name(name) + " or outbox.toml");
        }
    }
    return {};
}

Status take_environment(const Environment& environment, Invocation& out) {
    std::vector<std::string> names;
    for (const OptionSpec& spec : option_table()) names.push_back(environment_name(spec.name));
    const std::vector<std::string_view> known(names.begin(), names.end());
    for (const auto& [name, text] : environment) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        const auto hint = closest(name, known);
        if (hint.empty()) continue;
        out.warnings.push_back("the environment variable " + name + " is not known; did you mean " +
                               std::string(hint) + "?");
    }
    for (const OptionSpec& spec : option_table()) {
        if ((spec.commands & out.command) == 0 || spec.argument_only) continue;
        const auto found = environment.find(environment_name(spec.name));
        if (found == environment.end() || found->second.empty()) continue;
        OptionValue value{{found->second}, Origin::kEnvironment, found->first};
        if (spec.repeatable) value.texts = split_words(found->second);
        Status status = out.options.set(spec, std::move(value));
        if (!status.ok()) return status;
    }
    return {};
}

Status take_file(Invocation& out) {
    std::string path(kDefaultFile);
    if (out.options.given("config")) {
        path = out.options.text("config");
    } else {
        std::error_code ignored;
        if (!std::filesystem::exists(path, ignored)) return {};
    }
    auto content = read_toml_file(path);
    if (!content.ok()) return content.error();
    out.file = std::move(*content);
    for (const auto& [spec, value] : out.file.options) {
        if ((spec->commands & out.command) == 0) continue;
        Status status = out.options.set(*spec, value);
        if (!status.ok()) return status;
    }
    return {};
}

// So that no message shows a part of one, however the URL that holds it was written.
void remember_secrets(Command command, const Environment& environment, const Invocation& out) {
    for (const auto& [name, text] : environment) remember_secrets_of(text);
    if (const char* password = std::getenv("PGPASSWORD")) remember_secret(password);
    for (const OptionSpec& spec : option_table()) {
        if ((spec.commands & command) == 0) continue;
        if (spec.type == OptionType::kUrl) remember_secrets_of(out.options.text(spec.name));
        if (spec.type != OptionType::kDestination) continue;
        for (const std::string& to : out.options.list(spec.name)) {
            remember_secrets_of(split_destination(to).url);
        }
    }
    for (const RouteEntry& route : out.file.routes) {
        for (const std::string_view key : {"to", "claim_check", "schema_registry"}) {
            const auto urls = route.values.find(key);
            if (urls == route.values.end()) continue;
            for (const std::string& url : urls->second) remember_secrets_of(url);
        }
        for (const auto& [name, value] : route.sink_options) {
            if (is_secret_option(name)) remember_secret(value);
        }
    }
}

RouteConfig route_with_defaults(const OptionValues& options) {
    RouteConfig route;
    route.topic_template = options.text("topic-template");
    route.allowed_topics = options.list("allowed-topic");
    route.format = options.text("format");
    route.claim_check = options.text("claim-check");
    route.claim_check_above = static_cast<std::size_t>(options.integer("claim-check-above"));
    route.schema_registry = options.text("schema-registry");
    route.schema_framing = options.text("schema-framing");
    route.on_dead_letter = options.text("on-dead-letter");
    return route;
}

// What stands at the top of the file holds for routes of the format that do not say otherwise.
void take_format_options(const FileContent& file, RouteConfig& route) {
    const codec::Format* format = codec::find_format(route.format);
    if (format == nullptr || format->table.empty()) return;
    const std::string prefix = std::string(format->table) + ".";
    for (const auto& [name, value] : file.format_options) {
        if (name.starts_with(prefix)) route.format_options.emplace(name, value);
    }
}

RouteConfig route_of(const RouteEntry& entry, const OptionValues& options) {
    RouteConfig route = route_with_defaults(options);
    const auto take = [&](std::string_view key, std::string& to) {
        const auto found = entry.values.find(key);
        if (found != entry.values.end()) to = found->second.front();
    };
    const auto take_list = [&](std::string_view key, std::vector<std::string>& to) {
        const auto found = entry.values.find(key);
        if (found != entry.values.end()) to = found->second;
    };
    take("name", route.name);
    take("to", route.to);
    take("topic_template", route.topic_template);
    take("format", route.format);
    take("claim_check", route.claim_check);
    if (const auto found = entry.values.find("claim_check_above"); found != entry.values.end()) {
        route.claim_check_above = std::stoull(found->second.front());  // looked at already
    }
    take("schema_registry", route.schema_registry);
    take("schema_framing", route.schema_framing);
    take("on_dead_letter", route.on_dead_letter);
    take_list("allowed_topics", route.allowed_topics);
    take_list("aggregate_type", route.predicate.aggregate_types);
    take_list("event_type", route.predicate.event_types);
    take_list("topic", route.predicate.topics);
    take_list("tenant", route.predicate.tenants);
    route.sink_options = entry.sink_options;
    route.format_options = entry.format_options;
    return route;
}

std::vector<RouteConfig> routes_of_urls(const OptionValues& options) {
    std::vector<RouteConfig> routes;
    std::vector<std::string> urls;
    for (const std::string& text : options.list("to")) {
        Destination destination = split_destination(text);
        RouteConfig route = route_with_defaults(options);
        route.name = destination.named ? destination.name : derived_route_name(destination.url);
        route.to = std::move(destination.url);
        urls.push_back(route.to);
        routes.push_back(std::move(route));
    }
    std::vector<std::string> former = former_route_names(urls);
    for (std::size_t i = 0; i < routes.size(); ++i) {
        if (former[i] != routes[i].name) routes[i].former_names.push_back(std::move(former[i]));
    }
    return routes;
}

// A name stands for a ledger: two routes of one name would share what each has finished.
Status check_names_differ(const std::vector<RouteConfig>& routes, const std::string& where) {
    for (std::size_t i = 0; i < routes.size(); ++i) {
        for (std::size_t k = 0; k < i; ++k) {
            if (routes[i].name != routes[k].name) continue;
            return config_error(where, "two routes are named '" + routes[i].name + "', to " +
                                           redact(routes[k].to) + " and to " +
                                           redact(routes[i].to) +
                                           "; give each a name of its own: --to NAME=URL, or name "
                                           "under [[route]]");
        }
    }
    return {};
}

Status no_store(const std::string& where) {
    return config_error(where,
                        "it says how large a payload is kept outside, and nothing says where; give "
                        "--claim-check URL as well (claim_check in the file), or leave it out");
}

// A limit without a store would keep nothing outside, and nobody would know.
Status check_limits_have_stores(const Invocation& invocation,
                                const std::vector<RouteConfig>& routes) {
    const OptionValues& options = invocation.options;
    const auto has_store = [](const RouteConfig& route) { return !route.claim_check.empty(); };
    if (options.given("claim-check-above") &&
        std::none_of(routes.begin(), routes.end(), has_store)) {
        return no_store(options.where("claim-check-above"));
    }
    if (options.given("to")) return {};
    const auto& entries = invocation.file.routes;
    for (std::size_t i = 0; i < entries.size(); ++i) {
        const auto limit = entries[i].values.find("claim_check_above");
        if (limit != entries[i].values.end() && !has_store(routes[i])) {
            return no_store(entries[i].where + ": claim_check_above");
        }
    }
    return {};
}

// An argument of a replay stands for another destination of a route of the file.
bool names_other_destination(const Invocation& invocation) {
    return (invocation.command & (kReplay | kReplayResume)) != 0 &&
           invocation.options.origin("to") == Origin::kArgument && !invocation.file.routes.empty();
}

Result<std::vector<RouteConfig>> make_routes(const Invocation& invocation) {
    const OptionValues& options = invocation.options;
    const auto& entries = invocation.file.routes;
    if (!entries.empty() && options.origin("to") == Origin::kFile) {
        return config_error(options.where("to"),
                            "give either 'to' or [[route]] in the file, not both");
    }
    std::vector<RouteConfig> routes;
    if (options.given("to") && !names_other_destination(invocation)) {
        routes = routes_of_urls(options);
    } else {
        for (const RouteEntry& entry : entries) {
            routes.push_back(route_of(entry, options));
            Status status = check_route_name(routes.back().name, entry.where);
            if (!status.ok()) return status;
            if (split_destination(routes.back().to).named) {
                return config_error(entry.where,
                                    "'to' takes a URL here: the name stands in 'name'");
            }
        }
    }
    if (routes.empty()) {
        return config_error("--to",
                            "where shall events go? Give --to URL, for example --to stdout: or "
                            "--to kafka://localhost:9092, or [[route]] in outbox.toml");
    }
    if (routes.size() > kMaxRoutes) {
        return config_error("--to", "more than " + std::to_string(kMaxRoutes) + " routes");
    }
    const std::string where =
        options.given("to") ? options.where("to") : invocation.file.path + ": [[route]]";
    if (Status status = check_names_differ(routes, where); !status.ok()) return status;
    if (Status status = check_limits_have_stores(invocation, routes); !status.ok()) return status;
    for (RouteConfig& route : routes) take_format_options(invocation.file, route);
    for (const RouteConfig& route : routes) {
        const auto rule = core::TopicRule::make(route.topic_template, route.allowed_topics, "t");
        if (!rule.ok()) return config_error("route '" + route.name + "'", rule.error().message);
    }
    return routes;
}

}  // namespace

Environment read_environment() {
    constexpr std::string_view kPrefix = "OUTBOX_";
    Environment environment;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        const std::string_view text(*entry);
        const auto equals = text.find('=');
        if (!text.starts_with(kPrefix) || equals == std::string_view::npos) continue;
        environment.emplace(text.substr(0, equals), text.substr(equals + 1));
    }
    return environment;
}

Result<Invocation> resolve(const CommandLine& line, const Environment& environment) {
    Invocation out;
    out.command = line.command;
    out.positionals = line.positionals;
    Status status = take_arguments(line, out);
    if (status.ok()) status = take_environment(environment, out);
    if (status.ok() && (line.command & (kVersion | kSinks | kImportDebezium | kWait)) == 0)
        status = take_file(out);
    remember_secrets(line.command, environment, out);
    if (!status.ok()) return status;
    if (!out.file.routes.empty() && out.options.given("to") &&
        out.options.origin("to") > Origin::kFile && !names_other_destination(out)) {
        out.warnings.push_back(out.options.where("to") + " replaces the routes of " +
                               out.file.path);
    }
    return out;
}

namespace {

struct DatabaseOption {
    std::string_view name;
    bool (*is_for)(const Database&);
};

bool has_access(const Database& database) {
    return database.add_access != nullptr;
}

bool has_roles(const Database& database) {
    return database.roles_sql != nullptr;
}

constexpr std::array kDatabaseOptions{DatabaseOption{"password-file", has_access},
                                      DatabaseOption{"schema", has_access},
                                      DatabaseOption{"owner", has_roles}};

// With what --password-file and --schema say.
Result<std::string> database_url(const OptionValues& options, std::string_view url_option) {
    std::string url = options.text(url_option);
    const auto database = find_database(url);
    for (const DatabaseOption& option : kDatabaseOptions) {
        if (!options.given(option.name)) continue;
        if (!database.ok()) return database.status();
        if (!option.is_for(**database)) {
            return config_error(options.where(option.name),
                                "it is for " + UrlsOverDatabases("", option.is_for).help());
        }
    }
    if (!options.given("password-file") && !options.given("schema")) return url;
    auto made = (*database)->add_access(url, options.text("password-file"), options.text("schema"));
    if (!made.ok()) return config_error(options.where("schema"), made.error().message);
    return made;
}

relay::RelayOptions relay_options(const OptionValues& options) {
    const auto size = [&](std::string_view name) {
        return static_cast<std::size_t>(options.integer(name));
    };
    relay::RelayOptions made;
    made.batch_size = size("batch-size");
    made.poll_busy_ms = options.integer("poll-busy-ms");
    made.poll_idle_ms = options.integer("poll-idle-ms");
    made.retry = {options.integer("retry-base-ms"), options.integer("retry-max-ms"),
                  static_cast<std::uint32_t>(options.integer("max-attempts"))};
    made.max_unrecorded = size("max-unrecorded");
    made.max_in_flight_bytes = size("max-in-flight-bytes");
    made.tenant_share = size("tenant-share");
    made.tenant_rate = size("tenant-rate");
    made.default_tenant = options.text("default-tenant");
    made.lease_ttl_ms = options.integer("lease-ttl-ms");
    made.lease_renew_ms = made.lease_ttl_ms / 5;
    made.lease_margin_ms = made.lease_ttl_ms / 10;
    made.shutdown_grace_ms = options.integer("shutdown-grace-s") * 1000;
    made.retention_s = options.duration("retention").count();
    const std::string unmatched = options.text("unmatched");
    made.unmatched = unmatched == "finish" ? relay::Unmatched::kFinish
                     : unmatched == "stop" ? relay::Unmatched::kStop
                                           : relay::Unmatched::kDeadLetter;
    return made;
}

}  // namespace

Result<SourceConfig> make_source_config(const Invocation& invocation) {
    const OptionValues& options = invocation.options;
    const bool relays = (invocation.command & (kRelay | kDoctor | kDashboard | kReplay |
                                               kReplayList | kReplayResume | kReplayCancel)) != 0;
    const std::string_view url_option = relays                        ? "from"
                                        : invocation.command == kWait ? "consumer-db"
                                                                      : "db";
    if (!options.given(url_option)) {
        return config_error("--" + std::string(url_option),
                            "which database? Give --" + std::string(url_option) + " " +
                                urls_of_databases() + ", " + environment_name(url_option) +
                                ", or url under [source] in outbox.toml");
    }
    SourceConfig source;
    auto url = database_url(options, url_option);
    if (!url.ok()) return url.status();
    source.url = std::move(*url);
    source.connect_timeout = std::chrono::seconds(options.integer("connect-timeout-s"));
    source.table = options.text("table");
    source.mapping = invocation.file.mapping;
    if (options.given("preset")) source.mapping.preset = options.text("preset");
    const std::string after_publish = options.text("after-publish");
    if (after_publish == "delete") source.after_publish = AfterPublish::kDelete;
    if (after_publish == "mark") source.after_publish = AfterPublish::kMark;
    if (after_publish == "keep") source.after_publish = AfterPublish::kKeep;
    source.mode = options.text("mode");
    source.owners = options.list("owner");
    source.require_tls = options.flag("require-tls");
    source.tenants = options.list("tenant");
    source.default_tenant = options.text("default-tenant");
    source.default_tenant_given = options.given("default-tenant");
    return source;
}

Result<RelayConfig> make_relay_config(const Invocation& invocation) {
    const OptionValues& options = invocation.options;
    RelayConfig config;
    auto source = make_source_config(invocation);
    if (!source.ok()) return source.error();
    config.source = std::move(*source);
    auto routes = make_routes(invocation);
    if (!routes.ok()) return routes.error();
    config.routes = std::move(*routes);
    for (RouteConfig& route : config.routes) {
        route.predicate.set_default_tenant(config.source.default_tenant);
    }
    auto admin = parse_admin(options.text("admin"), options.where("admin"));
    if (!admin.ok()) return admin.error();
    config.admin = std::move(*admin);
    config.log_level = options.text("log-level");
    config.log_format = options.text("log-format");
    config.otlp_endpoint = options.text("otlp-endpoint");
    config.check = options.flag("check") || invocation.command == kDoctor;
    config.source.make_side_tables = !config.check;
    config.relay = relay_options(options);
    if (config.relay.poll_busy_ms > config.relay.poll_idle_ms) {
        return config_error(options.where("poll-busy-ms"), "must not exceed poll-idle-ms");
    }
    if (config.relay.retry.base_ms > config.relay.retry.max_ms) {
        return config_error(options.where("retry-base-ms"), "must not exceed retry-max-ms");
    }
    return config;
}

namespace {

std::string names_of(const std::vector<RouteConfig>& routes) {
    std::string names;
    for (const RouteConfig& route : routes) names += (names.empty() ? "" : ", ") + route.name;
    return names;
}

// Leads the route there. Options of its own destination are for one of that kind.
void lead_to(RouteConfig& route, const std::string& url) {
    const auto scheme_of = [](const std::string& of) { return of.substr(0, of.find(':')); };
    if (scheme_of(route.to) != scheme_of(url)) route.sink_options.clear();
    route.to = url;
}

}  // namespace

Result<ReplayConfig> make_replay_config(const Invocation& invocation, const std::string& name) {
    const OptionValues& options = invocation.options;
    auto relay = make_relay_config(invocation);
    if (!relay.ok()) return relay.error();
    ReplayConfig config{std::move(*relay), false};
    config.relay.source.tenants.clear();  // they select events, and are no source's
    config.relay.source.make_side_tables = false;
    std::vector<RouteConfig>& routes = config.relay.routes;
    const bool argued = options.origin("to") == Origin::kArgument;
    if (argued && options.list("to").size() > 1) {
        return config_error("--to", "a replay has one destination");
    }
    if (name.empty() && routes.size() > 1) {
        return config_error("--route", "which route's events? There are: " + names_of(routes));
    }
    const std::string wanted = name.empty() ? routes.front().name : name;
    const auto found = std::find_if(routes.begin(), routes.end(),
                                    [&](const RouteConfig& one) { return one.name == wanted; });
    const bool from_file = names_other_destination(invocation) || !argued;
    if (from_file && found == routes.end()) {
        return config_error("--route", "the configuration has no route '" + wanted +
                                           "'; there are: " + names_of(routes));
    }
    RouteConfig route = found == routes.end() ? routes.front() : *found;
    if (argued) {
        const Destination destination = split_destination(options.list("to").front());
        const std::string called =
            destination.named ? destination.name : derived_route_name(destination.url);
        config.other = called != wanted;
        lead_to(route, destination.url);
    }
    route.name = wanted;
    routes = {std::move(route)};
    return config;
}

Result<AdminConfig> parse_admin(std::string_view text, std::string_view where) {
    AdminConfig admin;
    if (text == "auto") return admin;
    if (text == "off") {
        admin.mode = AdminConfig::Mode::kOff;
        return admin;
    }
    const auto colon = text.rfind(':');
    unsigned port = 0;
    const std::string_view port_text =
        colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1);
    const auto parsed =
        std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
    if (port_text.empty() || parsed.ec != std::errc() ||
        parsed.ptr != port_text.data() + port_text.size() || port > 65'535 || colon == 0) {
        return config_error(where, "'" + std::string(text) +
                                       "' is not an address; give HOST:PORT, for example "
                                       "127.0.0.1:9464, or auto, or off");
    }
    admin.mode = AdminConfig::Mode::kRequired;
    admin.host = std::string(text.substr(0, colon));
    if (admin.host.size() > 2 && admin.host.front() == '[' && admin.host.back() == ']') {
        admin.host = admin.host.substr(1, admin.host.size() - 2);
    }
    admin.port = static_cast<std::uint16_t>(port);
    return admin;
}

}  // namespace outbox::runtime
