#pragma once

#include <string>
#include <string_view>

#include <outbox/result.h>

namespace outbox::nats {

/// A value as one token of a subject: what would split the subject or mean something in it (white
/// space, control characters and . * > $ %) becomes %XX, an empty value "%". Reversible, and the
/// same for the same value.
[[nodiscard]] std::string encode_token(std::string_view value);

/// What NATS asks of a subject that is published to: tokens with dots between, none of them empty,
/// no wildcards. One that begins with $ is the server's own. Errors: kTopicInvalid/dead_letter.
Status check_subject(std::string_view subject);

}  // namespace outbox::nats
