#include "databases/postgres/receive/watch.h"

#include <sys/socket.h>

#include "databases/postgres/client.h"
#include "databases/postgres/errors.h"

namespace outbox::consumer {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{5};
constexpr std::chrono::seconds kLook{1};

}  // namespace

LibpqWatch::~LibpqWatch() {
    {
        const core::Lock lock(mutex_);
        stop_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
}

void LibpqWatch::session(int socket) {
    const core::Lock lock(mutex_);
    socket_ = socket;
    if (socket >= 0 && !thread_.joinable()) thread_ = std::thread([this] { run(); });
}

void LibpqWatch::busy() {
    const core::Lock lock(mutex_);
    busy_ = true;
    ++turn_;
    since_ = steady_clock::now();
}

void LibpqWatch::idle() {
    const core::Lock lock(mutex_);
    busy_ = false;
}

void LibpqWatch::break_off() {
    const core::Lock lock(mutex_);
    if (socket_ >= 0) ::shutdown(socket_, SHUT_RDWR);
}

void LibpqWatch::run() {
    core::Lock lock(mutex_);
    while (!stop_) {
        changed_.wait_for(mutex_, kLook, [this]() OUTBOX_REQUIRES(mutex_) { return stop_; });
        if (stop_ || !busy_ || socket_ < 0 || steady_clock::now() - since_ < kPatience) continue;
        const std::uint64_t turn = turn_;
        lock.unlock();
        const bool is_there = answers();
        lock.lock();
        if (!busy_ || turn_ != turn || socket_ < 0) continue;
        if (is_there) {
            since_ = steady_clock::now();
        } else {
            ::shutdown(socket_, SHUT_RDWR);
        }
    }
}

// Any answer counts, a refusal with a reason as well.
bool LibpqWatch::answers() const {
    constexpr postgres::Setting kName[] = {
        {"fallback_application_name", "outbox consumer's watch"}};
    postgres::Client probe;
    const std::chrono::seconds timeout(connect_timeout_s_);
    if (!probe.connect(url_, timeout, kName).ok()) return true;  // our own trouble
    return probe.in_time() && (probe.sound() || !postgres::sqlstate_in(probe.message()).empty());
}

}  // namespace outbox::consumer
