#include "idempotency_middleware.h"

#include <utility>

namespace orders {

using What = outbox::IdempotentAnswer::What;

HttpResponse IdempotencyMiddleware::answer(const HttpRequest& request, const std::string& scope,
                                           const std::string& request_id, const Work& work) {
    const std::string header = outbox::idempotency_key(request.idempotency_key);
    const std::string operation = request.method + " " + request.path;
    const outbox::IdempotentRequest asked{.scope = scope,
                                          .key = header.empty() ? request_id : header,
                                          .operation = operation,
                                          .body = request.body};
    outbox::IdempotentAnswer answer =
        !header.empty() && !request_id.empty() && header != request_id
            ? outbox::problem_answer(What::kRefused, 400, "Two Idempotency-Keys",
                                     "The header Idempotency-Key and request_id in the body "
                                     "differ: send one of them, or both alike.")
            : gate_.try_answer(asked, [&] { return work(asked); });
    HttpResponse response{answer.status, std::move(answer.body), std::move(answer.headers)};
    if (answer.what == What::kRunning) {
        response.ask_again_ms = gate_.next_pause_ms(request.waited_ms);
    }
    return response;
}

}  // namespace orders
