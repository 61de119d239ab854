#include "databases/postgres/statement.h"

#include <cerrno>
#include <libpq-fe.h>
#include <poll.h>
#include <sys/socket.h>
#include <utility>
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

// Goes on until it is connected, refused, or out of time. With `cut` an address has half of what is
// left to answer at all, so that one which swallows packets leaves time for others of the URL or of
// its host: libpq goes on to them where a socket was shut down. `cut` afterwards: none was left.
PostgresPollingStatusType go_on(pg_conn* connection, steady_clock::time_point deadline, bool& cut) {
    const bool may_cut = std::exchange(cut, false);
    const auto share = [deadline] { return deadline - (deadline - steady_clock::now()) / 2; };
    auto until = share();
    auto state =
        PQstatus(connection) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
    while (state == PGRES_POLLING_READING || state == PGRES_POLLING_WRITING) {
        const bool reaching = may_cut && PQstatus(connection) == CONNECTION_STARTED;
        const bool over = !wait_for(connection, state, reaching ? until : deadline);
        cut = over && reaching;
        if (over && !reaching) return state;
        if (cut) {
            ::shutdown(PQsocket(connection), SHUT_RDWR);
            until = share();
        }
        state = PQconnectPoll(connection);
    }
    return state;
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
    const auto begin = [&] {
        Handle begun(PQconnectStartParams(names.data(), values.data(), 1));
        if (begun) PQsetErrorVerbosity(begun.get(), PQERRORS_VERBOSE);
        return begun;
    };
    in_time = true;
    Handle handle = begin();
    if (!handle) return handle;
    bool cut = true;
    auto state = go_on(handle.get(), deadline, cut);
    if (cut) {
        // There is nobody for whom time has to be left.
        handle = begin();
        if (!handle) return handle;
        cut = false;
        state = go_on(handle.get(), deadline, cut);
    }
    in_time = state == PGRES_POLLING_OK || state == PGRES_POLLING_FAILED;
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
