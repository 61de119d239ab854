// What ids of events are made of (--wrap of the linker): the world numbers them.

#include <cstdint>
#include <cstring>
#include <sys/random.h>

#include "tests/simulation/world.h"

using outbox::simulation::World;

// The names are the linker's (--wrap).
// NOLINTBEGIN(bugprone-reserved-identifier,readability-identifier-naming)
extern "C" {
ssize_t __real_getrandom(void*, size_t, unsigned);

ssize_t __wrap_getrandom(void* to, size_t size, unsigned flags) {
    const World* world = World::moving();
    if (world == nullptr || !world->makes_ids() || size != sizeof(std::uint64_t)) {
        return __real_getrandom(to, size, flags);
    }
    const std::uint64_t bits = world->id_bits();
    std::memcpy(to, &bits, sizeof bits);
    return sizeof bits;
}
}  // extern "C"
// NOLINTEND(bugprone-reserved-identifier,readability-identifier-naming)
