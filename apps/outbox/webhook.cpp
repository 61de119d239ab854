// Endpoints of webhooks: who subscribes to which events, and by which secret.
#include "webhook.h"

#include <algorithm>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include <outbox/producer/emit.h>

#include "commands.h"
#include "core/ascii.h"
#include "core/redact.h"
#include "core/system_clock.h"
#include "core/utf8.h"
#include "print.h"
#include "registry.h"
#include "runtime/exit_codes.h"
#include "secrets/password_file.h"
#include "webhook/address_guard.h"
#include "webhook/endpoint_url.h"
#include "webhook/event_filter.h"
#include "webhook/resolver.h"
#include "webhook/signature.h"

namespace outbox::app {
namespace {

using nlohmann::ordered_json;
using webhook::Endpoint;
using webhook::EndpointReport;
using webhook::Secret;
using webhook::SecretType;
using webhook::Signer;

constexpr std::int64_t kUsPerSecond = 1'000'000;
constexpr std::size_t kMaxSecrets = 4;  // of one endpoint at once: each is a signature more

std::int64_t now_s() {
    return core::SystemClock().wall_us() / kUsPerSecond;
}

ErrorInfo usage(const runtime::Invocation& invocation, const std::string& message) {
    return runtime::config_error(command_of(invocation), message);
}

// The one argument that the command needs.
Result<std::string> argument_of(const runtime::Invocation& invocation) {
    if (invocation.positionals.size() == 1) return invocation.positionals.front();
    const std::string name(runtime::command_spec(invocation.command).positional);
    return usage(invocation,
                 "give one " + name + ": " + command_of(invocation) + " " + name + " --db URL");
}

Status check_id(const runtime::Invocation& invocation, const std::string& id) {
    constexpr std::string_view kMarks = "-_.:@";
    const bool plain = std::all_of(id.begin(), id.end(), [&](char c) {
        return is_letter_or_digit(c) || kMarks.find(c) != std::string_view::npos;
    });
    if (!id.empty() && id.size() <= webhook::kMaxEndpointIdBytes && plain) return {};
    return usage(invocation, "--id takes up to 64 letters, digits and - _ . : @");
}

// A secret with what signs by it.
struct Given {
    std::string secret;
    Signer signer;
    bool made = false;
};

Result<Given> secret_for(const runtime::Invocation& invocation, SecretType fallback) {
    const runtime::OptionValues& options = invocation.options;
    const auto wanted = webhook::secret_type(options.text("type"));
    const bool from_file = options.given("secret-file");
    auto secret = from_file ? read_secret(options.text("secret-file"), "webhook secret file")
                            : webhook::make_secret(wanted.value_or(fallback));
    if (!secret.ok()) return secret.status();
    remember_secret(*secret);
    auto signer = Signer::make(*secret);
    if (!signer.ok()) return signer.status();
    if (wanted && signer->type() != *wanted) {
        return usage(invocation, "--type is " + std::string(name_of(*wanted)) +
                                     " and the secret in --secret-file signs with " +
                                     std::string(name_of(signer->type())));
    }
    return Given{std::move(*secret), std::move(*signer), !from_file};
}

// What the receiver needs: shown once. An Ed25519 key stays here.
std::string secret_to_show(const Given& given) {
    return given.made && given.signer.type() == SecretType::kV1 ? given.secret : std::string();
}

void add_secret(const Given& given, ordered_json& json) {
    json["type"] = name_of(given.signer.type());
    json["secret"] = text_or_null(secret_to_show(given));
    json["public_key"] = text_or_null(given.signer.public_key());
}

void print_secret(const Given& given) {
    if (const std::string shown = secret_to_show(given); !shown.empty()) {
        std::cout << "secret, shown this once, for the receiver: " << shown << "\n";
    }
    if (const std::string key = given.signer.public_key(); !key.empty()) {
        std::cout << "public key, for the receiver: " << key << "\n";
    }
}

// What the name resolves to now may be something else tomorrow: a word of warning, no more.
void warn_of_name(const webhook::AddressGuard& guard, const std::string& host,
                  std::chrono::milliseconds timeout) {
    const auto answers = webhook::resolve_all({&host, 1}, {.timeout = timeout});
    std::string why = answers[0].no.why;
    if (why.empty() && guard.choose(host, answers[0].addresses, 0, why)) return;
    warn(why);
}

Result<webhook::EndpointUrl> check_url(const runtime::Invocation& invocation,
                                       const std::string& text) {
    auto url = webhook::parse_endpoint_url(text, {.allow_http = webhooks_in_clear(invocation)});
    if (!url.ok()) return url;
    const auto guard = webhook::AddressGuard::make(webhook_setting(invocation, "allow", "allow"));
    if (!guard.ok()) return guard.status();
    if (!url->address) {
        warn_of_name(*guard, url->host,
                     std::chrono::seconds(invocation.options.integer("connect-timeout-s")));
    } else if (auto why = guard->refusal(url->host, *url->address)) {
        return ErrorInfo{ErrorCode::kConfigInvalid, Advice::kStop, {}, std::move(*why)};
    }
    return url;
}

ordered_json json_of(const EndpointReport& report) {
    const Endpoint& endpoint = report.endpoint;
    return {{"id", endpoint.id},
            {"url", redact(endpoint.url)},
            {"events", endpoint.events},
            {"tenant", endpoint.tenant ? ordered_json(*endpoint.tenant) : ordered_json()},
            {"state", endpoint.enabled() ? "enabled" : "disabled"},
            {"reason", text_or_null(redact(endpoint.reason))},
            {"created_at", time_text(endpoint.created_at_us)},
            {"waiting", report.waiting},
            {"failing", report.failing},
            {"dead", report.dead},
            {"oldest_waiting_at", text_or_null(time_text(report.oldest_at_us))},
            {"delivered_total", endpoint.delivered_total},
            {"missed_total", endpoint.missed_total},
            {"last_attempt_at", text_or_null(time_text(endpoint.last_attempt_at_us))},
            {"failing_since", text_or_null(time_text(endpoint.failing_since_us))},
            {"paused_until", text_or_null(time_text(endpoint.paused_until_us))},
            {"last_status",
             endpoint.last_status != 0 ? ordered_json(endpoint.last_status) : ordered_json()},
            {"last_error", text_or_null(redact(endpoint.last_error))}};
}

void print_table(const std::vector<EndpointReport>& endpoints) {
    constexpr std::size_t kUrlColumns = 50;
    constexpr std::size_t kErrorColumns = 60;
    using Align = TextColumns::Align;
    TextColumns columns({{"ID", Align::kLeft},
                         {"URL", Align::kLeft},
                         {"EVENTS", Align::kLeft},
                         {"STATE", Align::kLeft},
                         {"WAITING", Align::kRight},
                         {"DEAD", Align::kRight},
                         {"LAST ERROR", Align::kLeft}});
    for (const EndpointReport& report : endpoints) {
        const Endpoint& endpoint = report.endpoint;
        const std::string& error = endpoint.enabled() ? endpoint.last_error : endpoint.reason;
        columns.add({endpoint.id, shortened(redact(endpoint.url), kUrlColumns), endpoint.events,
                     endpoint.enabled() ? "enabled" : "disabled", with_commas(report.waiting),
                     with_commas(report.dead), shortened(redact(error), kErrorColumns)});
    }
    columns.print(std::cout);
}

// The secrets that sign from now on: the new one, and those that still do for a while.
Result<std::vector<Secret>> rotated(const runtime::Invocation& invocation,
                                    const std::vector<Secret>& former, std::string fresh) {
    const std::int64_t until = now_s() + invocation.options.duration("overlap").count();
    std::vector<Secret> secrets{{std::move(fresh), 0}};
    for (Secret secret : webhook::in_force(former, now_s())) {
        secret.until_s = secret.until_s == 0 ? until : std::min(secret.until_s, until);
        secrets.push_back(std::move(secret));
    }
    if (secrets.size() <= kMaxSecrets) return secrets;
    return usage(invocation,
                 "three former secrets sign still; wait until one of them ends, or end "
                 "them all with --overlap 0s");
}

Result<std::vector<Secret>> former_secrets(const runtime::Invocation& invocation,
                                           const webhook::KeyRing& keys, const Endpoint& endpoint) {
    if (invocation.options.duration("overlap").count() == 0) return std::vector<Secret>();
    return keys.open(endpoint.id, endpoint.secrets);
}

SecretType type_of(const std::vector<Secret>& secrets) {
    if (secrets.empty()) return SecretType::kV1;
    const auto signer = Signer::make(secrets.front().text);
    return signer.ok() ? signer->type() : SecretType::kV1;
}

}  // namespace

Result<std::unique_ptr<webhook::Registry>> open_webhooks(const runtime::Invocation& invocation) {
    const auto config = runtime::make_source_config(invocation);
    if (!config.ok()) return config.error();
    auto sql = open_consumer_sql(config->url, static_cast<int>(config->connect_timeout.count()),
                                 {config->owners});
    if (!sql.ok()) return sql.status();
    return webhook::Registry::make(std::move(*sql), os_user());
}

std::string webhook_setting(const runtime::Invocation& invocation, std::string_view option,
                            std::string_view file_key) {
    if (invocation.options.given(option)) return invocation.options.text(option);
    for (const runtime::RouteEntry& route : invocation.file.routes) {
        const auto found = route.sink_options.find("webhook." + std::string(file_key));
        if (found != route.sink_options.end()) return found->second;
    }
    return {};
}

bool webhooks_in_clear(const runtime::Invocation& invocation) {
    return invocation.options.flag("allow-http") ||
           (!invocation.options.given("allow-http") &&
            webhook_setting(invocation, "allow-http", "allow_http") == "true");
}

Result<webhook::KeyRing> read_webhook_keys(const runtime::Invocation& invocation) {
    const std::string path = webhook_setting(invocation, "key-file", "key_file");
    if (!path.empty()) return webhook::KeyRing::read(path);
    return runtime::config_error(
        "--key-file",
        "which key are secrets stored under? Give the file that the relay has; make "
        "one with: (umask 077; openssl rand -base64 32 > webhook.key)");
}

Result<EndpointReport> named_endpoint(const runtime::Invocation& invocation,
                                      webhook::Registry& registry) {
    const auto id = argument_of(invocation);
    if (!id.ok()) return id.status();
    auto found = registry.get(*id);
    if (!found.ok()) return found.status();
    if (found->has_value()) return std::move(**found);
    return ErrorInfo{ErrorCode::kRecordRefused,
                     Advice::kStop,
                     {},
                     "there is no endpoint '" + to_printable(*id) +
                         "'; `outbox webhook list` shows those that there are"};
}

int run_webhook_add(const runtime::Invocation& invocation) {
    const auto text = argument_of(invocation);
    if (!text.ok()) return report(text.error());
    const runtime::OptionValues& options = invocation.options;
    Endpoint endpoint;
    endpoint.id = options.given("id") ? options.text("id") : new_event_id();
    if (const Status id = check_id(invocation, endpoint.id); !id.ok()) return report(id.error());
    const auto filter = webhook::EventFilter::make(options.text("events"));
    if (!filter.ok()) return report(filter.error());
    endpoint.events = filter->text();
    if (options.given("tenant")) endpoint.tenant = options.text("tenant");
    const auto keys = read_webhook_keys(invocation);
    if (!keys.ok()) return report(keys.error());
    const auto given = secret_for(invocation, SecretType::kV1);
    if (!given.ok()) return report(given.error());
    const auto url = check_url(invocation, *text);
    if (!url.ok()) return report(url.error());
    endpoint.url = url->text;
    auto sealed = keys->seal(endpoint.id, {{given->secret, 0}});
    if (!sealed.ok()) return report(sealed.error());
    endpoint.secrets = std::move(*sealed);
    const auto registry = open_webhooks(invocation);
    if (!registry.ok()) return report(registry.error());
    if (const Status added = (*registry)->add(endpoint); !added.ok()) return report(added.error());
    if (options.flag("json")) {
        ordered_json json{
            {"id", endpoint.id}, {"url", redact(endpoint.url)}, {"events", endpoint.events}};
        add_secret(*given, json);
        print_json(json);
        return runtime::kExitOk;
    }
    std::cout << "endpoint " << endpoint.id << " gets " << endpoint.events << " at "
              << redact(endpoint.url) << "\n";
    print_secret(*given);
    return runtime::kExitOk;
}

int run_webhook_list(const runtime::Invocation& invocation) {
    const auto registry = open_webhooks(invocation);
    if (!registry.ok()) return report(registry.error());
    const auto endpoints = (*registry)->list(true);
    if (!endpoints.ok()) return report(endpoints.error());
    if (invocation.options.flag("json")) {
        ordered_json list = ordered_json::array();
        for (const EndpointReport& one : *endpoints) list.push_back(json_of(one));
        print_json(list);
    } else if (endpoints->empty()) {
        std::cout << "no endpoints; add one: outbox webhook add URL\n";
    } else {
        print_table(*endpoints);
    }
    return runtime::kExitOk;
}

int run_webhook_rotate(const runtime::Invocation& invocation) {
    const auto keys = read_webhook_keys(invocation);
    if (!keys.ok()) return report(keys.error());
    const auto registry = open_webhooks(invocation);
    if (!registry.ok()) return report(registry.error());
    const auto found = named_endpoint(invocation, **registry);
    if (!found.ok()) return report(found.error());
    const Endpoint& endpoint = found->endpoint;
    const auto former = former_secrets(invocation, *keys, endpoint);
    if (!former.ok()) return report(former.error());
    const auto given = secret_for(invocation, type_of(*former));
    if (!given.ok()) return report(given.error());
    const auto secrets = rotated(invocation, *former, given->secret);
    if (!secrets.ok()) return report(secrets.error());
    const auto sealed = keys->seal(endpoint.id, *secrets);
    if (!sealed.ok()) return report(sealed.error());
    const Status changed = (*registry)->set_secrets(endpoint.id, endpoint.revision, *sealed);
    if (!changed.ok()) return report(changed.error());
    std::int64_t until_us = 0;
    for (const Secret& secret : *secrets) {
        until_us = std::max(until_us, secret.until_s * kUsPerSecond);
    }
    if (invocation.options.flag("json")) {
        ordered_json json{{"id", endpoint.id}};
        add_secret(*given, json);
        json["former_until"] = text_or_null(time_text(until_us));
        print_json(json);
        return runtime::kExitOk;
    }
    std::cout << "endpoint " << endpoint.id << " has a new secret; the former one "
              << (until_us == 0 ? "signs no more" : "signs as well until " + time_text(until_us))
              << "\n";
    print_secret(*given);
    return runtime::kExitOk;
}

namespace {

int done(const runtime::Invocation& invocation, const ordered_json& json, const std::string& text) {
    if (invocation.options.flag("json")) {
        print_json(json);
    } else {
        std::cout << text << "\n";
    }
    return runtime::kExitOk;
}

}  // namespace

int run_webhook_disable(const runtime::Invocation& invocation) {
    const auto registry = open_webhooks(invocation);
    if (!registry.ok()) return report(registry.error());
    const auto found = named_endpoint(invocation, **registry);
    if (!found.ok()) return report(found.error());
    const std::string& id = found->endpoint.id;
    const std::string reason = invocation.options.given("reason")
                                   ? to_printable(invocation.options.text("reason"))
                                   : "disabled by " + os_user();
    const auto disabled = (*registry)->disable(id, reason);
    if (!disabled.ok()) return report(disabled.error());
    return done(invocation, {{"id", id}, {"state", "disabled"}, {"reason", reason}},
                "endpoint " + id + " is disabled: " + reason);
}

int run_webhook_enable(const runtime::Invocation& invocation) {
    const auto registry = open_webhooks(invocation);
    if (!registry.ok()) return report(registry.error());
    const auto found = named_endpoint(invocation, **registry);
    if (!found.ok()) return report(found.error());
    const std::string& id = found->endpoint.id;
    const auto enabled = (*registry)->enable(id);
    if (!enabled.ok()) return report(enabled.error());
    const std::int64_t again = found->waiting + found->dead;
    return done(invocation, {{"id", id}, {"state", "enabled"}, {"waiting", again}},
                "endpoint " + id + " is enabled; " + with_commas(again) +
                    (again == 1 ? " delivery goes" : " deliveries go") + " now");
}

int run_webhook_delete(const runtime::Invocation& invocation) {
    const auto registry = open_webhooks(invocation);
    if (!registry.ok()) return report(registry.error());
    const auto found = named_endpoint(invocation, **registry);
    if (!found.ok()) return report(found.error());
    const std::string& id = found->endpoint.id;
    if (found->waiting + found->dead > 0 && !invocation.options.flag("yes")) {
        return report(usage(invocation, "for endpoint '" + id + "' " + with_commas(found->waiting) +
                                            " wait and " + with_commas(found->dead) +
                                            " were given up on, which it will never get then; if "
                                            "that is meant, add --yes"));
    }
    const auto removed = (*registry)->remove(id);
    if (!removed.ok()) return report(removed.error());
    const std::int64_t dropped = removed->value_or(0);
    return done(invocation, {{"id", id}, {"deleted", removed->has_value()}, {"dropped", dropped}},
                "endpoint " + id + " is deleted" +
                    (dropped == 0 ? "" : ", with " + with_commas(dropped) + " deliveries"));
}

}  // namespace outbox::app
