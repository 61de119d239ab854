#pragma once

#include <string>
#include <utility>

#include "tests/simulation/receiving/connection.h"

namespace outbox::simulation {

/// The library's calls with the handle of a client, whose adapters are to be included.
template <typename Handle>
class ServicesCalls : public Connection {
  public:
    IdempotencyClaim claim(const IdempotentRequest& request, const ClaimOptions& options) override {
        return claim_key(handle(), request, options);
    }
    void complete(const IdempotentRequest& request, const IdempotencyClaim& claim,
                  const IdempotentAnswer& answer) override {
        complete_key(handle(), request, claim, answer);
    }
    void release(const IdempotentRequest& request, const IdempotencyClaim& claim) override {
        release_key(handle(), request, claim);
    }
    void start(const Sagas& sagas, std::string_view name, std::string data,
               std::string id) override {
        start_saga(handle(), sagas, name, std::move(data), std::move(id));
    }

  protected:
    [[nodiscard]] virtual Handle* handle() = 0;
};

template <typename Handle>
class HandlersCalls : public OpenTransaction {
  public:
    explicit HandlersCalls(Handle* handle) : handle_(handle) {}
    SagaChange advance(const Sagas& sagas, const Message& message) override {
        return advance_saga(handle_, sagas, message);
    }
    SagaCall begin_step(const Message& command) override {
        return begin_saga_step(handle_, command);
    }
    void answer_step(const Message& command, Event answer) override {
        answer_saga_step(handle_, command, std::move(answer));
    }
    void refuse_step(const Message& command, Event answer) override {
        refuse_saga_step(handle_, command, std::move(answer));
    }

  protected:
    Handle* const handle_;
};

}  // namespace outbox::simulation
