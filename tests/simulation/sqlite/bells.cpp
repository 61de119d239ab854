// Where consumers wait for a descriptor (--wrap of the linker): they look at it now and then, in
// simulated time.

#include <algorithm>
#include <cstdint>
#include <exception>
#include <poll.h>

#include "tests/simulation/world.h"

using outbox::simulation::kMs;
using outbox::simulation::kNever;
using outbox::simulation::World;

// The names are the linker's (--wrap).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
int __real_poll(pollfd*, nfds_t, int);

int __wrap_poll(pollfd* entries, nfds_t count, int timeout_ms) {
    constexpr std::int64_t kLook = 20 * kMs;
    World* world = World::moving();
    if (world == nullptr) return __real_poll(entries, count, timeout_ms);
    const std::int64_t until_us = timeout_ms < 0 ? kNever : world->now_us() + timeout_ms * kMs;
    while (true) {
        const int ready = __real_poll(entries, count, 0);
        // Destructors of what is killed may wait, which must not throw.
        const bool unwinds = world->dying() && std::uncaught_exceptions() > 0;
        if (ready != 0 || world->now_us() >= until_us || unwinds) return ready;
        world->sleep(std::min(kLook, until_us - world->now_us()));
    }
}
}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
