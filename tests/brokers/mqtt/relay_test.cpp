// The relay itself in front of a real mosquitto.

#include <map>
#include <nlohmann/json.hpp>

#include "tests/brokers/guide.h"
#include "tests/brokers/mqtt/server.h"
#include "tests/brokers/relay_suite.h"
#include "tests/support/eventually.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class MqttRelay : public RelaySuite {};

TEST_F(MqttRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
    shared_mqtt().subscribe("relay/events");
    publish_all_through_a_kill(shared_mqtt().url(), "relay/events");
    expect_all(shared_mqtt().arrived("relay/events", kEvents), 10'000);
}

TEST_F(MqttRelay, BringsAllThatPostgresCommitsThoughItIsKilledAgainAndAgain) {
    shared_mqtt().subscribe("load");
    publish_a_load_through_kills(shared_mqtt().url(), "load", "stream");
    expect_all(shared_mqtt().arrived("load", committed()), 30'000);
}

// The MQTT binding of CloudEvents 1.0, sections 3.1 and 3.2.
TEST_F(MqttRelay, ItsCloudEventsAreAsTheBindingHasThem) {
    const auto publish = [&](const std::string& topic, const std::string& format) {
        shared_mqtt().subscribe(topic);
        publish_one(shared_mqtt().url(), topic, format);
        return nlohmann::json::parse(shared_mqtt().ask({"read", topic, "1", "60"}));
    };
    const auto binary = publish("formats/binary", "cloudevents");
    EXPECT_EQ(binary.at("content_type"), "application/json");
    EXPECT_EQ(decode_base64(binary.at("value")), R"({"total": 99.990})");
    std::map<std::string, std::string> properties;
    for (const auto& pair : binary.at("headers")) properties.emplace(pair[0], pair[1]);
    EXPECT_EQ(properties, (std::map<std::string, std::string>{
                              {"specversion", "1.0"},
                              {"id", kEventId},
                              {"source", "/outbox/outbox_events"},
                              {"type", "OrderPlaced"},
                              {"time", "2023-11-14T22:13:20.000042Z"},
                              {"subject", kAggregateId},
                              {"partitionkey", kAggregateId},
                              {"dataschema", "outbox:/subjects/orders-value/versions/3"},
                              {"aggregatetype", "Order"},
                              {"tenantid", "t-1"},
                              {"schemaid", "orders-value"},
                              {"schemaversion", "3"},
                              {"traceparent", "00-ab-cd-01"},
                              {"x-request-id", "r 1"}}));
    const auto structured = publish("formats/structured", "cloudevents-structured");
    EXPECT_EQ(structured.at("content_type"), "application/cloudevents+json; charset=UTF-8");
    const auto event = nlohmann::json::parse(decode_base64(structured.at("value")));
    EXPECT_EQ(event.at("id"), kEventId);
    EXPECT_EQ(event.at("data"), nlohmann::json({{"total", 99.99}}));
}

// Paho, which reads here, ends at U+FEFF in a property, and gets the same message again.
TEST_F(MqttRelay, AHeaderThatWouldEndASubscriberIsEscapedAndANameIsADeadLetter) {
    shared_mqtt().subscribe("marks");
    Sqlite(path_).exec(
        "INSERT INTO outbox_events (aggregate_type, event_type, key, payload, headers) VALUES"
        " ('A', 'T', 'k' || char(65279), '1', json_object('note', char(65279) || 'a')),"
        " ('A', 'T', 'n', '2', json_object(char(65279) || 'note', 'a')),"
        " ('A', 'T', 'm', '3', '{}')");
    auto words = arguments(shared_mqtt().url());
    words.insert(words.end(), {"--topic-template", "marks"});
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    std::map<std::string, std::string> properties;
    std::istringstream lines(shared_mqtt().ask({"read", "marks", "2", "60"}));
    std::string first;
    std::string second;
    ASSERT_TRUE(std::getline(lines, first) && std::getline(lines, second));
    const auto marked = nlohmann::json::parse(first);
    for (const auto& pair : marked.at("headers")) {
        properties.emplace(pair[0], pair[1]);
    }
    EXPECT_EQ(properties.at("note"),
              "\xEF\xBB\xBF"
              "a");
    EXPECT_EQ(marked.at("key"), "k\xEF\xBB\xBF");
    EXPECT_EQ(decode_base64(nlohmann::json::parse(second).at("value")), "3");
    EXPECT_EQ(Sqlite(path_).value("SELECT count(*) FROM outbox_dead_letters"), "1");
}

TEST_F(MqttRelay, CheckSaysWhatIsWrong) {
    const auto right = check(shared_mqtt().url());
    EXPECT_EQ(right.first, 0) << right.second;
    const auto password = check(shared_mqtt().url("relay", "wrong"));
    EXPECT_EQ(password.first, 1) << password.second;
    EXPECT_NE(password.second.find("check user and password"), std::string::npos)
        << password.second;
    const auto option = check(shared_mqtt().url() + "?qos=0");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_NE(option.second.find("no option 'qos'"), std::string::npos) << option.second;
}

TEST_F(MqttRelay, AKeyBecomesOneLevelOfTheTopic) {
    shared_mqtt().subscribe("keys/+/done");
    Sqlite(path_).exec(
        "INSERT INTO outbox_events (aggregate_type, event_type, key, payload) VALUES"
        " ('A', 'T', 'a/b+c#d e%', json_object('n', 1))");
    auto words = arguments(shared_mqtt().url());
    words.insert(words.end(), {"--topic-template", "keys/{key}/done"});
    Process relay = outbox_.start_relay(words);
    ASSERT_TRUE(eventually(60s, "it is published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    const std::string read = shared_mqtt().ask({"read", "keys/+/done", "1", "60"});
    EXPECT_NE(read.find("\"topic\": \"keys/a%2Fb%2Bc%23d%20e%25/done\""), std::string::npos)
        << read;
}

TEST(MqttPage, ItsFirstBlockBringsAnEventToASubscriber) {
    const std::string port = std::to_string(shared_mqtt().port());
    Guide page("mqtt.md", {.words = {{"mqtt://localhost:1883", shared_mqtt().url()}},
                           .programs = {{"mosquitto_sub",
                                         "/usr/bin/mosquitto_sub -h 127.0.0.1 -u reader -P "
                                         "s3cret -p " +
                                             port}}});
    page.expect_an_event();
}

}  // namespace
}  // namespace outbox::test
