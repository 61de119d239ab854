#pragma once

#include <string>

#include "backend/database.h"

namespace outbox::postgres {

/// As `Database::roles_sql`.
[[nodiscard]] std::string roles_sql(const RolesConfig& config);

}  // namespace outbox::postgres
