#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <thread>

#include "core/mutex.h"

namespace outbox::consumer {

/// Ends the waiting on a server that has stopped answering, in our statements and in a handler's. A
/// statement may take as long as it likes (a lock, a slow handler); but once it has taken some
/// seconds the server is asked by another connection, and where that gets no answer either the
/// session's socket is shut down, so that the statement fails.
class LibpqWatch {
  public:
    LibpqWatch(std::string url, int connect_timeout_s)
        : url_(std::move(url)), connect_timeout_s_(connect_timeout_s) {}
    ~LibpqWatch();
    LibpqWatch(const LibpqWatch&) = delete;
    LibpqWatch& operator=(const LibpqWatch&) = delete;

    /// The session's socket, from when it is open until before it is closed (-1).
    void session(int socket);
    /// Somebody waits for the server, or nobody does.
    void busy();
    void idle();
    /// Whoever waits for the server waits no longer, and the session is lost.
    void break_off();

  private:
    void run();
    [[nodiscard]] bool answers() const;

    const std::string url_;
    const int connect_timeout_s_;
    core::Mutex mutex_;
    core::Condition changed_;
    bool stop_ OUTBOX_GUARDED_BY(mutex_) = false;
    int socket_ OUTBOX_GUARDED_BY(mutex_) = -1;
    bool busy_ OUTBOX_GUARDED_BY(mutex_) = false;
    std::uint64_t turn_ OUTBOX_GUARDED_BY(mutex_) = 0;
    std::chrono::steady_clock::time_point since_ OUTBOX_GUARDED_BY(mutex_);
    std::thread thread_;
};

}  // namespace outbox::consumer
