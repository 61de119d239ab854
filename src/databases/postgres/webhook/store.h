#pragma once

#include <memory>

#include <outbox/result.h>

#include "databases/postgres/source/config.h"
#include "webhook/store.h"

namespace outbox::postgres {

/// They do not connect yet.
Result<std::unique_ptr<webhook::Inlet>> open_webhook_inlet(const webhook::StoreConfig& config);
Result<std::unique_ptr<webhook::Outlet>> open_webhook_outlet(const webhook::StoreConfig& config);

/// For a `Session`.
[[nodiscard]] PostgresSourceConfig source_config(const webhook::StoreConfig& config);

}  // namespace outbox::postgres
