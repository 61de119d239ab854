#pragma once

#include <string>

#include "tests/brokers/broker_server.h"

namespace outbox::test {

// A real S3Proxy, which looks at signatures, with a bucket made by boto3.
class S3Server : public BrokerServer {
  public:
    explicit S3Server(const std::string& settings = {});
    // s3://relay:SECRET@BUCKET/PREFIX?endpoint=...; the same after a restart.
    std::string store(const std::string& bucket = "payloads",
                      const std::string& secret = "s3cret-key");
    std::string read(const std::string& key);  // by boto3
    void remove(const std::string& key);
    std::size_t count();
};

// One for all tests of a program, started at first use.
S3Server& shared_s3();

}  // namespace outbox::test
