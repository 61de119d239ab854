#pragma once

#include "tests/brokers/aws/server.h"

namespace outbox::test {

// One moto for all tests of a program, started at first use.
inline AwsServer& shared_sns() {
    static AwsServer server("sns", "serves");
    return server;
}

}  // namespace outbox::test
