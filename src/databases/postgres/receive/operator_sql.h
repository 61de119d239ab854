#pragma once

#include <memory>
#include <optional>
#include <string>

#include "consumer/operator_sql.h"

namespace outbox::consumer {

/// Connects to the PostgreSQL database of a consumer. Errors as `Operations` of a source; without
/// `trust` nobody is asked whose the tables are, and nothing has a limit: a consumer uses what it
/// was given. With it a statement may take a minute, but for `read`.
Result<std::unique_ptr<Sql>> open_postgres_sql(const std::string& url, int connect_timeout_s,
                                               const std::optional<Trust>& trust);

}  // namespace outbox::consumer
