#pragma once

#include <memory>

#include <outbox/result.h>

#include "core/event_trace.h"
#include "databases/sqlite/source/config.h"

namespace outbox::sqlite {

/// Holds no lock between its statements, behind which writers would wait. Opens the file.
Result<std::unique_ptr<EventTracer>> open_tracer(const SqliteSourceConfig& config);

}  // namespace outbox::sqlite
