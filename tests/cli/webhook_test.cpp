// Endpoints of webhooks as operators and services make them, and a receiver that is not ours.
#include <filesystem>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/certificates.h"
#include "tests/support/eventually.h"
#include "tests/support/outbox_binary.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"
#include "tests/webhook/receiver.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;
using nlohmann::json;
using testing::AllOf;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kUrl = "https://192.0.2.9/hook";  // for documentation: allowed below

class WebhookCommands : public testing::TestWithParam<const char*> {
  protected:
    void SetUp() override {
        url_ = on_sqlite() ? "sqlite://" + outbox_.file("shop.db").string()
                           : shared_postgres().create_database();
        ASSERT_EQ(outbox_.run({"migrate", "--db", url_}).status.code, 0);
        key_file_ = write_key("webhook.key", 'k');
    }
    bool on_sqlite() const { return GetParam() == std::string("sqlite"); }
    std::string write_key(const std::string& name, char byte) {
        // 32 bytes in base64.
        const std::string key = byte == 'k' ? "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s="
                                            : "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=";
        const auto path = outbox_.write(name, key + "\n");
        std::filesystem::permissions(path, std::filesystem::perms::owner_read);
        return path.string();
    }
    std::string value(const std::string& statement) {
        return on_sqlite() ? Sqlite(outbox_.file("shop.db")).value(statement)
                           : Pg(url_).value(statement);
    }
    void sql(const std::string& statement) {
        if (on_sqlite())
            Sqlite(outbox_.file("shop.db")).exec(statement);
        else
            Pg(url_).exec(statement);
    }
    Finished webhook(std::vector<std::string> arguments) {
        arguments.insert(arguments.begin(), "webhook");
        arguments.insert(arguments.end(), {"--db", url_});
        return outbox_.run(std::move(arguments));
    }
    // With the key, and with what this machine's receivers need.
    Finished keyed(std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), {"--key-file", key_file_});
        if (arguments.front() != "rotate") {
            arguments.insert(arguments.end(),
                             {"--allow", "127.0.0.1,192.0.2.0/24", "--allow-http"});
        }
        return webhook(std::move(arguments));
    }
    static json result(const Finished& ended) {
        EXPECT_EQ(ended.status.code, 0) << ended.err;
        return ended.out.empty() ? json() : json::parse(ended.out);
    }
    json add(const std::string& url, const std::string& id, std::vector<std::string> more = {}) {
        more.insert(more.begin(), {"add", url, "--id", id, "--json"});
        return result(keyed(std::move(more)));
    }
    json listed(const std::string& id) {
        for (json& one : result(webhook({"list", "--json"}))) {
            if (one["id"] == id) return std::move(one);
        }
        return {};
    }
    void let_one_wait(const std::string& id, const std::string& event, bool dead) {
        sql("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, payload, attempts, "
            "dead) "
            "VALUES ('" +
            id + "', '" + event + "', '{}', 1, " + (dead ? "(1 = 1)" : "(1 = 0)") + ")");
    }
    static std::string url_of(const Receiver& receiver, const std::string& path = "/hook") {
        return "http://127.0.0.1:" + std::to_string(receiver.port()) + path;
    }

    OutboxBinary outbox_;
    std::string url_;
    std::string key_file_;
};

TEST_P(WebhookCommands, StatusShowsWhatWaitsAndThatNobodyDelivers) {
    add(kUrl, "quiet");
    add(kUrl, "busy");
    add(kUrl, "off");
    ASSERT_EQ(webhook({"disable", "off"}).status.code, 0);
    const auto status = [&](bool as_json) {
        std::vector<std::string> arguments{"status", "--db", url_};
        if (as_json) arguments.emplace_back("--json");
        return outbox_.run(std::move(arguments));
    };
    json one = result(status(true))["webhooks"];
    EXPECT_EQ(one["waiting"], 0);
    EXPECT_TRUE(one["remark"].is_null());
    let_one_wait("busy", "e1", false);
    let_one_wait("busy", "e2", true);
    sql("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('busy', 'e3')");
    const std::string when = on_sqlite() ? "4102444800000000" : "'2100-01-01 00:00:00+00'";
    sql("UPDATE outbox_webhook_endpoints SET failing_since = " + when + ", paused_until = " + when +
        ", last_error = 'HTTP 503' WHERE endpoint_id = 'busy'");
    one = result(status(true))["webhooks"];
    EXPECT_TRUE(one["delivered_by"].is_null());
    EXPECT_EQ(one["waiting"], 2);
    ASSERT_EQ(one["endpoints"].size(), 3U);
    json busy;
    for (const json& each : one["endpoints"]) {
        if (each["id"] == "busy") busy = each;
    }
    EXPECT_EQ(busy["waiting"], 2);
    EXPECT_EQ(busy["failing"], 1);
    EXPECT_EQ(busy["dead"], 1);
    EXPECT_THAT(busy["failing_since"].get<std::string>(), StartsWith("2100-01-01"));
    EXPECT_THAT(busy["next_attempt_at"].get<std::string>(), StartsWith("2100-01-01"));
    EXPECT_FALSE(busy["oldest_waiting_at"].is_null());
    EXPECT_THAT(status(false).out,
                AllOf(HasSubstr("busy"), HasSubstr("HTTP 503"), HasSubstr("2100-01-01T00:00:00Z"),
                      HasSubstr("off"), Not(HasSubstr("quiet")),
                      HasSubstr("1 webhook endpoints have nothing waiting"),
                      HasSubstr("no relay delivers webhooks, and 2 wait"),
                      HasSubstr("outbox webhook delete ID --yes")));
    // A relay that delivers.
    sql("INSERT INTO outbox_webhook_lease (source, owner, epoch, expires_at) VALUES "
        "('outbox_webhook_deliveries', 'here:1', 1, " +
        when + ")");
    one = result(status(true))["webhooks"];
    EXPECT_EQ(one["delivered_by"], "here:1");
    EXPECT_TRUE(one["remark"].is_null());
}

TEST_P(WebhookCommands, ExplainSaysWhichEndpointsWaitForAnEventAndWhy) {
    const std::string id = "01939d3e-7c00-7aaa-8000-000000000001";
    const auto explain = [&](std::vector<std::string> asked) {
        asked.insert(asked.begin(), "explain");
        asked.insert(asked.end(), {"--db", url_, "--json"});
        const Finished ended = outbox_.run(std::move(asked));
        EXPECT_EQ(ended.err, "");
        return json::parse(ended.out);
    };
    EXPECT_EQ(explain({id})["events"][0]["state"], "unknown");
    for (const char* one : {"busy", "off", "tired"}) add(kUrl, one);
    ASSERT_EQ(webhook({"disable", "off", "--reason", "asked to"}).status.code, 0);
    let_one_wait("busy", "e0", false);
    let_one_wait("tired", id, true);
    sql("UPDATE outbox_webhook_deliveries SET key = 'o-1', last_error = 'HTTP 500'");
    for (const char* one : {"busy", "off"}) {
        sql(std::string("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, key) VALUES "
                        "('") +
            one + "', '" + id + "', 'o-1')");
    }
    const json event = explain({id})["events"][0];
    EXPECT_EQ(event["state"], "waiting");
    ASSERT_EQ(event["webhooks"].size(), 3U);
    EXPECT_EQ(event["webhooks"][2]["endpoint"], "tired") << "what is dead comes last";
    EXPECT_EQ(event["webhooks"][2]["dead"], true);
    std::map<std::string, json> waits;
    for (const json& one : event["waits"]) waits[one["reason"]] = one;
    EXPECT_EQ(waits.size(), 3U) << event["waits"];
    EXPECT_TRUE(waits.contains("endpoint_not_served"));
    EXPECT_EQ(waits["endpoint_behind"]["behind"], "e0");
    EXPECT_THAT(waits["endpoint_disabled"]["text"],
                HasSubstr("endpoint off: it is disabled: asked to"));
    EXPECT_THAT(event["remarks"].dump(), HasSubstr("outbox webhook enable tired"));
    const json of_key = explain({"--key", "o-1"});
    EXPECT_EQ(of_key["webhooks"].size(), 4U);
    EXPECT_EQ(explain({"--key", "o-1", "--limit", "2"})["webhooks_are_more"], true);
    EXPECT_THAT(outbox_.run({"explain", "--key", "o-1", "--db", url_}).out,
                AllOf(HasSubstr("failed 1 time at endpoint busy"),
                      HasSubstr("waiting at endpoint off"), HasSubstr("dead at endpoint tired")));
    EXPECT_THAT(outbox_.run({"explain", id, "--db", url_}).out,
                AllOf(HasSubstr("endpoint tired"), HasSubstr("why it waits")));
}

TEST_P(WebhookCommands, ExplainCallsNothingOverWhileOneEndpointOfManyWaits) {
    const std::string event_id = "01939d3e-7c00-7aaa-8000-000000000001";
    add(kUrl, "waits");
    for (int i = 0; i < 60; ++i) {
        const std::string id = "e" + std::to_string(i);
        sql("INSERT INTO outbox_webhook_endpoints (endpoint_id, url, secrets) VALUES ('" + id +
            "', 'https://192.0.2.9/', 'x')");
        let_one_wait(id, event_id, true);
    }
    sql("INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('waits', '" +
        event_id + "')");
    // Asked twice for one database it is told once.
    const Finished asked =
        outbox_.run({"explain", event_id, "--db", url_, "--consumer-db", url_, "--json"});
    const json event = json::parse(asked.out)["events"][0];
    EXPECT_EQ(event["state"], "waiting");
    EXPECT_EQ(event["webhooks"].size(), 50U);
    EXPECT_THAT(event["waits"].dump(), HasSubstr("endpoint waits"));
    EXPECT_THAT(event["remarks"].dump(), HasSubstr("more endpoints than are named here"));
}

TEST_P(WebhookCommands, AnEndpointIsAddedAndItsSecretShownOnce) {
    const json added = add(kUrl, "shop-7", {"--events", "order.*, invoice.paid"});
    EXPECT_EQ(added["id"], "shop-7");
    EXPECT_EQ(added["events"], "order.*,invoice.paid");
    EXPECT_EQ(added["type"], "v1");
    const std::string secret = added["secret"];
    EXPECT_THAT(secret, StartsWith("whsec_"));
    EXPECT_TRUE(added["public_key"].is_null());
    const json one = listed("shop-7");
    EXPECT_EQ(one["url"], kUrl);
    EXPECT_EQ(one["state"], "enabled");
    EXPECT_EQ(one["waiting"], 0);
    EXPECT_THAT(webhook({"list"}).out,
                AllOf(HasSubstr("shop-7"), HasSubstr(kUrl), HasSubstr("order.*,invoice.paid")));
    // Neither what is shown nor what is stored tells it again.
    const std::string stored = value("SELECT secrets FROM outbox_webhook_endpoints");
    for (const std::string& text : {webhook({"list", "--json"}).out, webhook({"list"}).out, stored,
                                    value("SELECT detail FROM outbox_audit")}) {
        EXPECT_THAT(text, Not(HasSubstr(secret.substr(6))));
    }
    EXPECT_THAT(stored, StartsWith("v1."));
    EXPECT_EQ(value("SELECT action FROM outbox_audit"), "webhook add");
    const Finished again = keyed({"add", kUrl, "--id", "shop-7"});
    EXPECT_EQ(again.status.code, 1);
    EXPECT_THAT(again.err, HasSubstr("shop-7"));
}

TEST_P(WebhookCommands, TheirOutputForPeopleSaysWhatToDoWithIt) {
    EXPECT_THAT(webhook({"list"}).out, HasSubstr("no endpoints"));
    const Finished added = keyed({"add", kUrl});
    EXPECT_THAT(added.out,
                AllOf(HasSubstr(" gets * at "), HasSubstr("shown this once"), HasSubstr("whsec_")));
    const Finished keys = keyed({"add", kUrl, "--type", "v1a"});
    EXPECT_THAT(keys.out, AllOf(HasSubstr("public key, for the receiver: whpk_"),
                                Not(HasSubstr("whsk_")), Not(HasSubstr("shown this once"))));
    const std::string file = outbox_.write("mine", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    const Finished mine = keyed({"add", kUrl, "--secret-file", file});
    EXPECT_EQ(mine.status.code, 0) << mine.err;
    EXPECT_THAT(mine.out, Not(HasSubstr("MfKQ9r8GKY")));
    EXPECT_EQ(keyed({"add", kUrl, "--secret-file", file, "--type", "v1a"}).status.code, 2);
}

TEST_P(WebhookCommands, WhatIsWrongIsSaidAndNothingIsAdded) {
    const auto refused = [&](std::vector<std::string> arguments, const std::string& why) {
        const Finished ended = webhook(std::move(arguments));
        EXPECT_EQ(ended.status.code, 2) << ended.err;
        EXPECT_THAT(ended.err, HasSubstr(why));
    };
    const std::vector<std::string> key{"--key-file", key_file_};
    const auto with_key = [&](std::vector<std::string> arguments) {
        arguments.insert(arguments.end(), key.begin(), key.end());
        return arguments;
    };
    refused({"add", kUrl}, "--key-file");
    refused(with_key({"add"}), "give one URL");
    refused(with_key({"add", kUrl, kUrl}), "give one URL");
    refused(with_key({"add", "http://192.0.2.9/"}), "write https://");
    refused(with_key({"add", "https://user:s3cretword@a.example/"}), "has a user");
    refused(with_key({"add", "https://10.0.0.1/"}), "a private address");
    refused(with_key({"add", "https://169.254.169.254/latest"}), "metadata");
    refused(with_key({"add", "https://2130706433/"}), "four decimal numbers");
    refused(with_key({"add", kUrl, "--allow", "0.0.0.0/0"}), "too wide");
    refused(with_key({"add", kUrl, "--id", "a b"}), "--id takes");
    refused(with_key({"add", kUrl, "--events", std::string(300, 'a')}), "255");
    refused(with_key({"add", kUrl, "--type", "v2"}), "v1a");
    EXPECT_THAT(webhook(with_key({"add", "https://user:s3cretword@a.example/"})).err,
                Not(HasSubstr("s3cretword")));
    const std::string open =
        outbox_.write("open.key", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n");
    std::filesystem::permissions(open, std::filesystem::perms::all);
    const Finished readable = webhook({"add", kUrl, "--key-file", open});
    EXPECT_EQ(readable.status.code, 3);
    EXPECT_THAT(readable.err, HasSubstr("other users"));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_webhook_endpoints"), "0");
    for (const char* command : {"test", "rotate", "disable", "enable", "delete"}) {
        const bool needs_key = command == std::string("test") || command == std::string("rotate");
        const Finished ended =
            needs_key ? keyed({command, "nobody"}) : webhook({command, "nobody"});
        EXPECT_EQ(ended.status.code, 1) << command << ended.err;
        EXPECT_THAT(ended.err, HasSubstr("there is no endpoint 'nobody'")) << command;
    }
}

// It may lead elsewhere by the time of an attempt, when it is judged again.
TEST_P(WebhookCommands, ANameThatLeadsInsideNowIsAddedWithAWarning) {
    const Finished added =
        webhook({"add", "https://localhost/", "--id", "inside", "--key-file", key_file_});
    EXPECT_EQ(added.status.code, 0) << added.err;
    EXPECT_THAT(added.err,
                AllOf(HasSubstr("warning"), HasSubstr("localhost"), HasSubstr("a loopback address"),
                      HasSubstr("name the host or its range under `allow`")));
    EXPECT_EQ(listed("inside")["state"], "enabled");
}

TEST_P(WebhookCommands, ATestIsSignedAndItsAnswerShown) {
    const std::string file = outbox_.write("mine", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    const Receiver receiver({.keys = {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}});
    add(url_of(receiver), "good", {"--secret-file", file});
    const json tried = result(keyed({"test", "good", "--json"}));
    EXPECT_EQ(tried["delivered"], true);
    EXPECT_EQ(tried["status"], 200);
    EXPECT_EQ(tried["answer"], "taken\n");
    const json request = receiver.wait_for(1).at(0);
    EXPECT_EQ(request["signed_with"], json({true}));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_webhook_deliveries"), "0");
    EXPECT_THAT(keyed({"test", "good"}).out,
                AllOf(HasSubstr("delivered: HTTP 200"), HasSubstr("127.0.0.1")));
    add(url_of(receiver, "/status/404"), "bad");
    const Finished refused = keyed({"test", "bad"});
    EXPECT_EQ(refused.status.code, 1);
    EXPECT_THAT(refused.out,
                AllOf(HasSubstr("not delivered: HTTP 404"), HasSubstr("nothing at this URL now")));
    const Finished guarded = webhook({"test", "good", "--key-file", key_file_, "--allow-http"});
    EXPECT_EQ(guarded.status.code, 1);
    EXPECT_THAT(guarded.out, HasSubstr("a loopback address"));
    const std::string other = write_key("other.key", 'x');
    const Finished wrong =
        webhook({"test", "good", "--key-file", other, "--allow", "127.0.0.1", "--allow-http"});
    EXPECT_EQ(wrong.status.code, 1);
    EXPECT_THAT(wrong.out, HasSubstr("not in the key file"));
    EXPECT_EQ(receiver.requests().size(), 3U);
}

TEST_P(WebhookCommands, AFormerSecretSignsUntilTheOverlapIsOver) {
    const std::string file = outbox_.write("mine", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n");
    std::filesystem::permissions(file, std::filesystem::perms::owner_read);
    int port = free_port();
    add("http://127.0.0.1:" + std::to_string(port) + "/", "one", {"--secret-file", file});
    const json first = result(keyed({"rotate", "one", "--type", "v1a", "--json"}));
    EXPECT_FALSE(first["former_until"].is_null());
    const json second = result(keyed({"rotate", "one", "--overlap", "1h", "--json"}));
    EXPECT_EQ(second["type"], "v1a");
    const Receiver receiver({.keys = {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", first["public_key"],
                                      second["public_key"]},
                             .port = port});
    EXPECT_EQ(keyed({"test", "one"}).status.code, 0);
    EXPECT_EQ(receiver.wait_for(1).at(0)["signed_with"], json({true, true, true}));
    EXPECT_EQ(keyed({"rotate", "one"}).status.code, 0);
    const Finished many = keyed({"rotate", "one"});
    EXPECT_EQ(many.status.code, 2);
    EXPECT_THAT(many.err, HasSubstr("--overlap 0s"));
    const Finished alone = keyed({"rotate", "one", "--type", "v1", "--overlap", "0s"});
    EXPECT_THAT(alone.out, AllOf(HasSubstr("signs no more"), HasSubstr("whsec_")));
    EXPECT_EQ(keyed({"test", "one"}).status.code, 0);
    EXPECT_EQ(receiver.wait_for(2).at(1)["signed_with"], json({false, false, false}));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit WHERE action = 'webhook rotate'"), "4");
}

TEST_P(WebhookCommands, WhatIsStoredUnderALostKeyIsReplacedAndNothingElseIs) {
    add(kUrl, "one");
    add(kUrl, "two");
    sql("UPDATE outbox_webhook_endpoints SET secrets = (SELECT secrets FROM "
        "outbox_webhook_endpoints WHERE endpoint_id = 'two') WHERE endpoint_id = 'one'");
    const Finished swapped = keyed({"rotate", "one"});
    EXPECT_EQ(swapped.status.code, 2);
    EXPECT_THAT(swapped.err, HasSubstr("another endpoint's"));
    EXPECT_EQ(keyed({"rotate", "one", "--overlap", "0s"}).status.code, 0);
    EXPECT_EQ(keyed({"rotate", "one"}).status.code, 0);
}

TEST_P(WebhookCommands, AnEndpointIsDisabledEnabledAndDeleted) {
    add(kUrl, "one");
    const Finished disabled = webhook({"disable", "one", "--reason", "asked by\x1b the customer"});
    EXPECT_THAT(disabled.out, HasSubstr("endpoint one is disabled: asked by? the customer"));
    EXPECT_EQ(listed("one")["state"], "disabled");
    EXPECT_EQ(listed("one")["reason"], "asked by? the customer");
    let_one_wait("one", "e-1", false);
    let_one_wait("one", "e-2", true);
    EXPECT_EQ(listed("one")["waiting"], 1);
    EXPECT_EQ(listed("one")["dead"], 1);
    const json enabled = result(webhook({"enable", "one", "--json"}));
    EXPECT_EQ(enabled["waiting"], 2);
    EXPECT_EQ(listed("one")["dead"], 0);
    const Finished asked = webhook({"delete", "one"});
    EXPECT_EQ(asked.status.code, 2);
    EXPECT_THAT(asked.err, HasSubstr("add --yes"));
    EXPECT_EQ(result(webhook({"delete", "one", "--yes", "--json"}))["dropped"], 2);
    EXPECT_TRUE(result(webhook({"list", "--json"})).empty());
    EXPECT_EQ(value("SELECT count(*) FROM outbox_webhook_deliveries"), "0");
    add(kUrl, "two");
    EXPECT_THAT(webhook({"delete", "two"}).out, HasSubstr("endpoint two is deleted"));
    EXPECT_EQ(value("SELECT count(*) FROM outbox_audit WHERE action LIKE 'webhook %'"), "6");
}

TEST_P(WebhookCommands, TakeWhatIsNotGivenFromTheRouteInTheFile) {
    const Receiver receiver({});
    const std::string config =
        outbox_.write("outbox.toml", "[[route]]\nname = \"hooks\"\nto = \"webhook+" + url_ +
                                         "\"\n[route.webhook]\nkey_file = \"" + key_file_ +
                                         "\"\nallow = \"127.0.0.1\"\nallow_http = \"true\"\n");
    EXPECT_EQ(webhook({"add", url_of(receiver), "--id", "one", "--config", config}).status.code, 0);
    const Finished tried = webhook({"test", "one", "--config", config});
    EXPECT_EQ(tried.status.code, 0) << tried.err << tried.out;
}

// For long; who waits for him holds what is needed to deliver.
// What others read stands elsewhere, and `--check` makes nothing.
TEST(RoutesIntoTablesOfPostgres, OfAnotherSchemaAreRefusedAndNothingIsMade) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    Pg pg(url);
    pg.exec("CREATE SCHEMA ob");
    ASSERT_EQ(outbox.run({"migrate", "--db", url, "--schema", "ob"}).status.code, 0);
    const auto key = outbox.write("webhook.key", "a2tra2tra2tra2tra2tra2tra2tra2tra2tra2tra2s=\n");
    std::filesystem::permissions(key, std::filesystem::perms::owner_read);
    const std::string rest = url.substr(url.find(':'));
    const auto tables_of_public = [&] {
        return pg.value(
            "SELECT count(*) FROM pg_tables WHERE schemaname = 'public' AND tablename IN "
            "('outbox_mailbox', 'outbox_webhook_endpoints')");
    };
    for (const std::string& to :
         {"mailbox+postgresql" + rest, "webhook+postgresql" + rest + "?key_file=" + key.string()}) {
        const auto check = [&](const std::string& destination) {
            return outbox.run({"relay", "--check", "--from", url, "--schema", "ob", "--to",
                               "there=" + destination});
        };
        const Finished refused = check(to);
        EXPECT_EQ(refused.status.code, 1);
        EXPECT_THAT(refused.out, AllOf(HasSubstr("stand in schema ob"),
                                       HasSubstr("options=-csearch_path%3Dob")));
        const std::string with =
            to + (to.find('?') == std::string::npos ? "?" : "&") + "options=-csearch_path%3Dob";
        EXPECT_EQ(check(with).status.code, 0) << check(with).out;
        EXPECT_EQ(tables_of_public(), "0");
    }
}

// Also where the route is known and its destination is asked for its name.
TEST(RoutesIntoTablesOfPostgres, AreLookedAtByCheckWithoutATableBeingMade) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    Pg pg(url);
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    const std::string to = "mailbox+postgresql" + url.substr(url.find(':'));
    pg.exec("SELECT outbox_emit('orders', '{}')");
    Process running = outbox.start_relay({"--from", url, "--to", to, "--admin", "off"});
    ASSERT_TRUE(eventually(60s, "the destination is known", [&] {
        return pg.value("SELECT count(*) FROM outbox_routes WHERE destination <> ''") == "1";
    }));
    EXPECT_EQ(running.stop().code, 0);
    pg.exec("DROP TABLE outbox_mailbox CASCADE");
    const Finished checked = outbox.run({"relay", "--check", "--from", url, "--to", to});
    EXPECT_EQ(checked.status.code, 0) << checked.out;
    EXPECT_EQ(pg.value("SELECT to_regclass('outbox_mailbox') IS NULL"), "t");
}

TEST(WebhookCommandsOnPostgres, WaitSomeSecondsForWhoHoldsARowAndNameHim) {
    OutboxBinary outbox;
    const std::string url = shared_postgres().create_database();
    ASSERT_EQ(outbox.run({"migrate", "--db", url}).status.code, 0);
    Pg holder(url);
    holder.exec(
        "INSERT INTO outbox_webhook_endpoints (endpoint_id, url, events, secrets) VALUES ('one', "
        "'https://192.0.2.9/', '*', 'sealed')");
    holder.exec(
        "INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id) VALUES ('one', 'e-1')");
    holder.exec("SET application_name = 'forgotten'");
    holder.exec("BEGIN");
    holder.exec("SELECT FROM outbox_webhook_deliveries FOR UPDATE");
    Pg service(url);
    service.exec(
        "SET application_name = 'innocent'; BEGIN; INSERT INTO outbox_events (topic, "
        "payload) VALUES ('t', '1')");
    const Finished in_vain = outbox.run({"webhook", "delete", "one", "--yes", "--db", url});
    EXPECT_EQ(in_vain.status.code, 1);
    EXPECT_THAT(
        in_vain.err,
        AllOf(HasSubstr("OB_CONFLICT"), HasSubstr("forgotten, user"), Not(HasSubstr("innocent")),
              HasSubstr("pid " + holder.query("SELECT pg_backend_pid()")[0][0].value())));
    EXPECT_EQ(holder.value("SELECT count(*) FROM outbox_webhook_endpoints"), "1");
    holder.exec("COMMIT");
    // Also before those that wait for him, however long they have.
    Pg watcher(url);
    Pg relay(url);
    relay.exec("SET application_name = 'relay'");
    relay.exec("BEGIN");
    relay.exec("SELECT FROM outbox_webhook_endpoints FOR KEY SHARE");
    holder.exec("BEGIN");
    holder.exec("SELECT FROM outbox_webhook_endpoints FOR KEY SHARE");
    holder.exec("SELECT FROM outbox_webhook_deliveries FOR UPDATE");
    std::thread waits([&] { relay.exec("DELETE FROM outbox_webhook_deliveries"); });
    EXPECT_TRUE(eventually(std::chrono::seconds(60), "it waits", [&] {
        return watcher.value(
                   "SELECT count(*) FROM pg_stat_activity WHERE application_name = "
                   "'relay' AND wait_event_type = 'Lock'") == "1";
    }));
    EXPECT_THAT(outbox.run({"webhook", "delete", "one", "--yes", "--db", url}).err,
                ContainsRegex("forgotten, user [^()]* UTC\\), pid [0-9]+ \\(relay, user .* UTC, "
                              "waits itself for pid [0-9]+\\)"));
    holder.exec("COMMIT");
    waits.join();
    relay.exec("ROLLBACK");
    holder.exec("BEGIN");
    holder.exec("SELECT FROM outbox_webhook_endpoints FOR UPDATE");
    EXPECT_THAT(outbox.run({"webhook", "disable", "one", "--db", url}).err,
                HasSubstr("OB_CONFLICT"));
    holder.exec("COMMIT");
    EXPECT_EQ(outbox.run({"webhook", "delete", "one", "--yes", "--db", url}).status.code, 0);
}

INSTANTIATE_TEST_SUITE_P(Databases, WebhookCommands, testing::Values("sqlite", "postgres"),
                         [](const auto& name) { return std::string(name.param); });

}  // namespace
}  // namespace outbox::test
