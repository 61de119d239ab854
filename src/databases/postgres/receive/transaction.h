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
using postgres::Params;
using postgres::receive_error;
using postgres::Rows;
using postgres::Step;

/// For a transaction that changes nothing, because it found done what another did, and on whose
/// word others forget the work: has its COMMIT wait for the synchronous standbys, as that of a
/// write does. What it found may itself be committed here alone: who crashed, or was cancelled,
/// while it waited for them is seen. An id (xid) by itself does not wait; a message in the log
/// does.
inline constexpr const char* kWaitAsAWrite =
    "SELECT pg_catalog.pg_logical_emit_message(true, 'outbox_repeat', ''::pg_catalog.text) "
    "WHERE pg_catalog.current_setting('synchronous_standby_names') <> '' "
    "AND pg_catalog.current_setting('synchronous_commit') NOT IN ('off', 'local')";

/// The same in a caller's transaction. Throws `Error`.
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
