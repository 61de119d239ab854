#include "runtime/signals.h"

#include <cerrno>
#include <csignal>
#include <poll.h>
#include <sys/signalfd.h>
#include <system_error>
#include <unistd.h>

namespace outbox::runtime {

namespace {

sigset_t stop_signals() {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGHUP);
    return signals;
}

}  // namespace

void block_stop_signals() {
    const sigset_t signals = stop_signals();
    pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

StopSignals::StopSignals() {
    block_stop_signals();
    std::signal(SIGPIPE, SIG_IGN);
    const sigset_t signals = stop_signals();
    descriptor_ = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "signalfd");
}

StopSignals::~StopSignals() {
    close(descriptor_);
}

std::optional<int> StopSignals::wait(std::chrono::milliseconds max_wait) {
    pollfd waited{descriptor_, POLLIN, 0};
    if (poll(&waited, 1, static_cast<int>(max_wait.count())) <= 0) return std::nullopt;
    signalfd_siginfo info{};
    if (read(descriptor_, &info, sizeof(info)) != sizeof(info)) return std::nullopt;
    return static_cast<int>(info.ssi_signo);
}

}  // namespace outbox::runtime
