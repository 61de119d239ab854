// What the server does to the sink in mid-stream.

#include "brokers/sns/sink.h"
#include "tests/brokers/aws/failure_suite.h"
#include "tests/brokers/sns/server.h"

namespace outbox::test {
namespace {

const auto kSns = testing::Values(AwsKind{
    shared_sns, sns::make_config, [](const aws::Config& config) -> std::unique_ptr<spi::Sink> {
        return std::make_unique<sns::SnsSink>(config);
    }});
INSTANTIATE_TEST_SUITE_P(Sns, AwsFailure, kSns);

}  // namespace
}  // namespace outbox::test
