#pragma once

#include <memory>

#include <outbox/result.h>

#include "core/event_trace.h"
#include "databases/sqlite/source/config.h"

namespace outbox::sqlite {

/// Everything is read in one snapshot, that of the first question. Opens the file.
Result<std::unique_ptr<EventTracer>> open_tracer(const SqliteSourceConfig& config);

}  // namespace outbox::sqlite
