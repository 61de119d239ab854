#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <sys/random.h>

#include <outbox/producer/emit.h>

namespace outbox {
namespace {

constexpr std::uint64_t kFractionSteps = 4096;
constexpr std::uint64_t kNanosecondsPerMillisecond = 1'000'000;

// Milliseconds and a 12-bit fraction of one, higher at each call of this process.
std::uint64_t ascending_time() {
    static std::atomic<std::uint64_t> last{0};
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const auto ns = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
    const std::uint64_t fraction =
        ns % kNanosecondsPerMillisecond * kFractionSteps / kNanosecondsPerMillisecond;
    const std::uint64_t time = ns / kNanosecondsPerMillisecond * kFractionSteps + fraction;
    std::uint64_t before = last.load(std::memory_order_relaxed);
    std::uint64_t mine = 0;
    do {
        mine = time > before ? time : before + 1;
    } while (!last.compare_exchange_weak(before, mine, std::memory_order_relaxed));
    return mine;
}

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
    const std::uint64_t time = ascending_time();
    const std::uint64_t high = (time / kFractionSteps << 16U) | 0x7000U | time % kFractionSteps;
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
