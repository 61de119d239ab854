#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// A real server of a broker, by script/servers/NAME, in a folder and on ports of its own, gone with
// its owner. What cannot be done throws std::runtime_error.
class BrokerServer {
  public:
    struct Options {
        std::string name;                // of the script
        std::string ready;               // what its log says when it serves
        std::filesystem::path tls = {};  // with ca.crt and server.pem: a listener with TLS, too
        std::string settings = {};       // more lines of its configuration
        std::vector<std::string> python = {"/usr/bin/python3"};  // that runs its client
        std::string client = {};  // empty: tests/brokers/NAME/client.py
    };
    explicit BrokerServer(Options options);
    BrokerServer(const BrokerServer&) = delete;
    BrokerServer& operator=(const BrokerServer&) = delete;
    ~BrokerServer();

    void start();  // returns when it serves; data survives all of these
    void stop();
    void kill();
    void pause();  // SIGSTOP: it hangs
    void resume();
    bool running();

    int port() const { return port_; }
    std::filesystem::path folder() const { return folder_ / "server"; }
    // What its client prints.
    std::string client(const std::vector<std::string>& arguments, const std::string& input = "");
    std::string log_tail() const;

  private:
    TemporaryFolder folder_;
    Options options_;
    int port_;
    int log_registration_;
    std::optional<Process> process_;
};

// As its client prints bytes.
std::string decode_base64(const std::string& text);

}  // namespace outbox::test
