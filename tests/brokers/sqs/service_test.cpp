// What Amazon's own service does to the sink, as aws.py plays it.

#include "brokers/sqs/sink.h"
#include "tests/brokers/aws/service_suite.h"

namespace outbox::test {
namespace {

std::unique_ptr<spi::Sink> open(const aws::Config& config) {
    return std::make_unique<sqs::SqsSink>(config);
}

const auto kSqs = testing::Values(
    AwsWords{"sqs", sqs::make_config, open, "InvalidSignatureException", "ExpiredTokenException",
             "UnrecognizedClientException", "InvalidMessageContents"});
INSTANTIATE_TEST_SUITE_P(Sqs, AwsServiceTest, kSqs);

TEST(SqsService, AQueueMayBeNamedByItsUrlAndIsAskedForWhereTheSinkIs) {
    const AwsService service("sqs");
    const auto sink = open(sqs::make_config(service.url(), {}).value_or_throw());
    Courier courier(*sink);
    ASSERT_EQ(courier.deliver(letters("https://sqs.x.amazonaws.com/123456789012/orders", 10, 10)),
              "");
    EXPECT_EQ(courier.failures(), 0U);
}

}  // namespace
}  // namespace outbox::test
