#pragma once

#include <memory>

#include <outbox/result.h>

#include "core/event_trace.h"
#include "databases/postgres/source/config.h"

namespace outbox::postgres {

/// Everything is read in one snapshot, that of the first question. Connects.
Result<std::unique_ptr<EventTracer>> open_tracer(const PostgresSourceConfig& config);

}  // namespace outbox::postgres
