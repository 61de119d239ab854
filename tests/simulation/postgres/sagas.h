#pragma once

#include <cstddef>
#include <cstdint>
#include <libpq-fe.h>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <outbox/consumer/message.h>
#include <outbox/saga/saga.h>

#include "tests/simulation/judge.h"
#include "tests/support/pg.h"

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
    SagaDesk(World& world, Judge& judge, std::string url, const SagaSettings& settings);

    /// Begins those who start sagas.
    void start();
    /// What a handler does with the message, in its transaction. False: it is of no saga.
    bool handle(PGconn* connection, const Message& message);
    /// What the tables say. Beside the world.
    void look(test::Pg& tables);
    /// By the last look.
    [[nodiscard]] bool all_ended() const { return ended_ == settings_.sagas; }
    void finish(test::Pg& tables);
    [[nodiscard]] std::size_t completed() const { return completed_; }
    [[nodiscard]] std::size_t compensated() const { return compensated_; }

  private:
    void start_one(int number);
    void take_part(PGconn* connection, const Message& message);
    [[nodiscard]] bool refuses(const std::string& saga, const std::string& step);

    World& world_;
    Judge& judge_;
    const std::string url_;
    const SagaSettings settings_;
    const Sagas sagas_;
    std::map<std::pair<std::string, std::string>, bool> refuses_;  // saga and step
    int ended_ = 0;
    std::size_t completed_ = 0;
    std::size_t compensated_ = 0;
};

}  // namespace outbox::simulation
