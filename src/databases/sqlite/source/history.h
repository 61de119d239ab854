#pragma once

#include <memory>

#include <outbox/result.h>

#include "databases/sqlite/source/config.h"
#include "replay/history.h"

namespace outbox::sqlite {

/// Connects.
Result<std::unique_ptr<replay::History>> open_history(const SqliteSourceConfig& config);

}  // namespace outbox::sqlite
