#include "databases/postgres/receive/errors.h"

namespace outbox::consumer {
bool succeeded(const PGresult* result) {
    const ExecStatusType status = PQresultStatus(result);
    return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

}  // namespace outbox::consumer
