// The relay itself in front of a real mosquitto.

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

TEST_F(MqttRelay, CheckSaysWhatIsWrong) {
    const auto right = check(shared_mqtt().url());
    EXPECT_EQ(right.first, 0) << right.second;
    const auto password = check(shared_mqtt().url("relay", "wrong"));
    EXPECT_NE(password.first, 0);
    EXPECT_NE(password.second.find("check user and password"), std::string::npos)
        << password.second;
    const auto option = check(shared_mqtt().url() + "?qos=0");
    EXPECT_NE(option.first, 0);
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

}  // namespace
}  // namespace outbox::test
