// The relay itself in front of a real ElasticMQ.

#include "tests/brokers/guide.h"
#include "tests/brokers/relay_suite.h"
#include "tests/brokers/sqs/server.h"
#include "tests/net/key_server.h"
#include "tests/support/eventually.h"
#include "tests/support/sqlite.h"

namespace outbox::test {
namespace {

using namespace std::chrono_literals;

class SqsRelay : public RelaySuite {};

TEST_F(SqsRelay, LosesAndReordersNothingWhenItIsKilledInMidFlight) {
    constexpr int kFew = 5'000;  // the server takes no more than some hundred a second
    shared_sqs().make("relay.fifo");
    publish_all_through_a_kill(shared_sqs().url(), "relay.fifo", kFew);
    // The queue drops what comes again within five minutes.
    expect_all(shared_sqs().arrived("relay.fifo", kFew, 8), 0);
}

TEST_F(SqsRelay, BringsAllThatPostgresCommitsOnceThoughItIsKilledAgainAndAgain) {
    shared_sqs().make("load.fifo");
    publish_a_load_through_kills(shared_sqs().url(), "load.fifo", "polling");
    expect_all(shared_sqs().arrived("load.fifo", committed(), 8), 0);
}

// The queue remembers the ids of what the relay has sent.
TEST_F(SqsRelay, WhatIsReplayedIsNoRepeat) {
    shared_sqs().make("replayed.fifo");
    publish_and_replay(shared_sqs().url(), "replayed.fifo", 50);
    EXPECT_EQ(shared_sqs().arrived("replayed.fifo", 50).size(), 150U);
}

TEST_F(SqsRelay, AStandardQueueGetsEachEventAtLeastOnce) {
    shared_sqs().make("a-events");
    write("", 500);
    Process relay = outbox_.start_relay(arguments(shared_sqs().url()));
    ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(relay.stop().code, 0);
    EXPECT_EQ(shared_sqs().arrived("a-events", 500).size(), 500U);
}

TEST_F(SqsRelay, CheckSaysWhatIsWrongAndWhichQueuesKeepAnOrder) {
    shared_sqs().make("checked");
    shared_sqs().make("checked.fifo");
    const auto right = check(shared_sqs().url());
    EXPECT_EQ(right.first, 0) << right.second;
    for (const std::string word : {"without an order", "checked", "checked.fifo"}) {
        EXPECT_NE(right.second.find(word), std::string::npos) << right.second;
    }
    const AwsService aws("sqs");
    const auto secret = check(aws.url("AKID", "s3cret-of-another"));
    EXPECT_EQ(secret.first, 1) << secret.second;
    EXPECT_NE(secret.second.find("check the secret of the access key"), std::string::npos)
        << secret.second;
    const auto option = check(shared_sqs().url() + "?queue=orders");
    EXPECT_EQ(option.first, 2) << option.second;
    EXPECT_NE(option.second.find("no option 'queue'"), std::string::npos) << option.second;
    const auto nobody = check("sqs+http://127.0.0.1:1");
    EXPECT_EQ(nobody.first, 1) << nobody.second;
    EXPECT_NE(nobody.second.find("OB_CONNECT_FAILED"), std::string::npos) << nobody.second;
}

TEST_F(SqsRelay, DeliversWithTheKeysOfAWebIdentityThatExpireAndAreRenewed) {
    const AwsService aws("sqs");
    const KeyServer keys;
    const Variables role(keys.web_identity());
    keys.set("lifetime", "4");
    Process relay = outbox_.start_relay(arguments("sqs+http://" + aws.address()));
    while (keys.asked() < 4) {
        write("orders", 100);
        ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    }
    // Without keys, whatever the reason, they wait.
    keys.set("mode", "refuse");
    // The circuit may have opened for the key that expired under way; why it stays so is told next.
    ASSERT_TRUE(eventually(120s, "there is no key any more", [&] {
        write("orders", 1);
        return relay.stderr_text().find("InvalidIdentityToken") != std::string::npos;
    }));
    keys.set("mode", "ok");
    ASSERT_TRUE(eventually(60s, "all are published", [&] { return left() == 0; }));
    EXPECT_EQ(Sqlite(path_).number("SELECT count(*) FROM outbox_dead_letters"), 0);
    EXPECT_EQ(Sqlite(path_).number("SELECT coalesce(max(attempts), 0) FROM outbox_delivery"), 0);
    EXPECT_EQ(relay.stop().code, 0);
    const std::string log = relay.stderr_text();
    EXPECT_NE(log.find("trust policy"), std::string::npos) << log;
    for (const std::string secret : {"t0ken", "s3cret"}) {
        EXPECT_EQ(log.find(secret), std::string::npos) << log;
    }
}

TEST_F(SqsRelay, CheckSaysWhereTheKeyIsFrom) {
    const AwsService aws("sqs");
    const KeyServer keys;
    const auto without = check("sqs+http://" + aws.address());
    EXPECT_EQ(without.first, 1) << without.second;
    const Variables role(keys.web_identity());
    const auto right = check("sqs+http://" + aws.address());
    EXPECT_EQ(right.first, 0) << right.second;
    EXPECT_NE(right.second.find("access key: role arn:aws:iam::123456789012:role/relay by its web "
                                "identity token (STS at http://127.0.0.1:"),
              std::string::npos)
        << right.second;
    keys.set("mode", "refuse");
    const auto refused = check("sqs+http://" + aws.address());
    EXPECT_EQ(refused.first, 1) << refused.second;
    EXPECT_NE(refused.second.find("trust policy"), std::string::npos) << refused.second;
    for (const auto& one : {right, refused}) {
        EXPECT_EQ(one.second.find("t0ken"), std::string::npos) << one.second;
        EXPECT_EQ(one.second.find("s3cret"), std::string::npos) << one.second;
    }
}

TEST(SqsPage, ItsFirstBlockBringsAnEventToAQueue) {
    const std::string place = "127.0.0.1:" + std::to_string(shared_sqs().port());
    Guide page("sqs.md",
               {.words = {{"sqs://sqs.eu-central-1.amazonaws.com", "sqs+http://" + place}},
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
