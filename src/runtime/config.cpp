#include "runtime/config.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <set>
#include <unistd.h>

#include "core/url.h"
#include "runtime/command_line.h"
#include "runtime/metrics.h"
#include "runtime/suggest.h"

namespace outbox::runtime {
namespace {

constexpr std::string_view kDefaultFile = "outbox.toml";
constexpr std::size_t kMaxRoutes = kMaxRouteLabels;
constexpr std::size_t kMaxRouteNameBytes = 64;

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
        const OptionSpec* spec = find_option(name);
        Status status = out.options.set(*spec, {texts, Origin::kArgument, "--" + name});
        if (!status.ok()) return status;
        if (spec->type != OptionType::kUrl) continue;
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
        if ((spec.commands & out.command) == 0) continue;
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
        if (spec.type != OptionType::kUrl || (spec.commands & command) == 0) continue;
        if (!spec.repeatable) {
            remember_secrets_of(out.options.text(spec.name));
            continue;
        }
        for (const std::string& url : out.options.list(spec.name)) remember_secrets_of(url);
    }
    for (const RouteEntry& route : out.file.routes) {
        if (const auto to = route.values.find("to"); to != route.values.end()) {
            for (const std::string& url : to->second) remember_secrets_of(url);
        }
        for (const auto& [name, value] : route.sink_options) {
            if (is_secret_option(name)) remember_secret(value);
        }
    }
}

std::string url_safe(std::string_view text) {
    std::string out;
    for (const char c : text) {
        if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_') {
            out += c;
        } else if (!out.empty() && out.back() != '-') {
            out += '-';
        }
    }
    while (!out.empty() && out.back() == '-') out.pop_back();
    return out.substr(0, kMaxRouteNameBytes - 4);
}

Status check_route_name(const std::string& name, const std::string& where) {
    const bool valid = !name.empty() && name.size() <= kMaxRouteNameBytes &&
                       std::all_of(name.begin(), name.end(), [](unsigned char c) {
                           return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.';
                       });
    if (valid) return {};
    return config_error(
        where, "'" + name + "' is not a route name: use 1 to 64 letters, digits, and - _ .");
}

RouteConfig route_with_defaults(const OptionValues& options) {
    RouteConfig route;
    route.topic_template = options.text("topic-template");
    route.allowed_topics = options.list("allowed-topic");
    route.format = options.text("format");
    route.on_dead_letter = options.text("on-dead-letter");
    return route;
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
    take("on_dead_letter", route.on_dead_letter);
    take_list("allowed_topics", route.allowed_topics);
    take_list("aggregate_type", route.predicate.aggregate_types);
    take_list("event_type", route.predicate.event_types);
    take_list("topic", route.predicate.topics);
    take_list("tenant", route.predicate.tenants);
    route.sink_options = entry.sink_options;
    return route;
}

std::vector<RouteConfig> routes_of_urls(const OptionValues& options) {
    const std::vector<std::string> urls = options.list("to");
    std::vector<RouteConfig> routes;
    std::set<std::string> names;
    for (const std::string& url : urls) {
        RouteConfig route = route_with_defaults(options);
        route.to = url;
        if (urls.size() > 1) {
            const std::string base = route_name_of(url);
            route.name = base;
            for (int n = 2; !names.insert(route.name).second; ++n) {
                route.name = base + "-" + std::to_string(n);
            }
        }
        routes.push_back(std::move(route));
    }
    return routes;
}

Result<std::vector<RouteConfig>> make_routes(const Invocation& invocation) {
    const OptionValues& options = invocation.options;
    const auto& entries = invocation.file.routes;
    if (!entries.empty() && options.origin("to") == Origin::kFile) {
        return config_error(options.where("to"),
                            "give either 'to' or [[route]] in the file, not both");
    }
    std::vector<RouteConfig> routes;
    if (options.given("to")) {
        routes = routes_of_urls(options);
    } else {
        std::set<std::string> names;
        for (const RouteEntry& entry : entries) {
            routes.push_back(route_of(entry, options));
            const std::string& name = routes.back().name;
            Status status = check_route_name(name, entry.where);
            if (!status.ok()) return status;
            if (!names.insert(name).second) {
                return config_error(entry.where, "a route named '" + name + "' is there already");
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
    if (status.ok() && line.command != kVersion) status = take_file(out);
    remember_secrets(line.command, environment, out);
    if (!status.ok()) return status;
    if (!out.file.routes.empty() && out.options.given("to") &&
        out.options.origin("to") > Origin::kFile) {
        out.warnings.push_back(out.options.where("to") + " replaces the routes of " +
                               out.file.path);
    }
    return out;
}

Result<SourceConfig> make_source_config(const Invocation& invocation) {
    const OptionValues& options = invocation.options;
    const std::string_view url_option = invocation.command == kRelay ? "from" : "db";
    if (!options.given(url_option)) {
        return config_error("--" + std::string(url_option),
                            "which database? Give --" + std::string(url_option) +
                                " postgresql://user@host/database or sqlite:///path, " +
                                environment_name(url_option) +
                                ", or url under [source] in outbox.toml");
    }
    SourceConfig source;
    source.url = options.text(url_option);
    source.connect_timeout = std::chrono::seconds(options.integer("connect-timeout-s"));
    source.table = options.text("table");
    source.mapping = invocation.file.mapping;
    if (options.given("preset")) source.mapping.preset = options.text("preset");
    source.after_publish = options.text("after-publish");
    source.mode = options.text("mode");
    source.owners = options.list("owner");
    source.require_tls = options.flag("require-tls");
    source.tenants = options.list("tenant");
    source.default_tenant = options.text("default-tenant");
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
    auto admin = parse_admin(options.text("admin"), options.where("admin"));
    if (!admin.ok()) return admin.error();
    config.admin = std::move(*admin);
    config.log_level = options.text("log-level");
    config.log_format = options.text("log-format");
    config.check = options.flag("check");
    config.source.make_side_tables = !config.check;
    config.retention = options.duration("retention");
    config.batch_size = static_cast<std::size_t>(options.integer("batch-size"));
    config.poll_busy_ms = options.integer("poll-busy-ms");
    config.poll_idle_ms = options.integer("poll-idle-ms");
    config.max_attempts = static_cast<std::uint32_t>(options.integer("max-attempts"));
    config.retry_base_ms = options.integer("retry-base-ms");
    config.retry_max_ms = options.integer("retry-max-ms");
    config.max_unrecorded = static_cast<std::size_t>(options.integer("max-unrecorded"));
    config.max_in_flight_bytes = static_cast<std::size_t>(options.integer("max-in-flight-bytes"));
    config.lease_ttl_ms = options.integer("lease-ttl-ms");
    config.shutdown_grace_s = options.integer("shutdown-grace-s");
    if (config.poll_busy_ms > config.poll_idle_ms) {
        return config_error(options.where("poll-busy-ms"), "must not exceed poll-idle-ms");
    }
    if (config.retry_base_ms > config.retry_max_ms) {
        return config_error(options.where("retry-base-ms"), "must not exceed retry-max-ms");
    }
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

std::string route_name_of(std::string_view text) {
    const auto url = parse_url(redact(text));
    if (!url.ok()) return "default";
    std::string name = url->scheme;
    if (!url->authority.empty()) name += "-" + url->authority;
    const auto slash = url->path.rfind('/');
    if (slash != std::string::npos) name += "-" + url->path.substr(slash + 1);
    const auto mailbox = url->query_value("mailbox");
    if (!mailbox.empty()) name += "-" + std::string(mailbox);
    return url_safe(name);
}

}  // namespace outbox::runtime
