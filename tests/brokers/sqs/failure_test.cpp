// What the server does to the sink in mid-stream.

#include "brokers/sqs/sink.h"
#include "tests/brokers/aws/failure_suite.h"
#include "tests/brokers/sqs/server.h"

namespace outbox::test {
namespace {

const auto kSqs = testing::Values(AwsKind{
    shared_sqs, sqs::make_config, [](const aws::Config& config) -> std::unique_ptr<spi::Sink> {
        return std::make_unique<sqs::SqsSink>(config);
    }});
INSTANTIATE_TEST_SUITE_P(Sqs, AwsFailure, kSqs);

}  // namespace
}  // namespace outbox::test
