#include <array>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sys/random.h>

#include <outbox/producer/emit.h>

#include "producer/ascending_time.h"

namespace outbox {
namespace {

// The kernel's, so that a forked process does not repeat its parent's.
std::uint64_t random_bits() {
    std::uint64_t bits = 0;
    while (getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
        if (errno == EINTR) continue;
        throw Error(ErrorCode::kInternal, Advice::kStop,
                    std::string("the system gives no random bits: ") + std::strerror(errno));
    }
    return bits;
}

}  // namespace

std::string new_event_id() {
    static AscendingTime times;
    const std::uint64_t time = times.next(std::chrono::system_clock::now().time_since_epoch());
    const std::uint64_t high = (time / AscendingTime::kFractionSteps << 16U) | 0x7000U |
                               time % AscendingTime::kFractionSteps;
    const std::uint64_t low = (random_bits() & 0x3fffffffffffffffU) | 0x8000000000000000U;
    constexpr const char* kDigits = "0123456789abcdef";
    std::string id;
    id.reserve(36);
    for (unsigned nibble = 0; nibble < 32; ++nibble) {
        if (nibble == 8 || nibble == 12 || nibble == 16 || nibble == 20) id += '-';
        const std::uint64_t half = nibble < 16 ? high : low;
        id += kDigits[half >> (60U - nibble % 16U * 4U) & 0xfU];
    }
    return id;
}

}  // namespace outbox
