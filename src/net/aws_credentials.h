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

/// A key that is written somewhere, and where: "profile relay in /etc/aws".
struct WrittenKey {
    AwsCredentials key;
    std::string origin;
};

/// What is said of being without a key: kAuthFailed/retry_destination.
[[nodiscard]] ErrorInfo key_failed(std::string why);

/// Of the environment; empty: it is not set.
[[nodiscard]] std::string variable(const char* name);

/// A profile of a credentials file of AWS' own tools.
struct AwsProfile {
    bool is_there = false;
    AwsCredentials key;        ///< Or what there is of it.
    std::string other_source;  ///< "role_arn": the profile says that it has its key from elsewhere.
};

/// The profile, out of the text of a file.
[[nodiscard]] AwsProfile read_profile(std::string_view text, std::string_view profile);

/// User and password of the access; nothing: it has no user. Errors:
/// kAuthFailed/retry_destination.
Result<std::optional<WrittenKey>> key_of_url(const ServerAccess& access);
/// That of AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN. Errors: one of the first
/// two stands there alone; kAuthFailed/retry_destination.
Result<std::optional<WrittenKey>> key_of_environment();
/// The file's. Nothing: there is no such file or no such profile in it, and neither was asked for,
/// by `login` or the environment. Errors: as above, also where the profile has half a key or names
/// another source, which is not read.
Result<std::optional<WrittenKey>> key_of_file(const AwsLogin& login);

}  // namespace outbox::net
