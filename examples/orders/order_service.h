#pragma once

#include <atomic>
#include <mutex>

#include "http_server.h"
#include "idempotency_middleware.h"
#include "store.h"

namespace orders {

/// The HTTP API over a store. Thread-safe.
class OrderService {
  public:
    static constexpr int kMaxPendingShown = 50;

    OrderService(Store& store, const outbox::IdempotencyOptions& idempotency)
        : store_(store), middleware_(idempotency) {}

    /// Creates missing tables once; until then every request tries it first.
    void prepare();

    [[nodiscard]] HttpResponse handle(const HttpRequest& request);

  private:
    [[nodiscard]] HttpResponse route(const HttpRequest& request);
    [[nodiscard]] HttpResponse create_order(const HttpRequest& request);
    [[nodiscard]] HttpResponse show_order(const std::string& id);
    [[nodiscard]] HttpResponse cancel_order(const std::string& id);
    [[nodiscard]] HttpResponse show_pending();
    [[nodiscard]] HttpResponse show_health();

    Store& store_;
    IdempotencyMiddleware middleware_;
    std::mutex prepare_mutex_;
    std::atomic<bool> prepared_ = false;
};

}  // namespace orders
