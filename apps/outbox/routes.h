#pragma once

#include <span>
#include <string>

#include "core/operations.h"

namespace outbox::app {

/// The names of these routes as a message has them.
[[nodiscard]] std::string known_routes(std::span<const LedgerRoute> routes);

}  // namespace outbox::app
