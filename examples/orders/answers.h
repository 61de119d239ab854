#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "event_loop.h"
#include "order_service.h"

namespace orders {

/// Applies the answers of the other services, on threads of its own beside the HTTP server.
class Answers {
  public:
    /// Begins when the service's database is there. The service must outlive this.
    Answers(OrderService& service, EventLoop& loop);
    /// Finishes what is under way.
    ~Answers();
    Answers(const Answers&) = delete;
    Answers& operator=(const Answers&) = delete;

    /// It cannot go on, said why, and told the process to end (SIGTERM).
    [[nodiscard]] bool failed() const { return failed_; }

  private:
    void run();
    [[nodiscard]] bool prepared();

    OrderService& service_;
    EventLoop& loop_;
    std::mutex mutex_;
    std::condition_variable stopped_;
    bool stopping_ = false;
    std::atomic<bool> failed_ = false;
    std::thread thread_;
};

}  // namespace orders
