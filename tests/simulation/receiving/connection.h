#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/consumer/idempotency.h>
#include <outbox/consumer/message.h>
#include <outbox/saga/saga.h>

namespace outbox::simulation {

using Rows = std::vector<std::vector<std::string>>;

/// A service's or an operator's connection to its database, by whichever client. The library's
/// calls throw as they do.
class Connection {
  public:
    Connection() = default;
    virtual ~Connection() = default;
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    /// False: it failed, as `error` says.
    [[nodiscard]] virtual bool run(const std::string& sql) = 0;
    [[nodiscard]] virtual std::string error() const = 0;
    /// A transaction that writes.
    [[nodiscard]] virtual bool begin() = 0;
    [[nodiscard]] virtual bool commit() { return run("COMMIT"); }
    /// Where one is open.
    virtual void roll_back() = 0;
    virtual void close() = 0;
    /// What failed is thrown.
    void must(bool done) const {
        if (!done) throw std::runtime_error(error());
    }

    virtual IdempotencyClaim claim(const IdempotentRequest& request,
                                   const ClaimOptions& options) = 0;
    virtual void complete(const IdempotentRequest& request, const IdempotencyClaim& claim,
                          const IdempotentAnswer& answer) = 0;
    virtual void release(const IdempotentRequest& request, const IdempotencyClaim& claim) = 0;
    /// With `begin` and `commit`, in one go where the client can.
    virtual IdempotencyClaim begin_and_claim(const IdempotentRequest& request) {
        must(begin());
        return claim(request, {});
    }
    virtual void complete_and_commit(const IdempotentRequest& request,
                                     const IdempotencyClaim& claim,
                                     const IdempotentAnswer& answer) {
        complete(request, claim, answer);
        must(commit());
    }
    virtual void start(const Sagas& sagas, std::string_view name, std::string data,
                       std::string id) = 0;
};

/// The transaction in which a handler applies a message, and what handlers do in it.
class OpenTransaction {
  public:
    OpenTransaction() = default;
    virtual ~OpenTransaction() = default;
    OpenTransaction(const OpenTransaction&) = delete;
    OpenTransaction& operator=(const OpenTransaction&) = delete;

    /// What fails is thrown.
    virtual void run(const std::string& sql) = 0;
    [[nodiscard]] virtual bool can_commit() = 0;
    /// A statement fails, the transaction with it, and the handler goes on.
    virtual void fail_a_statement() = 0;
    /// The handler ends its session, or its transaction where that is no session's.
    virtual void end() = 0;
    /// Ends the transaction, and begins one in its place.
    void begin_another() {
        run("ROLLBACK");
        run("BEGIN");
    }

    virtual SagaChange advance(const Sagas& sagas, const Message& message) = 0;
    virtual SagaCall begin_step(const Message& command) = 0;
    virtual void answer_step(const Message& command, Event answer) = 0;
    virtual void refuse_step(const Message& command, Event answer) = 0;
};

}  // namespace outbox::simulation
