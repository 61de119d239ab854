#pragma once

#include <libpq-fe.h>
#include <memory>
#include <string>

#include <outbox/error.h>

namespace outbox::producer {

struct ConnectionCloser {
    void operator()(PGconn* connection) const { PQfinish(connection); }
};
using PgConnection = std::unique_ptr<PGconn, ConnectionCloser>;

struct ResultCloser {
    void operator()(PGresult* result) const { PQclear(result); }
};
using PgResult = std::unique_ptr<PGresult, ResultCloser>;

/// True for a result that a statement without an error gives.
[[nodiscard]] bool succeeded(const PGresult* result);

/// Why a connection could not be made.
[[nodiscard]] ErrorInfo connect_error(PGconn* connection, const std::string& url);

}  // namespace outbox::producer
