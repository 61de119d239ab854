// Threads of the processes of a world, their sleeps and their waits for one another: here they are
// its tasks (--wrap of the linker, see CMakeLists.txt), so that code that has threads runs as it
// is. A thread is a task of the process that begins it: it is paused and killed with it.

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <ctime>
#include <exception>
#include <map>
#include <memory>
#include <pthread.h>
#include <set>
#include <thread>
#include <utility>

#include "tests/simulation/world.h"

using outbox::simulation::Killed;
using outbox::simulation::kMs;
using outbox::simulation::kNever;
using outbox::simulation::kSecond;
using outbox::simulation::World;

// The names are the linker's (--wrap).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
int __real_nanosleep(const timespec*, timespec*);
int __real_pthread_cond_clockwait(pthread_cond_t*, pthread_mutex_t*, clockid_t, const timespec*);
}

void real_start(std::thread* thread, std::thread::_State_ptr state, void (*depend)()) asm(
    "__real__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE");
void wrapped_start(std::thread* thread, std::thread::_State_ptr state, void (*depend)()) asm(
    "__wrap__ZNSt6thread15_M_start_threadESt10unique_ptrINS_6_StateESt14default_deleteIS1_EEPFvvE");
void real_join(std::thread* thread) asm("__real__ZNSt6thread4joinEv");
void wrapped_join(std::thread* thread) asm("__wrap__ZNSt6thread4joinEv");
void real_detach(std::thread* thread) asm("__real__ZNSt6thread6detachEv");
void wrapped_detach(std::thread* thread) asm("__wrap__ZNSt6thread6detachEv");
void real_wait(std::condition_variable* one, std::unique_lock<std::mutex>& lock) asm(
    "__real__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
void wrapped_wait(std::condition_variable* one, std::unique_lock<std::mutex>& lock) asm(
    "__wrap__ZNSt18condition_variable4waitERSt11unique_lockISt5mutexE");
void real_notify(std::condition_variable* one) asm(
    "__real__ZNSt18condition_variable10notify_allEv");
void wrapped_notify(std::condition_variable* one) asm(
    "__wrap__ZNSt18condition_variable10notify_allEv");
void real_notify_one(std::condition_variable* one) asm(
    "__real__ZNSt18condition_variable10notify_oneEv");
void wrapped_notify_one(std::condition_variable* one) asm(
    "__wrap__ZNSt18condition_variable10notify_oneEv");

using Steady = std::chrono::steady_clock::time_point;
Steady real_now() asm("__real__ZNSt6chrono3_V212steady_clock3nowEv");
Steady wrapped_now() asm("__wrap__ZNSt6chrono3_V212steady_clock3nowEv");

namespace {

// Less than the real one shows, to which real waits of no time go.
constexpr std::int64_t kBootedUs = 10 * kSecond;

// Tasks by what they wait for.
std::map<const void*, std::set<World::TaskId>> waiting;

// A task that is killed lets go of the mutex once more than it takes it (core::Condition): nobody
// of its process is left to mind.
void wait_until(World& world, const void* condition, pthread_mutex_t* mutex,
                std::int64_t until_us) {
    const World::TaskId task = world.current();
    pthread_mutex_unlock(mutex);
    waiting[condition].insert(task);
    const std::shared_ptr<void> back(nullptr, [&](void*) {
        const auto found = waiting.find(condition);
        found->second.erase(task);
        if (found->second.empty()) waiting.erase(found);
        pthread_mutex_lock(mutex);
    });
    world.sleep_until(until_us);
}

}  // namespace

extern "C" {

int __wrap_nanosleep(const timespec* time, timespec* left) {
    World* world = World::moving();
    if (world == nullptr) return __real_nanosleep(time, left);
    // Destructors of what is killed may sleep, which must not throw.
    const bool unwinds = world->dying() && std::uncaught_exceptions() > 0;
    if (!unwinds) world->sleep(time->tv_sec * kSecond + time->tv_nsec / 1'000);
    return 0;
}

int __wrap_pthread_cond_clockwait(pthread_cond_t* condition, pthread_mutex_t* mutex,
                                  clockid_t clock, const timespec* until) {
    World* world = World::moving();
    if (world == nullptr) return __real_pthread_cond_clockwait(condition, mutex, clock, until);
    const std::int64_t until_us = until->tv_sec * kSecond + until->tv_nsec / 1'000 - kBootedUs;
    wait_until(*world, condition, mutex, until_us);
    return world->now_us() >= until_us ? ETIMEDOUT : 0;
}

}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)

void wrapped_wait(std::condition_variable* one, std::unique_lock<std::mutex>& lock) {
    World* world = World::moving();
    if (world == nullptr) return real_wait(one, lock);
    wait_until(*world, one->native_handle(), lock.mutex()->native_handle(), kNever);
}

void wrapped_notify(std::condition_variable* one) {
    World* world = World::moving();
    if (world == nullptr) return real_notify(one);
    const auto found = waiting.find(one->native_handle());
    if (found == waiting.end()) return;
    for (const World::TaskId task : found->second) world->wake(task);
}

void wrapped_notify_one(std::condition_variable* one) {
    if (World::moving() != nullptr) return wrapped_notify(one);
    real_notify_one(one);
}

// The thread's id is the number of its task.
void wrapped_start(std::thread* thread, std::thread::_State_ptr state, void (*depend)()) {
    World* world = World::moving();
    if (world == nullptr) return real_start(thread, std::move(state), depend);
    const std::shared_ptr<std::thread::_State> body(state.release());  // a task's is copied
    const World::TaskId task = world->spawn(world->group(), "thread", [body] { body->_M_run(); });
    const std::thread::native_handle_type id = task + 1;
    static_assert(sizeof id == sizeof *thread);
    std::memcpy(static_cast<void*>(thread), &id, sizeof id);
}

// The threads of a process that is killed have ended before those that began them.
void wrapped_join(std::thread* thread) {
    World* world = World::moving();
    if (world == nullptr) return real_join(thread);
    const World::TaskId task = thread->native_handle() - 1;
    try {
        while (!world->ended(task)) world->sleep(kMs);
    } catch (const Killed&) {
        // Destructors join, which must not throw: it dies where it sleeps next.
        world->trace("killed as it waits for a thread");
    }
    std::memset(static_cast<void*>(thread), 0, sizeof *thread);
}

void wrapped_detach(std::thread* thread) {
    if (World::moving() == nullptr) return real_detach(thread);
    std::memset(static_cast<void*>(thread), 0, sizeof *thread);
}

Steady wrapped_now() {
    const World* world = World::moving();
    return world == nullptr ? real_now()
                            : Steady(std::chrono::microseconds(kBootedUs + world->now_us()));
}
