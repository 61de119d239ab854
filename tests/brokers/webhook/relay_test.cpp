// The relay itself, with receivers of others' code.

#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string_view>

#include "core/base64.h"
#include "tests/brokers/relay_suite.h"
#include "tests/brokers/sdk_reader.h"
#include "tests/support/eventually.h"
#include "tests/support/pg.h"
#include "tests/support/servers.h"
#include "tests/support/sqlite.h"
#include "tests/webhook/receiver.h"
#include "tests/webhook/rig.h"
#include "webhook/sealed_secrets.h"
#include "webhook/signature.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMaxUnrecorded = 100;
// After a kill, of one endpoint: what the route had not recorded, and of what was delivered the
// most that the dispatcher records at once (`kMaxOutcomes`) and what was under way
// (`max_per_endpoint`).
constexpr std::size_t kMostRepeats = kMaxUnrecorded + 1'000 + 8;
constexpr const char* kKey = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=";

class WebhookRelay : public RelaySuite {
  protected:
    WebhookRelay() {
        key_file_ = outbox_.write("webhook.key", std::string(kKey) + "\n");
        std::filesystem::permissions(key_file_, std::filesystem::perms::owner_read);
        deliver_from(url_);
    }
    // Endpoints and deliveries are there from now on.
    void deliver_from(const std::string& store) {
        store_ = store;
        to_ = "webhook+" + store + (store.find('?') == std::string::npos ? "?" : "&") +
              "key_file=" + key_file_.string() +
              "&allow=127.0.0.0/8&allow_http=true&connect_timeout_ms=2000";
    }
    // Its secret.
    std::string add(const std::string& id, const std::string& target) {
        const std::string secret = webhook::make_secret(webhook::SecretType::kV1).value_or_throw();
        const auto keys = webhook::KeyRing::read(key_file_.string()).value_or_throw();
        webhook::Endpoint endpoint;
        endpoint.id = id;
        endpoint.url = target;
        endpoint.secrets = keys.seal(id, {{secret, 0}}).value_or_throw();
        EXPECT_EQ(Rig::text(open_registry(store_)->add(endpoint)), "");
        return secret;
    }
    static std::string at(const Receiver& receiver, const std::string& path) {
        return "http://127.0.0.1:" + std::to_string(receiver.port()) + path;
    }
    long long waiting(const std::string& endpoint = {}) {
        const std::string count =
            "SELECT count(*) FROM outbox_webhook_deliveries" +
            (endpoint.empty() ? "" : " WHERE endpoint_id LIKE '" + endpoint + "'");
        return store_ == url_ ? Sqlite(path_).number(count) : Pg(store_).number(count);
    }
    // Until nothing waits for an endpoint.
    void deliver_the_rest() {
        Process relay = outbox_.start_relay(arguments(to_));
        ASSERT_TRUE(eventually(120s, "all came", [&] { return left() == 0 && waiting() == 0; }))
            << relay.stderr_text();
        EXPECT_EQ(relay.stop().code, 0);
    }
    // What came to a path, with the keys that the events have.
    std::vector<Arrived> arrived(const std::vector<nlohmann::json>& requests,
                                 const std::string& path) const {
        const auto keys = this->keys();
        std::vector<Arrived> out;
        for (const auto& request : requests) {
            if (request["path"] != path) continue;
            const std::string id = request["headers"]["webhook-id"][0];
            const auto key = keys.find(id);
            out.push_back({.id = id,
                           .key = key == keys.end() ? "" : key->second,
                           .value = base64_decode(request["body"].get<std::string>()),
                           .headers = {}});
        }
        return out;
    }
    void expect_all_at(const Receiver& receiver, const std::string& path,
                       std::size_t most_repeats = 0) {
        SCOPED_TRACE(path);
        expect_all(arrived(receiver.requests(), path), most_repeats);
    }

    std::filesystem::path key_file_;
    std::string store_ = url_;  // of endpoints and deliveries
    std::string to_;
};

TEST_F(WebhookRelay, KilledInMidFlightItLosesNothingAndKeepsTheOrderOfEachKey) {
    constexpr int kSome = 5'000;
    const Receiver receiver({});
    add("one", at(receiver, "/one"));
    add("two", at(receiver, "/two"));
    auto words = arguments(to_);
    words.insert(words.end(), {"--max-unrecorded", std::to_string(kMaxUnrecorded)});
    int written = 0;
    std::size_t kills = 0;
    // One that has delivered all before it is looked at was not in mid-flight: another is.
    while (waiting() == 0) {
        const int some = (kSome - written) / 2;
        ASSERT_GT(some, 0) << "it was always too late";
        const std::size_t before = receiver.count();
        write("", some, written);
        written += some;
        Process relay = outbox_.start_relay(words);
        ASSERT_TRUE(eventually(120s, "most came", [&] {
            return receiver.count() > before + static_cast<std::size_t>(some) * 3 / 2;
        }));
        relay.kill(SIGKILL);
        relay.wait(60s);
        ++kills;
    }
    write("", kSome - written, written);
    deliver_the_rest();
    expect_all_at(receiver, "/one", kills * kMostRepeats);
    expect_all_at(receiver, "/two", kills * kMostRepeats);
}

TEST_F(WebhookRelay, BringsAllThatPostgresCommitsThoughItIsKilledAgainAndAgain) {
    deliver_from(shared_postgres().create_database());
    const Finished migrated = outbox_.run({"migrate", "--db", store_});
    ASSERT_EQ(migrated.status.code, 0) << migrated.err;
    const Receiver receiver({});
    add("one", at(receiver, "/one"));
    publish_a_load_through_kills(to_, "load", "stream");
    deliver_the_rest();
    expect_all_at(receiver, "/one", 30'000);
}

// That were well before; of ten hosts, as each has a share of the connections. None of those that
// hang has come to its end before the others have all, so nobody waited for that.
TEST_F(WebhookRelay, AHundredEndpointsThatHangDelayNeitherNineHundredOthersNorTheTable) {
    constexpr int kEndpoints = 1'000;
    constexpr int kHanging = 100;
    constexpr int kHosts = 10;
    constexpr std::size_t kSome = 8;
    const Receiver receiver({.host = "0.0.0.0"});
    for (int i = 0; i < kEndpoints; ++i) {
        const std::string number = std::to_string(i);
        const bool hangs = i < kHanging;
        add((hangs ? "hang-" : "well-") + number,
            "http://127.0.0." + std::to_string(1 + i % kHosts) + ":" +
                std::to_string(receiver.port()) + (hangs ? "/hang/behind/1/" : "/well/") + number);
    }
    Process relay = outbox_.start_relay(arguments(to_ + "&timeout_ms=60000"));
    write("", 1);
    ASSERT_TRUE(eventually(120s, "all get the first", [&] {
        return left() == 0 && receiver.count() == kEndpoints && waiting() == 0;
    })) << relay.stderr_text();
    write("", kSome, 1);
    ASSERT_TRUE(eventually(120s, "the well ones get all", [&] {
        return left() == 0 && waiting("well-%") == 0;
    })) << relay.stderr_text();
    EXPECT_EQ(waiting("hang-%"), kHanging * kSome);
    EXPECT_EQ(Sqlite(path_).number("SELECT sum(failures) FROM outbox_webhook_endpoints"), 0);
    relay.kill(SIGKILL);
    std::map<std::string, std::size_t> came;  // by path
    const auto requests = receiver.requests();
    for (const auto& request : requests) ++came[request["path"]];
    EXPECT_EQ(came.size(), static_cast<std::size_t>(kEndpoints));
    for (const auto& [path, count] : came) {
        if (path.starts_with("/hang/")) {
            EXPECT_GT(count, 1U) << path << " does not hang";
        } else {
            EXPECT_EQ(count, 1 + kSome) << path;
        }
    }
    expect_all(arrived(requests, "/well/" + std::to_string(kEndpoints - 1)), 0);
}

TEST_F(WebhookRelay, OfTwoRelaysOneDeliversAndTheOtherTakesOver) {
    constexpr int kSome = 1'000;
    const Receiver receiver({});
    add("one", at(receiver, "/one"));
    auto first = std::make_unique<Process>(outbox_.start_relay(arguments(to_)));
    Process second = outbox_.start_relay(arguments(to_));
    write("", kSome);
    ASSERT_TRUE(eventually(60s, "some came", [&] { return receiver.count() > 100; }));
    first->kill(SIGKILL);
    first.reset();
    ASSERT_TRUE(eventually(120s, "all came", [&] { return left() == 0 && waiting() == 0; }));
    EXPECT_EQ(second.stop().code, 0);
    expect_all_at(receiver, "/one", kSome);
}

TEST_F(WebhookRelay, AnEndpointThatIsDownAndBackUnderLoadGetsAllInOrderAndDelaysNoOther) {
    constexpr int kSome = 600;
    const Receiver other({});
    add("other", at(other, "/other"));
    const int port = free_port();
    add("down", "http://127.0.0.1:" + std::to_string(port) + "/down");
    Process relay = outbox_.start_relay(arguments(to_));
    write("", kSome);
    ASSERT_TRUE(eventually(60s, "the other gets all",
                           [&] { return left() == 0 && waiting("other") == 0; }));
    EXPECT_EQ(waiting("down"), kSome);
    Receiver::Options options;
    options.port = port;
    const Receiver back(options);
    ASSERT_TRUE(eventually(120s, "it gets all", [&] { return waiting() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    expect_all_at(back, "/down");
    expect_all_at(other, "/other");
    const std::string log = relay.stderr_text();
    EXPECT_NE(log.find("webhook_failing"), std::string::npos) << log;
    EXPECT_NE(log.find("webhook_recovered"), std::string::npos) << log;
}

// Also what it missed since the last line, of which there is one a minute.
TEST_F(WebhookRelay, AsItEndsItsLogHasAllThatAFullQueueMissed) {
    const Receiver receiver({});
    add("full", at(receiver, "/full"));
    Sqlite(path_).exec("UPDATE outbox_webhook_endpoints SET state = 'disabled'");
    Sqlite(path_).exec(
        "WITH RECURSIVE g(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM g WHERE n < " +
        std::to_string(webhook::kMaxQueuePerEndpoint) +
        ") INSERT INTO outbox_webhook_deliveries (endpoint_id, event_id, event_type, key, headers, "
        "payload, occurred_at) SELECT 'full', 'p' || n, 'x', NULL, NULL, '{}', 0 FROM g");
    Process relay = outbox_.start_relay(arguments(to_));
    const auto lines = [&] {
        std::vector<int> missed;
        const std::string log = relay.stderr_text();
        constexpr std::string_view kField = " missed=";
        for (auto at = log.find(kField); at != std::string::npos; at = log.find(kField, at + 1)) {
            missed.push_back(std::stoi(log.substr(at + kField.size())));
        }
        return missed;
    };
    write("", 30);
    ASSERT_TRUE(eventually(60s, "it says so", [&] { return !lines().empty(); }));
    write("", 40, 30);
    ASSERT_TRUE(eventually(60s, "all is published", [&] { return left() == 0; }));
    EXPECT_LT(lines()[0], 70);
    EXPECT_EQ(relay.stop().code, 0);
    const auto told = lines();
    EXPECT_EQ(std::accumulate(told.begin(), told.end(), 0), 70) << relay.stderr_text();
}

TEST_F(WebhookRelay, ThatHangGoneAndWellEndpointsMeetInOneRelay) {
    constexpr int kSome = 200;
    const Receiver receiver({});
    add("hangs", at(receiver, "/hang"));
    add("gone", at(receiver, "/status/410"));
    add("well", at(receiver, "/well"));
    Process relay = outbox_.start_relay(arguments(to_ + "&timeout_ms=1500"));
    write("", kSome);
    ASSERT_TRUE(eventually(60s, "the well one gets all",
                           [&] { return left() == 0 && waiting("well") == 0; }));
    ASSERT_TRUE(eventually(60s, "the one is disabled", [&] {
        return Sqlite(path_).value(
                   "SELECT state FROM outbox_webhook_endpoints WHERE endpoint_id = 'gone'") ==
               "disabled";
    }));
    EXPECT_EQ(waiting("hangs"), kSome);
    EXPECT_EQ(waiting("gone"), kSome);
    EXPECT_EQ(relay.stop().code, 0);
    expect_all_at(receiver, "/well", kSome);
}

TEST_F(WebhookRelay, AnEventWithAHeaderThatHttpDoesNotAllowAloneIsDead) {
    const Receiver receiver({});
    add("one", at(receiver, "/one"));
    Sqlite(path_).exec("UPDATE outbox_webhook_endpoints SET events = 'order.*'");
    const auto insert = [](const char* id, const char* type, const char* key, const char* headers) {
        return "INSERT INTO outbox_events (id, aggregate_type, event_type, key, headers, payload) "
               "VALUES ('01939d3e-7c00-7aaa-8000-00000000000" +
               std::string(id) + "', 'A', '" + type + "', '" + key + "', '" + headers + "', '{}');";
    };
    Sqlite(path_).exec(insert("1", "order.made", "a", R"({"x-n": "1", "host": "h"})") +
                       insert("2", "order.made", "a", R"({"my note": "2"})") +
                       insert("3", "order.made", "b", R"({"x-n": "3"})") +
                       insert("4", "order.made", "a", R"({"x-n": "4"})") +
                       insert("5", "unwanted", "c", R"({"my note": "5"})"));
    Process relay = outbox_.start_relay(arguments(to_));
    ASSERT_TRUE(eventually(60s, "all else came", [&] { return left() == 0 && waiting() == 0; }))
        << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
    std::map<std::string, std::vector<std::string>> came;  // by id
    for (const auto& request : receiver.requests()) {
        const auto& headers = request.at("headers");
        came[headers.at("webhook-id").at(0)] = headers.at("x-n");
    }
    std::string numbers;
    for (const auto& [id, values] : came) numbers += values.at(0);
    EXPECT_EQ(numbers, "134");
    const Finished listed = outbox_.run({"dead", "list", "--json", "--db", url_});
    const auto dead = nlohmann::json::parse(listed.out);
    ASSERT_EQ(dead.size(), 1U) << listed.out;
    EXPECT_EQ(dead[0]["id"], "01939d3e-7c00-7aaa-8000-000000000002");
    const std::string error = dead[0]["error"];
    EXPECT_NE(error.find("'my note'"), std::string::npos) << error;
    EXPECT_NE(error.find("use another name"), std::string::npos) << error;
}

// An endpoint has no topics.
TEST_F(WebhookRelay, AnEventWhoseTypeIsNoTopicIsDelivered) {
    const Receiver receiver({});
    add("one", at(receiver, "/one"));
    const std::string long_type(200, 'x');
    for (const std::string& type : {std::string("order placed"), long_type}) {
        Sqlite(path_).exec(
            "INSERT INTO outbox_events (aggregate_type, aggregate_id, event_type, payload) VALUES "
            "('" +
            type + "', '1', '" + type + "', '{}')");
    }
    std::vector<std::string> options = arguments(to_);
    options.insert(options.end(), {"--topic-template", "{aggregate_type}.{event_type}"});
    Process relay = outbox_.start_relay(options);
    ASSERT_TRUE(eventually(60s, "they came", [&] { return left() == 0 && waiting() == 0; }))
        << relay.stderr_text();
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(receiver.count(), 2U);
    EXPECT_EQ(Sqlite(path_).number("SELECT count(*) FROM outbox_dead_letters"), 0);
}

TEST_F(WebhookRelay, TheOfficialSdkReadsItsCloudEventsInBothModes) {
    const Receiver receiver({});
    add("one", at(receiver, "/one"));
    std::size_t count = 0;
    for (const std::string format : {"cloudevents", "cloudevents-structured"}) {
        // An event of another id, as the endpoint takes one a single time.
        Sqlite(path_).exec("DELETE FROM outbox_webhook_deliveries");
        publish_one(to_, "orders", format);
        const nlohmann::json request = receiver.wait_for(++count).back();
        std::vector<std::pair<std::string, std::string>> headers;
        for (const auto& [name, values] : request.at("headers").items()) {
            headers.emplace_back(name, values.at(0));
        }
        const auto body = base64_decode(request.at("body").get<std::string>());
        ASSERT_TRUE(body.has_value());
        const nlohmann::json event = read_by_sdk("http", {headers, {}, *body, ""});
        EXPECT_EQ(event.at("attributes"),
                  (nlohmann::json{{"specversion", "1.0"},
                                  {"id", kEventId},
                                  {"source", "/outbox/outbox_events"},
                                  {"type", "OrderPlaced"},
                                  {"time", "2023-11-14T22:13:20.000042+00:00"},
                                  {"subject", kAggregateId},
                                  {"partitionkey", kAggregateId},
                                  {"dataschema", "outbox:/subjects/orders-value/versions/3"},
                                  {"aggregatetype", "Order"},
                                  {"tenantid", "t-1"},
                                  {"schemaid", "orders-value"},
                                  {"schemaversion", "3"},
                                  {"traceparent", "00-ab-cd-01"},
                                  {"datacontenttype", "application/json"}}))
            << format;
        EXPECT_EQ(event.at("data"), nlohmann::json({{"total", 99.99}}));
    }
}

TEST_F(WebhookRelay, CheckSaysWhatIsWrongAndDeliversNothing) {
    const Receiver receiver({});
    add("one", at(receiver, "/one"));
    write("", 5);
    const auto right = check(to_);
    EXPECT_EQ(right.first, 0) << right.second;
    EXPECT_EQ(receiver.count(), 0U);
    EXPECT_EQ(right.second.find("warning"), std::string::npos) << right.second;
    // What the guard would refuse is somebody else's mistake: a warning.
    const auto guarded =
        check("webhook+" + url_ + "?key_file=" + key_file_.string() + "&allow_http=true");
    EXPECT_EQ(guarded.first, 0) << guarded.second;
    EXPECT_NE(guarded.second.find("endpoint one would not be sent to: 127.0.0.1 is a loopback"),
              std::string::npos)
        << guarded.second;
    const auto no_key = check("webhook+" + url_);
    EXPECT_EQ(no_key.first, 2) << no_key.second;
    EXPECT_NE(no_key.second.find("openssl rand -base64 32"), std::string::npos) << no_key.second;
    const auto no_ca = check(to_ + "&ca_file=/nowhere/ca.pem");
    EXPECT_EQ(no_ca.first, 2) << no_ca.second;
    EXPECT_NE(no_ca.second.find("/nowhere/ca.pem"), std::string::npos) << no_ca.second;
    const auto no_certificate = check(to_ + "&ca_file=" + key_file_.string());
    EXPECT_EQ(no_certificate.first, 2) << no_certificate.second;
    EXPECT_NE(no_certificate.second.find("no certificate"), std::string::npos)
        << no_certificate.second;
    const auto other = outbox_.write("other.key", "eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=\n");
    std::filesystem::permissions(other, std::filesystem::perms::owner_read);
    const auto wrong_key = check("webhook+" + url_ + "?key_file=" + other.string() +
                                 "&allow=127.0.0.1&allow_http=true");
    EXPECT_EQ(wrong_key.first, 1) << wrong_key.second;
    EXPECT_NE(wrong_key.second.find("endpoint one cannot be signed for"), std::string::npos)
        << wrong_key.second;
    const auto option = check(to_ + "&alow=x");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_NE(option.second.find("'alow'"), std::string::npos) << option.second;
    const auto number = check(to_ + "&max_connections=many");
    EXPECT_EQ(number.first, 2) << number.second;
    EXPECT_NE(number.second.find("a number from 1 to 10000"), std::string::npos) << number.second;
}

}  // namespace
}  // namespace outbox::test
