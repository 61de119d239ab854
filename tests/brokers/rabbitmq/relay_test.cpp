// The relay itself in front of a real RabbitMQ.

#include "tests/brokers/guide.h"
#include "tests/brokers/rabbitmq/server.h"
#include "tests/brokers/relay_suite.h"
#include "tests/brokers/sdk_reader.h"
#include "tests/support/eventually.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class RabbitmqRelay : public RelaySuite {
  protected:
    RabbitmqRelay() { shared_rabbitmq().make_exchange("events"); }
};

TEST_F(RabbitmqRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
    shared_rabbitmq().make_queue("relay", "events");
    publish_all_through_a_kill(shared_rabbitmq().url() + "?exchange=events", "relay");
    expect_all(shared_rabbitmq().arrived("relay", kEvents), 10'000);
}

TEST_F(RabbitmqRelay, BringsAllThatPostgresCommitsThoughItIsKilledAgainAndAgain) {
    shared_rabbitmq().make_queue("load", "events");
    publish_a_load_through_kills(shared_rabbitmq().url() + "?exchange=events", "load", "stream");
    expect_all(shared_rabbitmq().arrived("load", committed()), 30'000);
}

// RabbitMQ closes a channel for each try of each of them, with all that is under way on it.
TEST_F(RabbitmqRelay, ManyRoutingKeysWithoutAPermissionDelayNoOtherAndRepeatFew) {
    constexpr int kDenied = 300;
    constexpr int kRounds = 40;
    constexpr int kEach = 50;
    RabbitmqServer& server = shared_rabbitmq();
    server.make_queue("open", "events");
    server.api("PUT", "users/topics", R"({"password":"pw","tags":""})");
    server.api("PUT", "permissions/%2F/topics",
               R"({"configure":"^$","write":"^events$","read":"^$"})");
    server.api("PUT", "topic-permissions/%2F/topics",
               R"({"exchange":"events","write":"^open$","read":"^$"})");
    Sqlite(path_).exec(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < " +
        std::to_string(kDenied) +
        ") INSERT INTO outbox_events (topic, aggregate_type, event_type, key, payload) SELECT "
        "'denied.' || i, 'A', 'T', 'denied-' || i, '{}' FROM n");
    Process relay = outbox_.start_relay(arguments(server.url("topics", "pw") + "?exchange=events"));
    for (int round = 0; round < kRounds; ++round) {
        write("open", kEach, round * kEach);
        ASSERT_TRUE(eventually(20s, "the others are published", [&] { return left() == kDenied; }))
            << round << ": " << relay.stderr_text();
    }
    EXPECT_EQ(relay.stop().code, 0);
    expect_all(server.arrived("open", kRounds * kEach), 100);
}

TEST_F(RabbitmqRelay, TheOfficialSdkReadsItsCloudEventsInBothModes) {
    for (const std::string format : {"cloudevents", "cloudevents-structured"}) {
        shared_rabbitmq().make_queue(format, "events");
        publish_one(shared_rabbitmq().url() + "?exchange=events", format, format);
        const auto messages = shared_rabbitmq().read(format, 1);
        ASSERT_EQ(messages.size(), 1U);
        const Arrived& record = messages[0].record;
        EXPECT_EQ(record.id, kEventId);
        const nlohmann::json event = read_by_sdk(
            "amqp", {record.headers, {}, record.value.value(), messages[0].content_type});
        EXPECT_EQ(event.at("attributes").at("id"), kEventId);
        EXPECT_EQ(event.at("attributes").at("type"), "OrderPlaced");
        EXPECT_EQ(event.at("attributes").at("subject"), kAggregateId);
        EXPECT_EQ(event.at("attributes").at("schemaversion"), "3");
        EXPECT_EQ(event.at("attributes").at("traceparent"), "00-ab-cd-01");
        EXPECT_EQ(event.at("attributes").at("datacontenttype"), "application/json");
        EXPECT_EQ(event.at("data"), nlohmann::json({{"total", 99.99}}));
    }
}

TEST_F(RabbitmqRelay, CheckSaysWhatIsWrong) {
    const auto right = check(shared_rabbitmq().url() + "?exchange=events");
    EXPECT_EQ(right.first, 0) << right.second;
    const auto exchange = check(shared_rabbitmq().url() + "?exchange=none");
    EXPECT_EQ(exchange.first, 1) << exchange.second;
    EXPECT_NE(exchange.second.find("declare the exchange"), std::string::npos) << exchange.second;
    const auto password = check(shared_rabbitmq().url("relay", "wrong") + "?exchange=events");
    EXPECT_EQ(password.first, 1) << password.second;
    EXPECT_NE(password.second.find("OB_AUTH_FAILED"), std::string::npos) << password.second;
    const auto option = check(shared_rabbitmq().url() + "?exchnge=events");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_NE(option.second.find("no option 'exchnge'"), std::string::npos) << option.second;
}

TEST(RabbitmqPage, ItsFirstBlockBringsAnEventToAQueue) {
    const RabbitmqServer& server = shared_rabbitmq();
    const int port = std::stoi(read_file(server.folder() / "management_port"));
    Guide page("rabbitmq.md",
               {.words = {{"amqp://guest:guest@localhost:5672/", server.url()}},
                .programs = {{"rabbitmqadmin",
                              "/usr/bin/rabbitmqadmin --host=127.0.0.1 --username=relay "
                              "--password=s3cret --port=" +
                                  std::to_string(port)}}});
    page.expect_an_event();
}

}  // namespace
}  // namespace outbox::test
