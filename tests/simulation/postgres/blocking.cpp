// What the receiving side does that stands still: statements that wait inside libpq. Here they end
// in `Lines` (--wrap of the linker).

#include <chrono>
#include <libpq-fe.h>
#include <memory>
#include <string>
#include <utility>

#include "tests/simulation/postgres/lines.h"

using outbox::simulation::Lines;

// The names are the linker's (--wrap).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
PGresult* __real_PQgetResult(PGconn*);
PGresult* __real_PQexec(PGconn*, const char*);
PGresult* __real_PQexecParams(PGconn*, const char*, int, const Oid*, const char* const*, const int*,
                              const int*, int);
PGresult* __real_PQexecPrepared(PGconn*, const char*, int, const char* const*, const int*,
                                const int*, int);
PGresult* __real_PQprepare(PGconn*, const char*, const char*, int, const Oid*);

PGresult* __wrap_PQgetResult(PGconn* connection) {
    if (Lines* lines = Lines::current(); lines != nullptr) lines->hear(connection);
    return __real_PQgetResult(connection);
}
}

using Wall = std::chrono::system_clock::time_point;
Wall real_wall() asm("__real__ZNSt6chrono3_V212system_clock3nowEv");
Wall wrapped_wall() asm("__wrap__ZNSt6chrono3_V212system_clock3nowEv");

namespace {

struct Clear {
    void operator()(PGresult* result) const { PQclear(result); }
};

// As PQexec and its like: what was left is thrown away, and the last result is given.
template <typename Send>
PGresult* last_result(PGconn* connection, Send send) {
    using Result = std::unique_ptr<PGresult, Clear>;
    for (Result left(__wrap_PQgetResult(connection)); left != nullptr;) {
        left.reset(__wrap_PQgetResult(connection));
    }
    Result last;
    if (send() == 0) return nullptr;
    for (Result next(__wrap_PQgetResult(connection)); next != nullptr;
         next.reset(__wrap_PQgetResult(connection))) {
        last = std::move(next);
        if (PQstatus(connection) != CONNECTION_OK) break;
    }
    return last.release();
}

}  // namespace

extern "C" {

PGresult* __wrap_PQexec(PGconn* connection, const char* sql) {
    if (Lines::current() == nullptr) return __real_PQexec(connection, sql);
    return last_result(connection, [&] { return PQsendQuery(connection, sql); });
}

PGresult* __wrap_PQexecParams(PGconn* connection, const char* sql, int count, const Oid* types,
                              const char* const* values, const int* lengths, const int* formats,
                              int format) {
    if (Lines::current() == nullptr) {
        return __real_PQexecParams(connection, sql, count, types, values, lengths, formats, format);
    }
    return last_result(connection, [&] {
        return PQsendQueryParams(connection, sql, count, types, values, lengths, formats, format);
    });
}

PGresult* __wrap_PQexecPrepared(PGconn* connection, const char* name, int count,
                                const char* const* values, const int* lengths, const int* formats,
                                int format) {
    if (Lines::current() == nullptr) {
        return __real_PQexecPrepared(connection, name, count, values, lengths, formats, format);
    }
    return last_result(connection, [&] {
        return PQsendQueryPrepared(connection, name, count, values, lengths, formats, format);
    });
}

PGresult* __wrap_PQprepare(PGconn* connection, const char* name, const char* sql, int count,
                           const Oid* types) {
    if (Lines::current() == nullptr) return __real_PQprepare(connection, name, sql, count, types);
    return last_result(connection,
                       [&] { return PQsendPrepare(connection, name, sql, count, types); });
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

Wall wrapped_wall() {
    const Lines* lines = Lines::current();
    return lines == nullptr ? real_wall() : Wall(std::chrono::microseconds(lines->wall_us()));
}
