#pragma once

#include <functional>
#include <string>

#include <outbox/consumer/idempotency.h>

#include "http_server.h"

namespace orders {

/// Puts the header Idempotency-Key before a handler of `HttpServer`. Thread-safe.
class IdempotencyMiddleware {
  public:
    using Work = std::function<outbox::IdempotentAnswer(const outbox::IdempotentRequest&)>;

    explicit IdempotencyMiddleware(const outbox::IdempotencyOptions& options) : gate_(options) {}

    /// Answers one request. `scope`: who asks. `request_id`: the key as a field of the body, for
    /// clients that set no header; may be empty. While another request with the key is under way
    /// the server is told to ask again, so that waiting keeps neither worker nor connection.
    [[nodiscard]] HttpResponse answer(const HttpRequest& request, const std::string& scope,
                                      const std::string& request_id, const Work& work);

  private:
    outbox::Idempotency gate_;
};

}  // namespace orders
