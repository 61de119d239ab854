// The relay itself in front of a real NATS.

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

TEST_F(NatsRelay, CheckSaysWhatIsWrongAndForHowLongRepeatsAreDropped) {
    shared_nats().make_stream("CHECK", "check.>", {"duplicate_window=30"});
    const auto right = check(shared_nats().url() + "?stream=CHECK");
    EXPECT_EQ(right.first, 0) << right.second;
    EXPECT_NE(right.second.find("stream CHECK (check.>) drops repeats for 30 s"), std::string::npos)
        << right.second;
    const auto stream = check(shared_nats().url() + "?stream=NONE");
    EXPECT_NE(stream.first, 0);
    EXPECT_NE(stream.second.find("nats stream add"), std::string::npos) << stream.second;
    const auto password = check(shared_nats().url("relay", "wrong"));
    EXPECT_NE(password.first, 0);
    EXPECT_NE(password.second.find("OB_AUTH_FAILED"), std::string::npos) << password.second;
    const auto option = check(shared_nats().url() + "?steam=CHECK");
    EXPECT_NE(option.first, 0);
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

}  // namespace
}  // namespace outbox::test
