#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include <outbox/result.h>

#include "core/operations.h"

namespace outbox::app {

/// As `outbox dead list --json` prints it; `whole`: with headers, metadata and payload.
[[nodiscard]] nlohmann::ordered_json json_of(const DeadInfo& dead, bool whole);

/// Where letters have a route that the relay of their tenants does not have, nobody would retry
/// them: `kConflict`, and nothing is to be changed. `to` empty: their own routes are meant.
[[nodiscard]] Status check_routes(Operations& operations, const DeadFilter& filter,
                                  const std::string& to);

}  // namespace outbox::app
