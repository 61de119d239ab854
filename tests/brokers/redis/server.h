#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/brokers/broker_server.h"
#include "tests/conformance/letters.h"

namespace outbox::test {

// A real Redis.
class RedisServer : public BrokerServer {
  public:
    explicit RedisServer(const std::filesystem::path& tls = {}, const std::string& settings = {});

    // redis://relay:s3cret@127.0.0.1:PORT/0; the same after a restart.
    std::string url(const std::string& user = "relay",
                    const std::string& password = "s3cret") const;
    int tls_port() const;

    // By redis-py.
    std::vector<Arrived> arrived(const std::string& stream, std::size_t count);
    void publish(const std::string& stream, const std::vector<Letter>& letters);
    // Entries of the group that are not done, once no member is connected, for which it waits.
    std::size_t left(const std::string& stream, const std::string& group);
    // What a command answers, as Python writes it.
    std::string ask(std::vector<std::string> command);
};

// One for all tests of a program, started at first use.
RedisServer& shared_redis();

}  // namespace outbox::test
