#pragma once

#include <string>
#include <string_view>

#include "databases/sqlite/client.h"

namespace outbox::consumer {

/// Throws `Error` unless a transaction is open; `who` names the call: "accept".
void require_transaction(sqlite3* database, const std::string& who);

/// "schema.table" or "column", as SQL.
[[nodiscard]] std::string quoted_name(std::string_view name);

/// One in the caller's transaction. Throws `Error`.
[[nodiscard]] inline sqlite::Statement callers_statement(sqlite3* database, std::string_view sql,
                                                         const char* doing) {
    return {database, sql, sqlite::Role::kCaller, doing};
}

}  // namespace outbox::consumer
