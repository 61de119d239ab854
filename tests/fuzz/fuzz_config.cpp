// What operators write: the configuration file, URLs, templates of topics, filters, times, options
// of a destination, files of others that are imported. The first byte says which. What was taken is
// what was written, and what is refused says where.

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/backend_options.h"
#include "core/routing.h"
#include "core/url.h"
#include "net/aws_credentials.h"
#include "runtime/config.h"
#include "runtime/debezium_import.h"
#include "runtime/route_names.h"
#include "runtime/toml_file.h"
#include "tests/fuzz/bytes.h"

namespace outbox {
namespace {

using test::check;
using test::next_field;

constexpr std::array kOptions{
    BackendOption{.name = "flag", .type = OptionType::kFlag, .fallback = "true"},
    BackendOption{.name = "number", .type = OptionType::kInteger, .fallback = "7", .max = 100},
    BackendOption{.name = "text", .repeatable = true},
    BackendOption{.name = "file", .type = OptionType::kPath, .secret = true}};

void read_file(std::string_view text) {
    constexpr std::string_view kPath = "outbox.toml";
    auto content = runtime::read_toml(text, std::string(kPath));
    if (!content.ok()) {
        check(content.error().code == ErrorCode::kConfigInvalid);
        check(content.error().message.starts_with(kPath));
        return;
    }
    runtime::Invocation invocation;
    invocation.command = runtime::kRelay;
    for (const auto& [spec, value] : content->options) {
        if ((spec->commands & runtime::kRelay) == 0) continue;
        check(invocation.options.set(*spec, value).ok());
    }
    invocation.file = std::move(*content);
    const auto config = runtime::make_relay_config(invocation);
    if (!config.ok()) {
        check(config.error().advice == Advice::kStop && !config.error().message.empty());
        return;
    }
    std::map<std::string, int> names;
    for (const runtime::RouteConfig& route : config->routes) {
        check(runtime::check_route_name(route.name, "").ok());
        check(++names[route.name] == 1);
        check(parse_url(route.to).ok());
        check(core::TopicRule::make(route.topic_template, route.allowed_topics, "t").ok());
    }
    check(!names.empty() && config->relay.batch_size > 0);
}

void read_url(std::string_view text) {
    if (const auto url = parse_url(text); url.ok()) {
        check(!url->scheme.empty() && url->authority.find('@') == std::string::npos);
        const auto more = parse_url(with_parameter(std::string(text), "more", text));
        check(more.ok() && more->query_value("more") == text && more->path == url->path);
        check(more->query.size() == url->query.size() + 1);
    }
    const auto destination = runtime::split_destination(text);
    check(destination.url.size() + destination.name.size() + (destination.named ? 1 : 0) ==
          text.size());
    check(runtime::check_route_name(runtime::derived_route_name(text), "").ok());
    const std::string url(text);
    check(runtime::former_route_names({url, url}).size() == 2);
}

// What is encoded comes back, whatever stands in it.
void write_url(std::string_view bytes) {
    const std::string_view user = next_field(bytes);
    const std::string_view password = next_field(bytes);
    const std::string_view path = next_field(bytes);
    const std::string_view name = next_field(bytes);
    const auto url =
        parse_url("s://" + path_part(user) + ":" + path_part(password) + "@h:1,[::1]:2/" +
                  path_part(path) + "?" + path_part(name) + "=" + path_part(bytes));
    check(url.ok() && url->user == user && url->password == password);
    check(url->authority == "h:1,[::1]:2" && url->path == "/" + std::string(path));
    check(url->query.size() == 1 && url->query_value(name) == bytes);
    check(percent_decode(percent_encode(bytes, "%")) == bytes);
}

// Whichever topics were made before, an event's is the one that its fields make.
void make_topics(std::string_view bytes) {
    const std::string_view text = next_field(bytes);
    const std::string_view allowed = next_field(bytes);
    std::vector<std::string> list;
    if (!allowed.empty()) list.emplace_back(allowed);
    const std::string fallback(next_field(bytes));
    auto rule = core::TopicRule::make(text, list, fallback);
    if (!rule.ok()) return check(rule.error().code == ErrorCode::kConfigInvalid);
    spi::EventView event;
    event.tenant_id = next_field(bytes);
    event.routing_key = next_field(bytes);
    event.key = next_field(bytes);
    event.topic = next_field(bytes);
    // The same letters, divided otherwise.
    const std::size_t middle = bytes.size() / 2;
    for (const std::size_t end : {middle, middle + 1, middle, std::size_t{0}}) {
        event.aggregate_type = bytes.substr(0, end);
        event.event_type = bytes.substr(event.aggregate_type.size());
        spi::EventBatch batch;
        const auto made = rule->topic(event, batch);
        auto fresh = core::TopicRule::make(text, list, fallback);
        const auto alone = fresh->topic(event, batch);
        check(made.ok() == alone.ok());
        if (!made.ok()) {
            check(made.error().code == ErrorCode::kTopicInvalid);
            continue;
        }
        check(*made == *alone && rule->check(*made).ok() && core::check_topic_name(*made).ok());
        check(event.topic.empty() || *made == event.topic);
    }
}

core::Predicate predicate_of(std::string_view bytes) {
    core::Predicate predicate;
    std::vector<std::string>* const lists[] = {&predicate.aggregate_types, &predicate.event_types,
                                               &predicate.topics, &predicate.tenants};
    while (!bytes.empty()) {
        const std::string_view word = next_field(bytes);
        if (!word.empty()) lists[word.front() % 4U]->emplace_back(word.substr(1));
    }
    return predicate;
}

bool mean_the_same(const core::Predicate& one, const core::Predicate& other) {
    const auto sorted = [](std::vector<std::string> list) {
        std::sort(list.begin(), list.end());
        return list;
    };
    return sorted(one.aggregate_types) == sorted(other.aggregate_types) &&
           sorted(one.event_types) == sorted(other.event_types) &&
           sorted(one.topics) == sorted(other.topics) &&
           sorted(one.tenants) == sorted(other.tenants);
}

void compare_filters(std::string_view bytes) {
    const std::size_t half = bytes.size() / 2;
    core::Predicate one = predicate_of(bytes.substr(0, half));
    const core::Predicate other = predicate_of(bytes.substr(half));
    check((one.fingerprint() == other.fingerprint()) == mean_the_same(one, other));
    spi::EventView event;
    if (!one.tenants.empty()) {
        const std::string tenant = one.tenants.front();
        event.tenant_id = tenant;
        const bool before = one.matches(event);
        one.set_default_tenant(tenant);
        check(tenant.empty() || one.matches(event) == before);
        event.tenant_id = {};
        check(tenant.empty() || one.matches(event) == before);
    }
    check(core::Predicate().matches(event));
}

void read_times(std::string_view text) {
    constexpr std::int64_t kNowUs = 1'800'000'000'000'000;
    if (const auto duration = runtime::parse_duration(text); duration.ok()) {
        check(duration->count() >= 0);
    }
    if (const auto time = runtime::parse_time(text, kNowUs); time.ok()) {
        constexpr std::int64_t kEndUs = 253'402'387'200'000'000;  // of the year 9999, in any zone
        check(*time > -kEndUs && *time < kEndUs);
    }
    if (const auto admin = runtime::parse_admin(text, "--admin"); admin.ok()) {
        using Mode = runtime::AdminConfig::Mode;
        check(admin->mode == Mode::kRequired || text == "auto" || text == "off");
    }
}

void read_options(std::string_view bytes) {
    std::vector<std::pair<std::string, std::string>> query;
    std::map<std::string, std::string> table;
    while (!bytes.empty()) {
        const std::string name(next_field(bytes));
        const std::string value(next_field(bytes));
        if (name.starts_with("kafka.")) {
            table[name] = value;
        } else {
            query.emplace_back(name, value);
        }
    }
    const auto read = read_backend_options({"Kafka", "kafka.", kOptions}, query, table);
    if (!read.ok()) return check(read.error().code == ErrorCode::kConfigInvalid);
    static_cast<void>(read->flag("flag"));
    check(read->integer("number") >= 0 && read->size("number") <= 100);
    static_cast<void>(read->text("file"));
    for (const std::string& text : read->list("text")) check(read->given("text") || text.empty());
}

// What it makes is a configuration, but for variables that this machine does not have.
void import_files(std::string_view text) {
    const auto imported = runtime::import_debezium(text);
    if (imported.ok() && imported->toml.find("${") == std::string::npos) {
        check(runtime::read_toml(imported->toml, "outbox.toml").ok());
    }
    const auto profile = net::read_profile(text, "default");
    check(profile.is_there || (profile.key.access_key.empty() && profile.other_source.empty()));
}

}  // namespace
}  // namespace outbox

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    if (size == 0) return 0;
    const outbox::test::Exactly copy({reinterpret_cast<const char*>(data) + 1, size - 1});
    constexpr std::array kReaders{outbox::read_file,    outbox::read_url,        outbox::write_url,
                                  outbox::make_topics,  outbox::compare_filters, outbox::read_times,
                                  outbox::read_options, outbox::import_files};
    // From 'A' on, so that a corpus can be read.
    kReaders[(data[0] - 'A' + kReaders.size() * 16) % kReaders.size()](copy);
    return 0;
}
