#include "consumer/stop_signal.h"

#include <algorithm>
#include <cerrno>
#include <limits>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <outbox/error.h>

namespace outbox::consumer {

StopSignal::StopSignal() : fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (fd_ < 0) {
        throw Error(ErrorCode::kInternal, Advice::kStop,
                    "no file descriptor is left: raise the limit (ulimit -n)");
    }
}

StopSignal::~StopSignal() {
    ::close(fd_);
}

void StopSignal::request() noexcept {
    requested_.store(true);
    const int saved = errno;
    const std::uint64_t one = 1;
    // The counter cannot be full: it is never drained, and one is enough to be heard.
    [[maybe_unused]] const auto written = ::write(fd_, &one, sizeof one);
    errno = saved;
}

void StopSignal::wait_ms(std::int64_t timeout_ms) const {
    pollfd entry{fd_, POLLIN, 0};
    ::poll(
        &entry, 1,
        static_cast<int>(std::clamp<std::int64_t>(timeout_ms, 0, std::numeric_limits<int>::max())));
}

}  // namespace outbox::consumer
