#pragma once

#include "databases/postgres/receive/transaction.h"

namespace outbox::consumer {

/// A statement of ours that a connection keeps prepared: planning it costs the server as much as
/// running it. A session of ours prepares all of its own when it connects.
struct Prepared {
    const char* name;
    const char* sql;
};

/// On a caller's connection: prepares it unless that was done. On an idle connection. Where it
/// cannot be prepared, it is sent as SQL, which tells why.
void keep(pg_conn* connection, const Prepared& statement);

/// How to send it on this connection now.
[[nodiscard]] Step step_of(pg_conn* connection, const Prepared& statement, const Params& params);

/// BEGIN and the statement in one round trip: the statement's result. Throws `Error`; then no
/// transaction is open.
Rows begun_with(pg_conn* connection, const Prepared& statement, const Params& params,
                const char* doing);

/// True: the server did not know the statement, as behind a pooler that hands out another session
/// for each transaction. From here on the connection is sent SQL; run the transaction again.
[[nodiscard]] bool must_send_sql(pg_conn* connection, const ErrorInfo& error);

}  // namespace outbox::consumer
