#pragma once

#include <optional>
#include <string>
#include <string_view>

#include <outbox/result.h>

#include "net/server_access.h"

namespace outbox::net {

/// An access key of AWS.
struct AwsCredentials {
    std::string access_key;
    std::string secret_key;
    std::string session_token;  ///< Of a temporary one.
};

/// Which of the machine's access keys is meant.
struct AwsLogin {
    std::string profile;           ///< In the file; empty: AWS_PROFILE, "default".
    std::string credentials_file;  ///< Empty: AWS_SHARED_CREDENTIALS_FILE, ~/.aws/credentials.
};

/// The profile's, out of the text of a credentials file of AWS' own tools; nothing: it has none.
[[nodiscard]] std::optional<AwsCredentials> read_profile(std::string_view text,
                                                         std::string_view profile);

/// What is in force now: user and password of the access, else the environment's, else the file's.
/// Nothing: there is none anywhere, which a server in clear may do without. Secrets are remembered
/// by the redactor. `prefix`: of the options in messages, "sqs.".
/// Errors: kAuthFailed/retry_destination.
Result<std::optional<AwsCredentials>> current_credentials(const ServerAccess& access,
                                                          const AwsLogin& login,
                                                          std::string_view prefix);

}  // namespace outbox::net
