#pragma once

#include <outbox/error.h>

#include "databases/postgres/connection.h"

namespace outbox::postgres {

/// What is said of rows that the owner's table keeps although it raises no error.
inline constexpr const char* kKeptSilently =
    "the table keeps rows as they are without an error; does a trigger of yours return NULL or OLD "
    "for them?";

/// Whether a statement that failed with this would pass without some of its rows. Where a function
/// of the owner's may have raised the error EXPLAIN tells: it looks at names, types and rights, and
/// touches no row. The transaction must not have failed; it has where the answer is no.
[[nodiscard]] bool rows_are_to_blame(Connection& connection, const ErrorInfo& error,
                                     const std::string& sql, const Params& params);

}  // namespace outbox::postgres
