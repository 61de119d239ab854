#pragma once

#include <functional>
#include <set>
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

/// Holds the rows of these endpoints for a change of them or of their deliveries, but for those
/// that another transaction holds, which may be any operator's for any time (README.md: locks).
/// Gives those that are held now, and those that another holds. Those that are gone are neither.
struct HeldEndpoints {
    std::set<std::string, std::less<>> here;
    std::vector<std::string> elsewhere;
};
Result<HeldEndpoints> hold_endpoints(Connection& connection, const WebhookTables& tables,
                                     const std::vector<std::string>& ids);

/// A time column in microseconds since the Unix epoch; 0 where there is none.
[[nodiscard]] std::string microseconds_of(const std::string& column);

}  // namespace outbox::postgres
