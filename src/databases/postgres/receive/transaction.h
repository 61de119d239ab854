#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "databases/postgres/arrays.h"
#include "databases/postgres/errors.h"
#include "databases/postgres/statement.h"

namespace outbox::consumer {

using postgres::array_literal;
using postgres::kWaitAsAWrite;
using postgres::Params;
using postgres::receive_error;
using postgres::Rows;
using postgres::Step;

/// Runs `kWaitAsAWrite` in a caller's transaction. Throws `Error`.
void wait_as_a_write(pg_conn* transaction, const char* doing);

/// Throws `Error` unless a sound transaction is open; `who` names the call: "accept".
void require_transaction(pg_conn* connection, const std::string& who);

/// `name`, which an adopted table gave, as an identifier; throws `Error` with kConfigInvalid where
/// it can be none. `what`: "AdoptedKeys".
[[nodiscard]] std::string identifier(pg_conn* connection, std::string_view name, const char* what);

/// "schema.table" or "table", each part as an identifier.
[[nodiscard]] std::string table_identifier(pg_conn* connection, std::string_view name,
                                           const char* what);

/// What became of them: those after one that fails are not run.
struct StepResults {
    std::vector<Rows> done;
    std::optional<ErrorInfo> error;  ///< Of the first that is not done.
};

/// Sends the statements together and waits for all their results. On an idle connection that is not
/// in pipeline mode.
StepResults run_together(pg_conn* connection, std::span<const Step> steps, const char* doing);

/// Throws `Error` unless the connection is idle and may begin a transaction.
void require_idle(pg_conn* connection, const std::string& who);

/// Runs BEGIN and what follows it; gives the last result. After an exception no transaction is
/// open.
Rows begun(pg_conn* connection, std::span<const Step> steps, const char* doing);

}  // namespace outbox::consumer
