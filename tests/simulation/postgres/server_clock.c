/* Loaded into the server of the simulation (LD_PRELOAD): its clock is the simulation's, its timers
   and its sleeps are ended by nobody but it, and it says when it sleeps. */
#define _GNU_SOURCE /* NOLINT(bugprone-reserved-identifier): the C library's */
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "tests/simulation/postgres/server_clock.h"

static struct ServerClock* shared;
static struct ServerSlot* own;
static int64_t own_pid;
static int64_t epoll_pid;
static int lock_epoll; /* what it waits on where it waits for no client */
static int client_epoll = -1; /* what waits for its client to read */
static int client_fd = -1;
static void (*alarm_handler)(int);

__attribute__((constructor)) static void map_clock(void) {
    const char* path = getenv("OUTBOX_SERVER_CLOCK");
    if (path == NULL) return;
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return;
    void* mapped =
        mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED) shared = mapped;
}

/* A child of the postmaster has a slot of its own. */
static struct ServerSlot* own_slot(void) {
    if (shared == NULL) return NULL;
    const int64_t pid = getpid();
    if (pid == own_pid) return own;
    own_pid = pid;
    own = NULL;
    for (int i = 0; i < kServerSlots; ++i) {
        int64_t free = 0;
        if (!atomic_compare_exchange_strong(&shared->slots[i].pid, &free, pid)) continue;
        own = &shared->slots[i];
        break;
    }
    return own;
}

int gettimeofday(struct timeval* time, void* zone) {
    const int64_t now_us = shared == NULL ? 0 : atomic_load(&shared->wall_us);
    if (now_us == 0) {
        struct timespec real;
        static int (*real_clock)(clockid_t, struct timespec*);
        if (real_clock == NULL) real_clock = dlsym(RTLD_NEXT, "clock_gettime");
        if (real_clock(CLOCK_REALTIME, &real) != 0) return -1;
        time->tv_sec = real.tv_sec;
        time->tv_usec = real.tv_nsec / 1000;
        return 0;
    }
    (void)zone;
    time->tv_sec = now_us / 1000000;
    time->tv_usec = now_us % 1000000;
    return 0;
}

int clock_gettime(clockid_t clock, struct timespec* time) {
    static int (*real)(clockid_t, struct timespec*);
    if (real == NULL) real = dlsym(RTLD_NEXT, "clock_gettime");
    const int64_t now_us = shared == NULL ? 0 : atomic_load(&shared->wall_us);
    if (clock != CLOCK_REALTIME || now_us == 0) return real(clock, time);
    time->tv_sec = now_us / 1000000;
    time->tv_nsec = now_us % 1000000 * 1000;
    return 0;
}

/* All its timeouts are on one timer. It goes off when the simulation says so. */
int setitimer(__itimer_which_t which, const struct itimerval* value, struct itimerval* old) {
    static int (*real)(__itimer_which_t, const struct itimerval*, struct itimerval*);
    if (real == NULL) real = dlsym(RTLD_NEXT, "setitimer");
    struct ServerSlot* slot = which == ITIMER_REAL ? own_slot() : NULL;
    const int64_t now_us = slot == NULL ? 0 : atomic_load(&shared->wall_us);
    if (now_us == 0) return real(which, value, old);
    if (old != NULL) memset(old, 0, sizeof *old);
    const int64_t after_us = value->it_value.tv_sec * 1000000 + value->it_value.tv_usec;
    atomic_store(&slot->due_us, after_us == 0 ? 0 : now_us + after_us);
    return 0;
}

static void on_alarm(int signal) {
    struct ServerSlot* slot = own_slot();
    if (slot != NULL) atomic_store(&slot->asleep, 0);
    alarm_handler(signal);
    if (slot != NULL) atomic_fetch_add(&slot->alarms, 1);
}

int sigaction(int signal, const struct sigaction* action, struct sigaction* old) {
    static int (*real)(int, const struct sigaction*, struct sigaction*);
    if (real == NULL) real = dlsym(RTLD_NEXT, "sigaction");
    if (signal != SIGALRM || action == NULL || shared == NULL || action->sa_handler == SIG_IGN ||
        action->sa_handler == SIG_DFL) {
        return real(signal, action, old);
    }
    alarm_handler = action->sa_handler;
    struct sigaction ours = *action;
    ours.sa_handler = on_alarm;
    return real(signal, &ours, old);
}

static void await_turn(struct ServerSlot* slot) {
    const struct timespec moment = {0, 20000};
    atomic_store(&slot->turn, 0);
    atomic_store(&slot->waits, 1);
    while (!atomic_load(&slot->turn)) nanosleep(&moment, NULL);
}

/* SetLatch of another process. A commit wakes who sends the log before others see its rows. */
int kill(pid_t pid, int signal) {
    static int (*real)(pid_t, int);
    if (real == NULL) real = dlsym(RTLD_NEXT, "kill");
    struct ServerSlot* woken = NULL;
    for (int i = 0; signal == SIGURG && shared != NULL && i < kServerSlots; ++i) {
        if (atomic_load(&shared->slots[i].pid) != pid) continue;
        woken = &shared->slots[i];
        atomic_fetch_add(&woken->wakes, 1);
        break;
    }
    const int result = real(pid, signal);
    struct ServerSlot* slot = woken == NULL ? NULL : own_slot();
    if (slot != NULL && atomic_load(&woken->streams) && atomic_load(&slot->lingers)) {
        atomic_store(&slot->lingers, 0);
        await_turn(slot);
    }
    return result;
}

int epoll_ctl(int epoll, int change, int fd, struct epoll_event* event) {
    static int (*real)(int, int, int, struct epoll_event*);
    if (real == NULL) real = dlsym(RTLD_NEXT, "epoll_ctl");
    if (event != NULL && (event->events & EPOLLOUT) != 0) {
        client_epoll = epoll;
        client_fd = fd;
    } else if (epoll == client_epoll && fd == client_fd) {
        client_epoll = -1;
    }
    return real(epoll, change, fd, event);
}

/* Until there is something to do, or the simulation wants it to look. */
static int sleep_well(struct ServerSlot* slot, int epoll, struct epoll_event* events, int most,
                      int timeout, const sigset_t* mask) {
    if (!atomic_load(&slot->writes)) return epoll_pwait(epoll, events, most, timeout, mask);
    while (1) {
        const uint64_t asked = atomic_load(&slot->asked);
        const int count = epoll_pwait(epoll, events, most, 1, mask);
        if (count != 0) return count;
        atomic_store(&slot->looked, asked);
    }
}

/* The first that a process makes is for its latch alone (InitializeLatchWaitSet). */
int epoll_create1(int flags) {
    static int (*real)(int);
    if (real == NULL) real = dlsym(RTLD_NEXT, "epoll_create1");
    const int made = real(flags);
    if (epoll_pid != getpid()) {
        epoll_pid = getpid();
        lock_epoll = made;
    }
    return made;
}

int epoll_wait(int epoll, struct epoll_event* events, int most, int timeout) {
    static int (*real)(int, struct epoll_event*, int, int);
    if (real == NULL) real = dlsym(RTLD_NEXT, "epoll_wait");
    struct ServerSlot* slot = timeout == 0 ? NULL : own_slot();
    if (slot == NULL) return real(epoll, events, most, timeout);
    /* An alarm comes while it is asleep in the kernel, or later. */
    sigset_t alarm;
    sigset_t before;
    sigemptyset(&alarm);
    sigaddset(&alarm, SIGALRM);
    sigprocmask(SIG_BLOCK, &alarm, &before);
    const int64_t now_us = atomic_load(&shared->wall_us);
    if (timeout > 0 && now_us != 0) {
        atomic_store(&slot->wait_us, now_us + (int64_t)timeout * 1000);
        timeout = -1;
    }
    const uint64_t seen = atomic_load(&slot->wakes);
    int count = real(epoll, events, most, 0);
    if (count == 0) {
        atomic_store(&slot->seen, seen);
        atomic_store(&slot->reads, epoll != lock_epoll);
        atomic_store(&slot->writes, epoll == client_epoll);
        atomic_store(&slot->asleep, 1);
        count = sleep_well(slot, epoll, events, most, timeout, &before);
        atomic_store(&slot->asleep, 0);
    }
    const int error = errno;
    atomic_store(&slot->wait_us, 0);
    if (count != 0 && epoll == lock_epoll && atomic_load(&slot->gated)) await_turn(slot);
    sigprocmask(SIG_SETMASK, &before, NULL);
    errno = error;
    return count;
}
