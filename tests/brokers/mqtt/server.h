#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/brokers/broker_server.h"
#include "tests/conformance/letters.h"

namespace outbox::test {

// A real mosquitto.
class MqttServer : public BrokerServer {
  public:
    explicit MqttServer(const std::filesystem::path& tls = {}, const std::string& settings = {});

    // mqtt://relay:s3cret@127.0.0.1:PORT; the same after a restart.
    std::string url(const std::string& user = "relay",
                    const std::string& password = "s3cret") const;
    int tls_port() const;

    // By paho-mqtt. A session, named after the topic, that keeps what comes from now on.
    void subscribe(const std::string& topic);
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count);
    std::string ask(std::vector<std::string> command);
};

// One for all tests of a program, started at first use.
MqttServer& shared_mqtt();

}  // namespace outbox::test
