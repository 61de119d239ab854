#include "databases/postgres/statement.h"

#include <cerrno>
#include <libpq-fe.h>
#include <poll.h>
#include <vector>

namespace outbox::postgres {
namespace {

using std::chrono::steady_clock;

// False when the time is over.
bool wait_for(const PGconn* connection, PostgresPollingStatusType state,
              steady_clock::time_point deadline) {
    while (true) {
        const auto left =
            std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
        if (left.count() <= 0) return false;
        pollfd entry{PQsocket(connection),
                     static_cast<short>(state == PGRES_POLLING_READING ? POLLIN : POLLOUT), 0};
        const int ready = ::poll(&entry, 1, static_cast<int>(left.count()));
        if (ready < 0 && errno == EINTR) continue;
        return ready > 0;
    }
}

}  // namespace

void Finish::operator()(pg_conn* connection) const {
    PQfinish(connection);
}

Handle connect(std::span<const Setting> settings, std::chrono::seconds timeout, bool& in_time) {
    std::vector<const char*> names;
    std::vector<const char*> values;
    for (const Setting& setting : settings) {
        names.push_back(setting.name);
        values.push_back(setting.value);
    }
    names.push_back(nullptr);
    values.push_back(nullptr);
    const auto deadline = steady_clock::now() + timeout;
    in_time = true;
    Handle handle(PQconnectStartParams(names.data(), values.data(), 1));
    if (!handle) return handle;
    PQsetErrorVerbosity(handle.get(), PQERRORS_VERBOSE);
    auto state =
        PQstatus(handle.get()) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
        in_time = wait_for(handle.get(), state, deadline);
        if (!in_time) return handle;
        state = PQconnectPoll(handle.get());
    }
    if (state == PGRES_POLLING_OK) PQsetErrorVerbosity(handle.get(), PQERRORS_DEFAULT);
    return handle;
}

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

}  // namespace outbox::postgres
