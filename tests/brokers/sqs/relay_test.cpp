// The relay itself in front of a real ElasticMQ.

#include "tests/brokers/relay_suite.h"
#include "tests/brokers/sqs/server.h"
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
    expect_all(shared_sqs().arrived("relay.fifo", kFew, 8), 0, kFew);
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
    EXPECT_NE(secret.first, 0);
    EXPECT_NE(secret.second.find("check the secret of the access key"), std::string::npos)
        << secret.second;
    const auto option = check(shared_sqs().url() + "?queue=orders");
    EXPECT_NE(option.first, 0);
    EXPECT_NE(option.second.find("no option 'queue'"), std::string::npos) << option.second;
    const auto nobody = check("sqs+http://127.0.0.1:1");
    EXPECT_NE(nobody.first, 0);
    EXPECT_NE(nobody.second.find("OB_CONNECT_FAILED"), std::string::npos) << nobody.second;
}

}  // namespace
}  // namespace outbox::test
