#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "tests/brokers/broker_server.h"
#include "tests/conformance/letters.h"

namespace outbox::test {

// A real Pulsar.
class PulsarServer : public BrokerServer {
  public:
    explicit PulsarServer(const std::filesystem::path& tls = {}, const std::string& settings = {});

    // Of the folder: "token", "guest_token", "old_token".
    std::string token(const std::string& name = "token") const;
    // pulsar://:TOKEN@localhost:PORT; the same after a restart.
    std::string url(const std::string& token_name = "token") const;
    int tls_port() const;

    // By pulsar-client.
    std::vector<Arrived> arrived(const std::string& topic, std::size_t count);
    // What it says of them, a JSON object a line.
    std::string read(const std::string& topic, std::size_t count);
    // By Pulsar's own Java client, which tells a key that is empty from none.
    std::vector<Arrived> arrived_in_java(const std::string& topic, std::size_t count);
    // The partition that it gives each key.
    std::vector<int> places_in_java(const std::string& topic, const std::vector<std::string>& keys);

    // By the admin API: "PUT", "persistent/public/default/orders/partitions", "4".
    std::string admin(const std::string& method, const std::string& path,
                      const std::string& body = "");
    void make_partitions(const std::string& topic, int count);
    void unload(const std::string& topic);
    // A namespace of the tenant public with these policies: {path, body}.
    void make_namespace(const std::string& name,
                        const std::vector<std::pair<std::string, std::string>>& policies = {});

    // Any other command of client.py, to be run beside.
    std::vector<std::string> command(std::vector<std::string> words) const;

  private:
    std::string java(std::vector<std::string> words);
};

// One for all tests of a program, started at first use.
PulsarServer& shared_pulsar();

}  // namespace outbox::test
