#pragma once

#include <string>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "databases/postgres/webhook/place.h"
#include "webhook/endpoint.h"

namespace outbox::postgres {

/// All endpoints of `table`, which is quoted.
Result<std::vector<webhook::Endpoint>> read_endpoints(Connection& connection,
                                                      const std::string& table);

/// Holds the rows of these endpoints, in their order, for a change of them or of their deliveries
/// (README.md: locks).
[[nodiscard]] Connection::Statement hold_endpoints(const WebhookTables& tables,
                                                   const std::vector<std::string>& ids);

/// A time column in microseconds since the Unix epoch; 0 where there is none.
[[nodiscard]] std::string microseconds_of(const std::string& column);

}  // namespace outbox::postgres
