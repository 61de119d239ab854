#pragma once

#include <memory>
#include <string_view>

#include <outbox/result.h>

#include "claim/object_store.h"

namespace outbox::claim {

/// A bucket of Amazon S3, or of a server that speaks its protocol (`s3_config.h` says which URLs).
/// An object is the key PREFIX/NAME. Errors: kConfigInvalid.
Result<std::unique_ptr<ObjectStore>> open_s3_store(std::string_view url);
/// What of the way there is in clear or unverified, with the remedy; or "".
std::string s3_weakness(std::string_view url);
/// `net::check_files` of what the URL names.
Status check_s3_files(std::string_view url);
/// Where its access key is from, without the secret; nothing is asked. Errors: kConfigInvalid, and
/// kAuthFailed where there is no key.
Result<std::string> s3_key_origin(std::string_view url);

}  // namespace outbox::claim
