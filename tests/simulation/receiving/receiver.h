#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include <outbox/consumer/mailbox.h>
#include <outbox/consumer/queue.h>

#include "consumer/workers/hub.h"
#include "mailbox/loop.h"
#include "tests/simulation/clock.h"
#include "tests/simulation/receiving/connection.h"
#include "tests/simulation/receiving/judge.h"
#include "tests/simulation/receiving/queue.h"

namespace outbox::simulation {

/// What handlers do.
using HandleMessages = std::function<void(OpenTransaction&, std::span<const Message>)>;

/// What a database gives to those who take messages from its mailbox.
struct MailboxMember {
    std::unique_ptr<consumer::MailboxStore> store;
    consumer::MailboxLoop::Handler handler;
};

/// What the members of a consumer live in.
struct ReceiversSurroundings {
    World& world;
    Judge& judge;
    ReceivingJudge& effects;
    const std::int64_t& wall_offset_us;
    /// Until when something that handlers need is away.
    const std::int64_t& needs_away_until_us;
    MailboxOptions options;
    std::function<MailboxMember(const core::Clock&, HandleMessages)> mailbox;
    /// Where messages come from in place of the mailbox; null: they do not.
    SimQueue* queue = nullptr;
    QueueConsumerOptions queue_options = {};
    std::function<consumer::MakeApplier(const QueueConsumerOptions& checked, HandleMessages)>
        appliers;
    /// What handlers do with a message that is none of an event of the judge's. False: it is one.
    std::function<bool(OpenTransaction&, const Message&)> handles_it;
    /// What may end a member, which is then started again.
    std::function<bool(int member, const ErrorInfo& error)> may_end;
};

/// One process that applies messages, with a handler that writes what it did: `MailboxLoop` over
/// the production stores, or `QueueConsumer` with its workers.
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
    void handle(OpenTransaction& transaction, std::span<const Message> messages);
    void apply(OpenTransaction& transaction, const Message& message);
    void dawdle();

    const ReceiversSurroundings& around_;
    World& world_;
    const int number_;
    SimClock clock_;
    std::function<void()> stop_;  // while it runs
    World::TaskId main_ = 0;
};

}  // namespace outbox::simulation
