#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include <outbox/consumer/message.h>
#include <outbox/saga/saga.h>

#include "core/clock.h"
#include "tests/simulation/judge.h"
#include "tests/simulation/receiving/connection.h"

namespace outbox::simulation {

/// The sagas of a history.
struct SagaSettings {
    int sagas = 0;
    std::int64_t timeout_ms = 1'000;
    std::uint32_t retries = 0;
    double refused = 0.2;  ///< Share of steps that their participant refuses.
    double slow = 0.1;     ///< Share of commands for which a participant takes long.
};

/// Orders that take stock, money and a carrier, led by a service whose participants live in the
/// same database. Each ends with all its steps done once, or with each undone that was done.
class SagaDesk {
  public:
    using Connect = std::function<std::unique_ptr<Connection>()>;

    /// `clock`: of who starts them.
    SagaDesk(World& world, Judge& judge, Connect connect, const core::Clock& clock,
             const SagaSettings& settings);

    /// Begins those who start sagas.
    void start();
    /// What a handler does with the message, in its transaction. False: it is of no saga.
    bool handle(OpenTransaction& transaction, const Message& message);
    /// Rows of id, state and steps.
    static constexpr const char* kSagas =
        "SELECT saga_id, state, steps FROM outbox_saga ORDER BY saga_id";
    void look(const Rows& sagas);
    /// By the last look.
    [[nodiscard]] bool all_ended() const { return ended_ == settings_.sagas; }
    /// Rows of saga, step and what its participant did, in order.
    static constexpr const char* kSteps = "SELECT saga, step, call FROM steps ORDER BY seq";
    void finish(const Rows& sagas, const Rows& steps);
    [[nodiscard]] std::size_t completed() const { return completed_; }
    [[nodiscard]] std::size_t compensated() const { return compensated_; }

  private:
    void start_one(int number);
    void take_part(OpenTransaction& transaction, const Message& message);
    [[nodiscard]] bool refuses(const std::string& saga, const std::string& step);

    World& world_;
    Judge& judge_;
    const Connect connect_;
    const core::Clock& clock_;
    const SagaSettings settings_;
    const Sagas sagas_;
    std::map<std::pair<std::string, std::string>, bool> refuses_;  // saga and step
    int ended_ = 0;
    std::size_t completed_ = 0;
    std::size_t compensated_ = 0;
};

}  // namespace outbox::simulation
