#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include <outbox/result.h>

#include "net/aws_credentials.h"
#include "net/http_client.h"

namespace outbox::net {

/// An access key that lasts for a while.
struct TemporaryKey {
    AwsCredentials key;
    std::optional<std::chrono::seconds> lifetime;  ///< From now; nothing: until it is refused.
};

/// Who hands out the access keys of a role: says what to ask, and makes a key of the answers. Does
/// no I/O but reading files of tokens, which it reads anew each time. Not thread-safe.
class KeyGiver {
  public:
    using Step = std::variant<HttpRequest, TemporaryKey, ErrorInfo>;

    KeyGiver() = default;
    KeyGiver(const KeyGiver&) = delete;
    KeyGiver& operator=(const KeyGiver&) = delete;
    virtual ~KeyGiver() = default;

    /// "role arn:... by its web identity token (STS)"
    [[nodiscard]] virtual std::string name() const = 0;
    /// What it sends in clear to another machine, with the remedy; or "".
    [[nodiscard]] virtual std::string weakness() const { return {}; }
    /// The first request. Errors: kAuthFailed/retry_destination.
    virtual Step begin() = 0;
    /// What comes after this answer. Errors: the same.
    virtual Step next(const HttpOutcome& outcome) = 0;
};

/// The role that AWS_ROLE_ARN names, by AWS_WEB_IDENTITY_TOKEN_FILE, from STS:
/// AWS_ENDPOINT_URL_STS, AWS_ENDPOINT_URL, or Amazon's in `region`. Null: the environment names
/// none.
[[nodiscard]] std::unique_ptr<KeyGiver> web_identity(const std::string& region);

/// That of a container of ECS or a pod of EKS, by AWS_CONTAINER_CREDENTIALS_RELATIVE_URI or
/// _FULL_URI. Null: the environment names none.
[[nodiscard]] std::unique_ptr<KeyGiver> container_role();

/// That of a machine of EC2, by version 2 of its metadata service. Null: AWS_EC2_METADATA_DISABLED.
[[nodiscard]] std::unique_ptr<KeyGiver> machine_role();

}  // namespace outbox::net
