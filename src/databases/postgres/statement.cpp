#include "databases/postgres/statement.h"

#include <libpq-fe.h>

namespace outbox::postgres {

Rows execute(pg_conn* connection, const char* sql) {
    return Rows(PQexec(connection, sql));
}

Rows execute(pg_conn* connection, const char* sql, const Params& params, Format format) {
    return Rows(PQexecParams(connection, sql, params.count(), params.types(), params.values(),
                             params.lengths(), params.formats(), static_cast<int>(format)));
}

Rows execute_prepared(pg_conn* connection, const char* name, const Params& params, Format format) {
    return Rows(PQexecPrepared(connection, name, params.count(), params.values(), params.lengths(),
                               params.formats(), static_cast<int>(format)));
}

bool send(pg_conn* connection, const char* sql, const Params& params, Format format) {
    return PQsendQueryParams(connection, sql, params.count(), params.types(), params.values(),
                             params.lengths(), params.formats(), static_cast<int>(format)) == 1;
}

bool send_prepared(pg_conn* connection, const char* name, const Params& params, Format format) {
    return PQsendQueryPrepared(connection, name, params.count(), params.values(), params.lengths(),
                               params.formats(), static_cast<int>(format)) == 1;
}

bool send(pg_conn* connection, const Step& step, Format format) {
    const Params none;
    const Params& params = step.params == nullptr ? none : *step.params;
    return step.prepared ? send_prepared(connection, step.statement, params, format)
                         : send(connection, step.statement, params, format);
}

}  // namespace outbox::postgres
