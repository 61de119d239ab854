#pragma once

#include <chrono>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include <outbox/result.h>

#include "runtime/options.h"
#include "runtime/signals.h"

namespace outbox::app {

/// The token of --admin-token-file, read at each call; null where the option is not given. Errors:
/// kConfigInvalid where the file cannot be used now.
Result<std::function<Result<std::string>()>> token_of(const runtime::OptionValues& options);

/// Waits for what pages that were let go are still at work on, up to `most` or until a signal that
/// ends a process comes. False: in vain, and the process must end without.
[[nodiscard]] bool await_pages(std::vector<std::future<void>>& pages, runtime::StopSignals& signals,
                               std::chrono::milliseconds most);

}  // namespace outbox::app
