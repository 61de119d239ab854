#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/support/files.h"
#include "tests/support/process.h"

namespace outbox::test {

// A span as receiver.py has read it.
struct SeenSpan {
    std::string trace;
    std::string parent;
    std::string id;
    std::string name;
    int kind = 0;
    long long start_us = 0;
    long long us = 0;  // from its start to its end
    int status = 0;
    std::string error;
    std::map<std::string, std::string> attributes;
    std::map<std::string, std::string> resource;
};

// receiver.py: takes spans by OTLP, with OpenTelemetry's definitions of it.
class SpanReceiver {
  public:
    // `login`: what the header Authorization has to be; empty: anything.
    explicit SpanReceiver(const std::string& login = {});

    std::string url(const std::string& login = {}) const;  // `login` ends in '@'
    void set_mode(const std::string& mode) const;
    std::vector<SeenSpan> spans() const;
    void stop() { process_.stop(); }

  private:
    TemporaryFolder folder_{"receiver"};
    int port_;
    Process process_;
};

}  // namespace outbox::test
