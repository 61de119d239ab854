// What the receiving side does that stands still: statements that wait inside libpq, threads, and
// waits for each other. Here they end in `Lines` and in tasks of the world (--wrap of the linker).
// A thread is a task of the process that begins it: it is paused and killed with it.

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <libpq-fe.h>
#include <map>
#include <memory>
#include <pthread.h>
#include <set>
#include <string>
#include <sys/random.h>
#include <thread>
#include <utility>

#include "tests/simulation/postgres/lines.h"

using outbox::simulation::Killed;
using outbox::simulation::kMs;
using outbox::simulation::Lines;
using outbox::simulation::World;

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
ssize_t __real_getrandom(void*, size_t, unsigned);
int __real_pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);

PGresult* __wrap_PQgetResult(PGconn* connection) {
    if (Lines* lines = Lines::current(); lines != nullptr) lines->hear(connection);
    return __real_PQgetResult(connection);
}
}

void real_start(std::thread* thread, std::thread::_State_ptr state, void (*depend)()) asm(
    "__real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE");
void wrapped_start(std::thread* thread, std::thread::_State_ptr state, void (*depend)()) asm(
    "__wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE");
void real_join(std::thread* thread) asm("__real__ZNSt6thread4joinEv");
void wrapped_join(std::thread* thread) asm("__wrap__ZNSt6thread4joinEv");
void real_detach(std::thread* thread) asm("__real__ZNSt6thread6detachEv");
void wrapped_detach(std::thread* thread) asm("__wrap__ZNSt6thread6detachEv");
void real_notify(std::condition_variable* one) asm(
    "__real__ZNSt18condition_variable10notify_allEv");
void wrapped_notify(std::condition_variable* one) asm(
    "__wrap__ZNSt18condition_variable10notify_allEv");
void real_notify_one(std::condition_variable* one) asm(
    "__real__ZNSt18condition_variable10notify_oneEv");
void wrapped_notify_one(std::condition_variable* one) asm(
    "__wrap__ZNSt18condition_variable10notify_oneEv");

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

// Tasks by what they wait for.
std::map<const void*, std::set<World::TaskId>> waiting;

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

// What ids of events are made of.
ssize_t __wrap_getrandom(void* to, size_t size, unsigned flags) {
    const Lines* lines = Lines::current();
    if (lines == nullptr || size != sizeof(std::uint64_t)) {
        return __real_getrandom(to, size, flags);
    }
    const std::uint64_t bits = lines->id_bits();
    std::memcpy(to, &bits, sizeof bits);
    return sizeof bits;
}

// A task that is killed lets go of the mutex once more than it takes it (core::Condition): nobody
// of its process is left to mind.
int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until) {
    Lines* lines = Lines::current();
    if (lines == nullptr) return __real_pthread_cond_clockwait(condition, mutex, clock, until);
    World& world = lines->world();
    const World::TaskId task = world.current();
    pthread_mutex_unlock(mutex);
    waiting[condition].insert(task);
    const std::shared_ptr<void> back(nullptr, [&](void*) {
        const auto found = waiting.find(condition);
        found->second.erase(task);
        if (found->second.empty()) waiting.erase(found);
        pthread_mutex_lock(mutex);
    });
    const std::int64_t until_us = Lines::time_us(*until);
    world.sleep_until(until_us);
    return world.now_us() >= until_us ? ETIMEDOUT : 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

Wall wrapped_wall() {
    const Lines* lines = Lines::current();
    return lines == nullptr ? real_wall() : Wall(std::chrono::microseconds(lines->wall_us()));
}

void wrapped_notify(std::condition_variable* one) {
    if (const Lines* lines = Lines::current(); lines != nullptr) {
        const auto found = waiting.find(one->native_handle());
        if (found == waiting.end()) return;
        for (const World::TaskId task : found->second) lines->world().wake(task);
        return;
    }
    real_notify(one);
}

void wrapped_notify_one(std::condition_variable* one) {
    if (Lines::current() != nullptr) return wrapped_notify(one);
    real_notify_one(one);
}

// The thread's id is the number of its task.
void wrapped_start(std::thread* thread, std::thread::_State_ptr state, void (*depend)()) {
    const Lines* lines = Lines::current();
    if (lines == nullptr) return real_start(thread, std::move(state), depend);
    World& world = lines->world();
    const std::shared_ptr<std::thread::_State> body(state.release());  // a task's is copied
    const World::TaskId task = world.spawn(world.group(), "thread", [body] { body->_M_run(); });
    const std::thread::native_handle_type id = task + 1;
    static_assert(sizeof id == sizeof *thread);
    std::memcpy(static_cast<void*>(thread), &id, sizeof id);
}

// The threads of a process that is killed have ended before those that began them.
void wrapped_join(std::thread* thread) {
    const Lines* lines = Lines::current();
    if (lines == nullptr) return real_join(thread);
    const World::TaskId task = thread->native_handle() - 1;
    World& world = lines->world();
    try {
        while (!world.ended(task)) world.sleep(kMs);
    } catch (const Killed&) {
        // Destructors join, which must not throw: it dies where it sleeps next.
        world.trace("killed as it waits for a thread");
    }
    std::memset(static_cast<void*>(thread), 0, sizeof *thread);
}

void wrapped_detach(std::thread* thread) {
    if (Lines::current() == nullptr) return real_detach(thread);
    std::memset(static_cast<void*>(thread), 0, sizeof *thread);
}
