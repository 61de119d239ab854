#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outbox::net {

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

/// Who signs requests to AWS, and for what ("Signature Version 4" in AWS's reference for IAM).
struct SigV4 {
    std::string region;   ///< "eu-central-1"
    std::string service;  ///< "sqs", "s3"
    std::string access_key;
    std::string secret_key;
    std::string session_token = {};      ///< Of temporary credentials; empty: they are none.
    std::chrono::seconds clock_skew{0};  ///< By which the server's clock is ahead of ours.
};

/// The headers that a request needs beside its own: Authorization, X-Amz-Date, and, where they
/// belong to it, X-Amz-Security-Token and X-Amz-Content-Sha256. All of `headers` are signed, and so
/// is the host of the URL. The URL is encoded already, as it is sent. Empty: the URL has no host.
[[nodiscard]] HttpHeaders sign(const SigV4& who, std::string_view method, std::string_view url,
                               const HttpHeaders& headers, std::string_view body,
                               std::chrono::system_clock::time_point now);

}  // namespace outbox::net
