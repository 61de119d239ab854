#pragma once

#include <libpq-fe.h>
#include <memory>
#include <string>
#include <string_view>

#include <outbox/error.h>

namespace outbox::consumer {

struct FinishConnection {
    void operator()(PGconn* connection) const { PQfinish(connection); }
};
using PgConnection = std::unique_ptr<PGconn, FinishConnection>;

struct ClearResult {
    void operator()(PGresult* result) const { PQclear(result); }
};
using PgResult = std::unique_ptr<PGresult, ClearResult>;

[[nodiscard]] bool succeeded(const PGresult* result);

/// Our error for an SQLSTATE. Advice: retry_event with kConflict = run the transaction again; other
/// retry_event or dead_letter = this message's own; retry_destination = the database's.
/// An empty state means that the connection broke.
[[nodiscard]] ErrorInfo pg_error(std::string_view sqlstate, std::string_view message,
                                 const std::string& doing);

/// The same for a statement that failed; `doing`: "reading the mailbox".
[[nodiscard]] ErrorInfo pg_error(PGconn* connection, const PGresult* result,
                                 const std::string& doing);

}  // namespace outbox::consumer
