#pragma once

#include <string>
#include <vector>

#include <outbox/result.h>

#include "databases/postgres/connection.h"
#include "webhook/endpoint.h"

namespace outbox::postgres {

/// All endpoints of `table`, which is quoted.
Result<std::vector<webhook::Endpoint>> read_endpoints(Connection& connection,
                                                      const std::string& table);

/// A time column in microseconds since the Unix epoch; 0 where there is none.
[[nodiscard]] std::string microseconds_of(const std::string& column);

}  // namespace outbox::postgres
