// The relay itself in front of moto.

#include "tests/brokers/guide.h"
#include "tests/brokers/relay_suite.h"
#include "tests/brokers/sns/server.h"
#include "tests/net/key_server.h"
#include "tests/support/eventually.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class SnsRelay : public RelaySuite {};

TEST_F(SnsRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
    constexpr int kSome = 4'000;  // moto is slow
    shared_sns().make("relay.fifo");
    publish_all_through_a_kill(shared_sns().url(), "relay.fifo", kSome);
    // What is FIFO drops what comes again within five minutes.
    expect_all(shared_sns().arrived("relay.fifo", kSome), 0);
}

// The topic remembers the ids of what the relay has sent.
TEST_F(SnsRelay, WhatIsReplayedIsNoRepeat) {
    shared_sns().make("replayed.fifo");
    publish_and_replay(shared_sns().url(), "replayed.fifo", 50);
    EXPECT_EQ(shared_sns().arrived("replayed.fifo", 50).size(), 150U);
}

TEST_F(SnsRelay, AStandardTopicGetsEachEventAtLeastOnce) {
    shared_sns().make("a-events");
    write("", 500);
    Process relay = outbox_.start_relay(arguments(shared_sns().url()));
    ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(shared_sns().arrived("a-events", 500).size(), 500U);
}

TEST_F(SnsRelay, CheckSaysWhatIsWrongAndWhichTopicsKeepAnOrder) {
    shared_sns().make("checked");
    shared_sns().make("checked.fifo");
    const auto right = check(shared_sns().url());
    EXPECT_EQ(right.first, 0) << right.second;
    for (const std::string word : {"without an order", "checked", "checked.fifo"}) {
        EXPECT_NE(right.second.find(word), std::string::npos) << right.second;
    }
    const AwsService aws("sns");
    const auto secret = check(aws.url("AKID", "s3cret-of-another"));
    EXPECT_EQ(secret.first, 1) << secret.second;
    EXPECT_NE(secret.second.find("check the secret of the access key"), std::string::npos)
        << secret.second;
    const auto option = check(shared_sns().url() + "?topic=orders");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_NE(option.second.find("no option 'topic'"), std::string::npos) << option.second;
    const auto nobody = check("sns+http://127.0.0.1:1");
    EXPECT_EQ(nobody.first, 1) << nobody.second;
    EXPECT_NE(nobody.second.find("OB_CONNECT_FAILED"), std::string::npos) << nobody.second;
}

TEST_F(SnsRelay, AWebIdentityGetsItsKeyFromStsOfMoto) {
    shared_sns().make("identified");
    const KeyServer keys;  // for its file alone
    const std::string place = "127.0.0.1:" + std::to_string(shared_sns().port());
    auto environment = keys.web_identity();
    environment["AWS_ENDPOINT_URL_STS"] = "http://" + place;
    const Variables role(environment);
    const auto right = check("sns+http://" + place);
    EXPECT_EQ(right.first, 0) << right.second;
    EXPECT_NE(right.second.find("(STS at http://" + place), std::string::npos) << right.second;
    write("identified", 100);
    Process relay = outbox_.start_relay(arguments("sns+http://" + place));
    ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(shared_sns().arrived("identified", 100).size(), 100U);
    EXPECT_EQ(keys.asked(), 0U);
}

TEST(SnsPage, ItsFirstBlockBringsAnEventToAQueue) {
    const std::string place = "127.0.0.1:" + std::to_string(shared_sns().port());
    Guide page("sns.md",
               {.words = {{"sns://sns.eu-central-1.amazonaws.com", "sns+http://" + place}},
                .environment = {{"AWS_ACCESS_KEY_ID", "x"},
                                {"AWS_SECRET_ACCESS_KEY", "x"},
                                {"AWS_REGION", "eu-central-1"}},
                .programs = {{"aws", "env AWS_DEFAULT_REGION=eu-central-1 " OUTBOX_SOURCE_DIR
                                     "/script/clients python -B -m awscli --endpoint-url http://" +
                                         place}}});
    page.expect_an_event();
}

}  // namespace
}  // namespace outbox::test
