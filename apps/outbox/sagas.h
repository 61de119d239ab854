#pragma once

#include <nlohmann/json_fwd.hpp>

#include "saga/operate.h"

namespace outbox::app {

/// As `outbox saga list --json` prints it; `whole`: with steps and data.
[[nodiscard]] nlohmann::ordered_json json_of(const saga::SagaInfo& info, bool whole);

}  // namespace outbox::app
