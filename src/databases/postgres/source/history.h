#pragma once

#include <memory>

#include <outbox/result.h>

#include "databases/postgres/source/config.h"
#include "replay/history.h"

namespace outbox::postgres {

/// Connects.
Result<std::unique_ptr<replay::History>> open_history(const PostgresSourceConfig& config);

}  // namespace outbox::postgres
