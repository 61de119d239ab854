#pragma once

#include <cstddef>
#include <string>

#include "tests/brokers/broker_server.h"
#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// A real Apicurio Registry, asked through its API of Confluent's. A restart forgets its schemas.
class RegistryServer : public BrokerServer {
  public:
    RegistryServer();
    std::string url() const;
    // Registers a version; its id. `references`: a JSON array.
    std::uint32_t add(const std::string& subject, const std::string& schema,
                      const std::string& type = "JSON", const std::string& references = "[]");
};

// One for all tests of a program, started at first use.
RegistryServer& shared_registry();

// front.py: what may stand before a registry.
class Front {
  public:
    // `login`: what the header Authorization has to be; empty: anything.
    explicit Front(int to_port, const std::string& login = {}, const std::string& tls = {});

    // http://LOGIN127.0.0.1:PORT/apis/ccompat/v7; `login` ends in '@'.
    std::string url(const std::string& login = {}) const;
    int port() const { return port_; }
    void set_mode(const std::string& mode) const;
    // How often a path has been asked for that holds this.
    std::size_t asked(const std::string& part) const;

  private:
    TemporaryFolder folder_{"front"};
    int port_;
    Process process_;
};

}  // namespace outbox::test
