#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include <outbox/limits.h>
#include <outbox/result.h>

#include "net/aws_credentials.h"
#include "net/server_access.h"

namespace outbox::claim {

/// User and password are the id and the secret of an access key.
struct S3Config : net::ServerAccess, net::AwsLogin {
    std::string bucket;
    std::string prefix;  ///< Of keys; empty, or ends in '/'.
    std::string base;    ///< What a key is appended to: "https://bucket.s3.region.amazonaws.com/".
    std::string region;  ///< That requests are signed for.
    std::chrono::seconds connect_timeout{kConnectTimeoutS};
};

/// From `s3://BUCKET/PREFIX`, or `s3://KEY:SECRET@BUCKET/PREFIX`, with `endpoint`, `region`,
/// `profile`, `credentials_file`, `ca_file`, `cert_file`, `key_file`, `verify` and `password_file`
/// in its query. Without an endpoint it is Amazon's. Errors: kConfigInvalid/stop.
Result<S3Config> make_s3_config(std::string_view url);

}  // namespace outbox::claim
