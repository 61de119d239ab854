// The relay itself in front of a real NATS.

#include <map>
#include <nlohmann/json.hpp>

#include "tests/brokers/guide.h"
#include "tests/brokers/nats/server.h"
#include "tests/brokers/relay_suite.h"
#include "tests/support/eventually.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class NatsRelay : public RelaySuite {};

// The stream drops what it has within its window.
TEST_F(NatsRelay, LosesRepeatsAndReordersNothingWhenItIsKilledInMidFlight) {
    shared_nats().make_stream("RELAY", "relay.>");
    publish_all_through_a_kill(shared_nats().url(), "relay.events");
    expect_all(shared_nats().arrived("relay.events", kEvents), 0);
}

TEST_F(NatsRelay, BringsAllThatPostgresCommitsOnceThoughItIsKilledAgainAndAgain) {
    shared_nats().make_stream("LOAD", "load");
    publish_a_load_through_kills(shared_nats().url(), "load", "stream");
    expect_all(shared_nats().arrived("load", committed()), 0);
}

// The NATS binding of CloudEvents 1.0, sections 3.1.3 and 3.2.
TEST_F(NatsRelay, ItsCloudEventsAreAsTheBindingHasThem) {
    // Of one stream: the second would be a repeat of the first.
    shared_nats().make_stream("BINARY", "formats.binary");
    shared_nats().make_stream("STRUCTURED", "formats.structured");
    publish_one(shared_nats().url(), "formats.binary", "cloudevents");
    const auto binary = shared_nats().arrived("formats.binary", 1);
    ASSERT_EQ(binary.size(), 1U);
    EXPECT_EQ(binary[0].value, R"({"total": 99.990})");
    const std::map<std::string, std::string> headers(binary[0].headers.begin(),
                                                     binary[0].headers.end());
    EXPECT_EQ(headers, (std::map<std::string, std::string>{
                           {"ce-specversion", "1.0"},
                           {"ce-id", kEventId},
                           {"ce-source", "/outbox/outbox_events"},
                           {"ce-type", "OrderPlaced"},
                           {"ce-time", "2023-11-14T22:13:20.000042Z"},
                           {"ce-subject", "o%201%20%C3%A9"},
                           {"ce-partitionkey", "o%201%20%C3%A9"},
                           {"ce-dataschema", "outbox:/subjects/orders-value/versions/3"},
                           {"ce-aggregatetype", "Order"},
                           {"ce-tenantid", "t-1"},
                           {"ce-schemaid", "orders-value"},
                           {"ce-schemaversion", "3"},
                           {"ce-datacontenttype", "application/json"},
                           {"ce-traceparent", "00-ab-cd-01"},
                           {"traceparent", "00-ab-cd-01"},
                           {"x-request-id", "r 1"}}));
    publish_one(shared_nats().url(), "formats.structured", "cloudevents-structured");
    const auto structured = shared_nats().arrived("formats.structured", 1);
    ASSERT_EQ(structured.size(), 1U);
    const std::map<std::string, std::string> others(structured[0].headers.begin(),
                                                    structured[0].headers.end());
    EXPECT_EQ(others.at("Content-Type"), "application/cloudevents+json; charset=UTF-8");
    const auto event = nlohmann::json::parse(structured[0].value.value());
    EXPECT_EQ(event.at("id"), kEventId);
    EXPECT_EQ(event.at("subject"), kAggregateId);
    EXPECT_EQ(event.at("data"), nlohmann::json({{"total", 99.99}}));
}

TEST_F(NatsRelay, CheckSaysWhatIsWrongAndForHowLongRepeatsAreDropped) {
    shared_nats().make_stream("CHECK", "check.>", {"duplicate_window=30"});
    const auto right = check(shared_nats().url() + "?stream=CHECK");
    EXPECT_EQ(right.first, 0) << right.second;
    EXPECT_NE(right.second.find("stream CHECK (check.>) drops repeats for 30 s"), std::string::npos)
        << right.second;
    const auto stream = check(shared_nats().url() + "?stream=NONE");
    EXPECT_EQ(stream.first, 1) << stream.second;
    EXPECT_NE(stream.second.find("nats stream add"), std::string::npos) << stream.second;
    const auto password = check(shared_nats().url("relay", "wrong"));
    EXPECT_EQ(password.first, 1) << password.second;
    EXPECT_NE(password.second.find("OB_AUTH_FAILED"), std::string::npos) << password.second;
    const auto option = check(shared_nats().url() + "?steam=CHECK");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_NE(option.second.find("no option 'steam'"), std::string::npos) << option.second;
}

// Both subjects are of one stream, which would take the second message of an id for a repeat.
TEST_F(NatsRelay, TwoRoutesIntoOneStreamLoseNothing) {
    shared_nats().make_stream("BOTH", "both.>");
    constexpr int kSome = 500;
    write("", kSome);
    const std::string to = shared_nats().url();
    auto words = arguments("first=" + to);
    words.insert(words.end(), {"--to", "second=" + to, "--topic-template", "both.{key}"});
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    const std::string info = shared_nats().ask({"info", "BOTH"});
    EXPECT_NE(info.find("\"messages\": " + std::to_string(2 * kSome)), std::string::npos) << info;
}

// The stream remembers ids of what the ledger no longer stands for.
TEST_F(NatsRelay, ARouteThatIsMadeAnewUnderItsOldNameIsSentAll) {
    shared_nats().make_stream("ANEW", "anew.>");
    retire_and_begin_anew(shared_nats().url(), "anew.events",
                          [] { return shared_nats().arrived("anew.events", 100).size(); });
}

TEST_F(NatsRelay, ARouteThatIsRenamedKeepsWhatTheStreamRemembers) {
    shared_nats().make_stream("RENAMED", "renamed.>");
    publish_all_through_a_kill_and_a_rename(shared_nats().url(), "renamed.events");
    expect_all(shared_nats().arrived("renamed.events", kEvents), 0);
}

TEST_F(NatsRelay, TwoFilesUnderOnePathAreTwoProducers) {
    shared_nats().make_stream("FILES", "OutboxMessages");
    replace_the_file(shared_nats().url(),
                     [] { return shared_nats().arrived("OutboxMessages", 100).size(); });
}

// The stream remembers the ids of what the relay has sent.
TEST_F(NatsRelay, WhatIsReplayedIsNoRepeat) {
    shared_nats().make_stream("REPLAYED", "replayed.events");
    publish_and_replay(shared_nats().url(), "replayed.events", 50);
    EXPECT_EQ(shared_nats().arrived("replayed.events", 50).size(), 150U);
}

// A key may hold whatever means something in a subject.
TEST_F(NatsRelay, AKeyBecomesOneTokenOfTheSubject) {
    shared_nats().make_stream("KEYS", "keys.*.done");
    Sqlite(path_).exec(
        "INSERT INTO outbox_events (aggregate_type, event_type, key, payload) VALUES"
        " ('A', 'T', 'a.b*c>d e%', json_object('n', 1)), ('A', 'T', 'plain', json_object('n', 2))");
    auto words = arguments(shared_nats().url());
    words.insert(words.end(), {"--topic-template", "keys.{key}.done"});
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    const std::string read = shared_nats().ask({"read", "keys.*.done", "2", "60"});
    EXPECT_NE(read.find("\"subject\": \"keys.a%2Eb%2Ac%3Ed%20e%25.done\""), std::string::npos)
        << read;
    EXPECT_NE(read.find("\"subject\": \"keys.plain.done\""), std::string::npos) << read;
}

// No attempt is counted, and the database says whose fault it is all the same.
TEST_F(NatsRelay, ExplainsThatAnEventWaitsForItsSubject) {
    write("nobodys.subject", 1);
    const std::string id = Sqlite(path_).value("SELECT id FROM outbox_events");
    Process running = outbox_.start_relay(arguments(shared_nats().url()));
    nlohmann::json waits;
    ASSERT_TRUE(eventually(60s, "it is explained",
                           [&] {
                               const Finished ended =
                                   outbox_.run({"explain", id, "--json", "--db", url_});
                               waits = nlohmann::json::parse(ended.out)["events"][0]["waits"];
                               return waits.size() == 1 && waits[0]["reason"] == "part_down";
                           }))
        << waits << running.stderr_text();
    const std::string text = waits[0]["text"];
    EXPECT_NE(text.find("OB_TOPIC_UNKNOWN"), std::string::npos) << text;
    EXPECT_NE(text.find("the topic that it goes to is missing (the event names 'nobodys.subject'), "
                        "and no attempt is counted"),
              std::string::npos)
        << text;
}

TEST(NatsPage, ItsCommandsBringAnEventToAStreamAndMakeAConsumer) {
    const std::string url = shared_nats().url();
    Guide page(
        "nats.md",
        {.words = {{"nats://localhost:4222", url}},
         .programs = {{"nats", std::string(OUTBOX_SOURCE_DIR) + "/script/clients python -B " +
                                   OUTBOX_SOURCE_DIR + "/tests/brokers/nats/cli.py " + url}}});
    page.expect_an_event();
    page.run_block(1);
    EXPECT_EQ(shared_nats().left("ORDERS", "stock"), 1U);
}

}  // namespace
}  // namespace outbox::test
