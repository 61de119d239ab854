#pragma once

#include "tests/brokers/aws/server.h"

namespace outbox::test {

// One ElasticMQ for all tests of a program, started at first use.
inline AwsServer& shared_sqs() {
    static AwsServer server("sqs", "started in");
    return server;
}

}  // namespace outbox::test
