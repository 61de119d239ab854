#pragma once

#include <libpq-fe.h>
#include <memory>

#include "databases/postgres/errors.h"

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

using postgres::receive_error;

}  // namespace outbox::consumer
