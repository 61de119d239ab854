// One event to an endpoint, now, and what it answers.
#include "webhook.h"

#include <iostream>
#include <nlohmann/json.hpp>

#include <outbox/producer/emit.h>

#include "commands.h"
#include "core/redact.h"
#include "core/system_clock.h"
#include "core/utf8.h"
#include "print.h"
#include "runtime/exit_codes.h"
#ifdef OUTBOX_WITH_HTTP
#include "net/http_client.h"
#include "webhook/http_sender.h"
#endif

namespace outbox::app {

#ifdef OUTBOX_WITH_HTTP
namespace {

using nlohmann::ordered_json;
using webhook::Attempted;
using webhook::Delivery;
using webhook::Endpoint;

constexpr std::size_t kShownBytes = 1'000;  // of an answer's body

struct Tried {
    Attempted ended;
    net::HttpOutcome answer;
    std::int64_t took_us = 0;
};

Delivery test_event(const Endpoint& endpoint, std::int64_t now_us) {
    Delivery delivery;
    delivery.endpoint_id = endpoint.id;
    delivery.event_id = new_event_id();
    delivery.event_type = "outbox.test";
    delivery.occurred_at_us = now_us;
    delivery.payload = ordered_json{{"type", "outbox.test"},
                                    {"timestamp", time_text(now_us)},
                                    {"data", {{"endpoint", endpoint.id}}}}
                           .dump();
    return delivery;
}

Result<Tried> attempt(const runtime::Invocation& invocation, const Endpoint& endpoint) {
    Tried tried;
    webhook::SenderConfig config{.key_file = webhook_setting(invocation, "key-file", "key_file")};
    config.allow = webhook_setting(invocation, "allow", "allow");
    config.allow_http = webhooks_in_clear(invocation);
    config.ca_file = webhook_setting(invocation, "ca-file", "ca_file");
    config.on_answer = [&tried](const net::HttpOutcome& outcome) { tried.answer = outcome; };
    const auto sender = webhook::make_http_sender(std::move(config));
    if (!sender.ok()) return sender.status();
    const core::SystemClock clock;
    const std::int64_t began_us = clock.boot_us();
    (*sender)->start(0, endpoint, test_event(endpoint, clock.wall_us()));
    std::vector<Attempted> ended;
    while (ended.empty()) (*sender)->poll(std::chrono::seconds(1), -1, ended);
    tried.ended = std::move(ended.front());
    tried.took_us = clock.boot_us() - began_us;
    return tried;
}

void print(const Tried& tried) {
    constexpr double kUsPerSecond = 1e6;
    const bool delivered = tried.ended.verdict.kind == webhook::Verdict::Kind::kDone;
    std::cout << (delivered ? "delivered" : "not delivered")
              << (tried.ended.status != 0 ? ": HTTP " + std::to_string(tried.ended.status) : "")
              << " after " << age_text(static_cast<double>(tried.took_us) / kUsPerSecond) << "\n";
    print_field("error", tried.ended.verdict.text);
    print_field("address", tried.answer.peer);
    print_field("answer", tried.answer.body.substr(0, kShownBytes));
}

}  // namespace

int run_webhook_test(const runtime::Invocation& invocation) {
    const auto keys = read_webhook_keys(invocation);
    if (!keys.ok()) return report(keys.error());
    const auto registry = open_webhooks(invocation);
    if (!registry.ok()) return report(registry.error());
    const auto found = named_endpoint(invocation, **registry);
    if (!found.ok()) return report(found.error());
    const auto tried = attempt(invocation, found->endpoint);
    if (!tried.ok()) return report(tried.error());
    const bool delivered = tried->ended.verdict.kind == webhook::Verdict::Kind::kDone;
    if (invocation.options.flag("json")) {
        print_json({{"id", found->endpoint.id},
                    {"delivered", delivered},
                    {"status",
                     tried->ended.status != 0 ? ordered_json(tried->ended.status) : ordered_json()},
                    {"error", text_or_null(redact(tried->ended.verdict.text))},
                    {"address", text_or_null(tried->answer.peer)},
                    {"took_ms", tried->took_us / 1'000},
                    {"answer", text_or_null(to_utf8(tried->answer.body.substr(0, kShownBytes)))}});
    } else {
        print(*tried);
    }
    return delivered ? runtime::kExitOk : runtime::kExitFailed;
}
#else
int run_webhook_test(const runtime::Invocation& /*invocation*/) {
    return report({ErrorCode::kUnsupported,
                   Advice::kStop,
                   {},
                   "this program was built without libcurl and sends no webhooks"});
}
#endif

}  // namespace outbox::app
