#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// tests/webhook/receiver.py: checks signatures by others' code. What cannot be started throws
// std::runtime_error.
class Receiver {
  public:
    struct Options {
        std::vector<std::string> keys = {};  // that signatures are checked with
        std::string tls = {};                // PEM of certificate and key
        std::string host = "127.0.0.1";
        int port = 0;        // 0: one of its own
        bool http2 = false;  // receiver_http2.py, which wants `tls`
    };
    explicit Receiver(const Options& options);

    int port() const { return port_; }
    std::size_t count() const;
    // What has come so far.
    std::vector<nlohmann::json> requests() const;
    // ... once there are so many.
    std::vector<nlohmann::json> wait_for(std::size_t count) const;

  private:
    TemporaryFolder folder_{"receiver"};
    int port_;
    Process process_;
};

}  // namespace outbox::test
