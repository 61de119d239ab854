#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/brokers/broker_server.h"
#include "tests/conformance/letters.h"

namespace outbox::test {

// A real NATS with JetStream.
class NatsServer : public BrokerServer {
  public:
    explicit NatsServer(const std::filesystem::path& tls = {}, const std::string& settings = {});

    // nats://relay:s3cret@127.0.0.1:PORT; the same after a restart.
    std::string url(const std::string& user = "relay",
                    const std::string& password = "s3cret") const;

    // By nats-py. Options are "name=JSON".
    void make_stream(const std::string& stream, const std::string& subject,
                     const std::vector<std::string>& options = {});
    void make_consumer(const std::string& stream, const std::string& consumer,
                       const std::vector<std::string>& options = {});
    std::vector<Arrived> arrived(const std::string& subject, std::size_t count);
    void publish(const std::string& subject, const std::vector<Letter>& letters);
    // Messages that are not done, once no member asks for any, for which it waits.
    std::size_t left(const std::string& stream, const std::string& consumer);
    // Any other command of client.py.
    std::string ask(std::vector<std::string> command);
};

// One for all tests of a program, started at first use.
NatsServer& shared_nats();

}  // namespace outbox::test
