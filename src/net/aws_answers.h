#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include "net/aws_credentials.h"

namespace outbox::net {

/// An access key as it is handed out for a while.
struct HandedKey {
    AwsCredentials key;
    std::optional<std::chrono::sys_seconds> expires;  ///< Nothing: not said.
};

/// Of the JSON by which containers and machines are given theirs; nothing: there is no key in it.
[[nodiscard]] std::optional<HandedKey> read_key_document(std::string_view body);

/// Of STS' answer to AssumeRoleWithWebIdentity; nothing: there is no key in it.
[[nodiscard]] std::optional<HandedKey> read_assumed_role(std::string_view body);

/// Why there is no key, in the words of an answer of either kind, printable; empty: it does not
/// say.
[[nodiscard]] std::string read_key_refusal(std::string_view body);

/// The first line of the list of a machine's roles; empty: there is none that could be one's name.
[[nodiscard]] std::string read_role_name(std::string_view body);

}  // namespace outbox::net
