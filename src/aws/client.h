#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/result.h>

#include "aws/config.h"
#include "aws/faults.h"
#include "aws/service.h"
#include "net/aws_credentials.h"
#include "net/http_client.h"

namespace outbox::aws {

/// What came of a request: its body, or a fault.
struct Answer {
    std::uint64_t token = 0;
    std::optional<Fault> fault = {};
    std::string body = {};
};

/// Sends a service's requests, each signed by the key in force. Nothing blocks but `poll`. Not
/// thread-safe.
class Client {
  public:
    explicit Client(const Config& config);

    /// Begins a request. An error: there is no access key; nothing was begun.
    std::optional<ErrorInfo> start(std::uint64_t token, Call call);
    /// Appends what came of requests; waits up to `most` where there is nothing yet.
    void poll(std::chrono::milliseconds most, std::vector<Answer>& out);
    [[nodiscard]] std::size_t under_way() const { return http_.under_way(); }

    /// One request, with all of its time. Blocks up to `most`.
    Result<std::string> ask(Call call, std::chrono::milliseconds most);

  private:
    [[nodiscard]] Answer read(net::HttpOutcome outcome);
    void compare_clocks(const net::HttpOutcome& outcome, Fault& fault);

    const Config config_;
    const std::string url_;
    net::HttpClient http_;
    std::optional<std::optional<net::AwsCredentials>> credentials_;  // nothing: to be read
    std::chrono::seconds clock_skew_{0};
    std::chrono::milliseconds timeout_;
    std::vector<net::HttpOutcome> outcomes_;
};

}  // namespace outbox::aws
