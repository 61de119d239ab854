#pragma once

#include <functional>
#include <string>

#include <outbox/result.h>

#include "runtime/options.h"

namespace outbox::app {

/// The token of --admin-token-file, read at each call; null where the option is not given. Errors:
/// kConfigInvalid where the file cannot be used now.
Result<std::function<Result<std::string>()>> token_of(const runtime::OptionValues& options);

}  // namespace outbox::app
