#pragma once

#include <cstdint>
#include <functional>
#include <libpq-fe.h>
#include <span>
#include <string>

#include <outbox/consumer/mailbox.h>
#include <outbox/consumer/queue.h>

#include "tests/simulation/clock.h"
#include "tests/simulation/postgres/queue.h"
#include "tests/simulation/postgres/receiving_judge.h"

namespace outbox::simulation {

/// What the members of a consumer live in.
struct ReceiversSurroundings {
    World& world;
    Judge& judge;
    ReceivingJudge& effects;
    const std::int64_t& wall_offset_us;
    /// Until when something that handlers need is away.
    const std::int64_t& needs_away_until_us;
    std::string url;
    MailboxOptions options;
    /// Where messages come from in place of the mailbox; null: they do not.
    SimQueue* queue = nullptr;
    QueueConsumerOptions queue_options = {};
    /// What handlers do with a message that is none of an event of the judge's. False: it is one.
    std::function<bool(PGconn*, const Message&)> handles_it;
};

/// One process that applies messages, with a handler that writes what it did: `MailboxLoop` over
/// PostgreSQL, or `QueueConsumer` with its workers.
class Receiver {
  public:
    Receiver(const ReceiversSurroundings& around, int number);

    void kill() { world_.kill(number_); }
    void pause(std::int64_t us) { world_.pause(number_, world_.now_us() + us); }
    void stop();
    [[nodiscard]] bool ended() const { return world_.ended(main_); }
    [[nodiscard]] int number() const { return number_; }

  private:
    void run();
    void take_from_mailbox();
    void take_from_queue();
    void tell(const ConsumerReport& report);
    void handle(PGconn* connection, std::span<const Message> messages);
    void apply(PGconn* connection, const Message& message);
    void dawdle();

    const ReceiversSurroundings& around_;
    World& world_;
    const int number_;
    SimClock clock_;
    std::function<void()> stop_;  // while it runs
    World::TaskId main_ = 0;
};

}  // namespace outbox::simulation
