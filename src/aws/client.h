#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <outbox/result.h>

#include "aws/config.h"
#include "aws/faults.h"
#include "aws/service.h"
#include "net/aws_keys.h"
#include "net/http_client.h"

namespace outbox::aws {

/// What came of a request: its body, or a fault.
struct Answer {
    std::uint64_t token = 0;
    std::optional<Fault> fault = {};
    std::string body = {};
};

/// Sends a service's requests, each signed by the key in force. Nothing blocks but `poll`, and for
/// up to `net::kKeyTime` what needs a key of a role while there is none. Not thread-safe.
class Client {
  public:
    explicit Client(const Config& config);

    /// Begins a request. An error: there is no access key; nothing was begun.
    std::optional<ErrorInfo> start(std::uint64_t token, Call call);
    /// Appends what came of requests; waits up to `most` where there is nothing yet.
    void poll(std::chrono::milliseconds most, std::vector<Answer>& out);
    /// See `net::AwsKeys`.
    [[nodiscard]] const ErrorInfo* key_not_renewed() const { return keys_.not_renewed(); }
    [[nodiscard]] std::size_t under_way() const { return http_.under_way(); }

    /// One request, with all of its time. Blocks up to `most`, and for its key.
    Result<std::string> ask(Call call, std::chrono::milliseconds most);

  private:
    [[nodiscard]] Answer read(net::HttpOutcome outcome);
    void compare_clocks(const net::HttpOutcome& outcome, Fault& fault);

    const Config config_;
    const std::string url_;
    net::HttpClient http_;
    net::AwsKeys keys_;
    std::unordered_map<std::uint64_t, std::uint64_t> signed_by_;  // of requests under way
    std::chrono::seconds clock_skew_{0};
    std::chrono::milliseconds timeout_;
    std::vector<net::HttpOutcome> outcomes_;
};

}  // namespace outbox::aws
