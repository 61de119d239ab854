// What Amazon's own service does to the sink, as aws.py plays it.

#include "brokers/sns/sink.h"
#include "tests/brokers/aws/service_suite.h"

namespace outbox::test {
namespace {

std::unique_ptr<spi::Sink> open(const aws::Config& config) {
    return std::make_unique<sns::SnsSink>(config);
}

const auto kSns =
    testing::Values(AwsWords{"sns", sns::make_config, open, "SignatureDoesNotMatch", "ExpiredToken",
                             "InvalidClientTokenId", "InvalidParameter"});
INSTANTIATE_TEST_SUITE_P(Sns, AwsServiceTest, kSns);

TEST(SnsService, ATopicIsFoundByItsArnByTheAccountAndByThatOfTheOthers) {
    const AwsService service("sns");
    for (const std::string account : {"", "?account=123456789012"}) {
        const auto sink = open(sns::make_config(service.url() + account, {}).value_or_throw());
        for (const char* topic : {"orders", "arn:aws:sns:us-east-1:123456789012:orders"}) {
            Courier courier(*sink);
            ASSERT_EQ(courier.deliver(letters(topic, 10, 10)), "");
            EXPECT_EQ(courier.failures(), 0U);
        }
    }
}

}  // namespace
}  // namespace outbox::test
