#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <outbox/consumer/mailbox.h>
#include <outbox/limits.h>

namespace outbox {

namespace consumer {
class Inlet;
}  // namespace consumer

/// How a `QueueConsumer` applies what its queue hands out. Copied by the function that makes one,
/// which throws `Error` kConfigInvalid for values out of range. Limits hold for one member.
struct QueueConsumerOptions {
    std::string consumer;  ///< The inbox's name for us; the same for all members.

    MessageFormat format = MessageFormat::kAuto;

    /// Where payloads are that messages refer to.
    ClaimStore claims = {};

    /// Who is told of what is applied, for tracing.
    SpanExport spans = {};

    std::size_t workers = 2;  ///< Threads, each with a connection. Messages of a key go to one.
    std::size_t transaction_size = 100;  ///< Messages in one transaction; see MailboxOptions.
    /// Messages taken and not finished; then no more are taken. As many more may wait behind
    /// failing ones of their keys.
    std::size_t max_in_flight = 1'000;
    std::size_t max_in_flight_bytes = std::size_t{16} << 20;
    std::uint32_t max_attempts = 5;
    std::int64_t retry_base_ms = 200;
    std::int64_t retry_max_ms = 60'000;
    /// A message whose handler was begun more often than this and did not come to an end is what
    /// ends its members, and goes to the dead letters untried. 0: none does. Above 3 deliveries,
    /// however they ended, a message is applied by itself, while nothing else is under way, and
    /// what its handler does is written down (outbox_inbox_begun): what the broker counts as
    /// deliveries (restarts, lost connections) gives nothing up.
    std::uint32_t max_deliveries = 20;
    int connect_timeout_s = kConnectTimeoutS;
    std::int64_t inbox_retention_s = 0;  ///< As MailboxOptions.

    /// One call at a time, from any of the consumer's threads; must not throw. kActive and
    /// kDisconnected say that the broker answers, or is away; the latter also for the database.
    std::function<void(const ConsumerReport&)> on_report = {};
};

/// A queue of a broker, for a `QueueConsumer`. Made by the broker's function, `rabbitmq_queue`
/// (outbox/consumer/rabbitmq.h), `redis_queue` (outbox/consumer/redis.h) or `nats_queue`
/// (outbox/consumer/nats.h), which needs the library of that broker to be linked.
struct Queue {
    struct Limits {
        std::size_t messages = 0;  ///< Taken and not acknowledged.
        std::chrono::milliseconds connect_timeout{};
    };
    std::function<std::unique_ptr<consumer::Inlet>(const Limits&)> open;
};

/// Applies the messages of a broker's queue, each exactly once in effect: effect and inbox row are
/// one transaction of the consumer's database, and only after its commit the broker is told that
/// the message is done. A message that comes again, since that word was lost, is dropped by the
/// inbox.
///
/// Messages of a key that come to one member are applied in the order in which they came, several
/// keys at the same time. Failures as `MailboxConsumer`: a key whose message failed waits, others
/// go on; after `max_attempts`, and at once for a message without an id or with advice dead_letter,
/// it goes to outbox_inbox_dead_letters. A message without an id, or with one that a database
/// cannot keep, has a name made of its content there.
///
/// Members: any number, in any number of processes; the broker shares the messages out among them.
/// Then a key's messages may go to several members at the same time: keys keep their order only
/// where the broker gives all to one member at a time, as its function says.
///
/// Made by `libpq_queue_consumer` or `sqlite_queue_consumer` (outbox/adapters/). Thread safety:
/// `stop`, `stats` and `lag` from any thread; the rest from one.
class QueueConsumer {
  public:
    class Impl;
    explicit QueueConsumer(std::unique_ptr<Impl> impl);
    QueueConsumer(QueueConsumer&& other) noexcept;
    QueueConsumer& operator=(QueueConsumer&& other) noexcept;
    ~QueueConsumer();

    /// Blocks until `stop`: transactions under way are finished and told, what was taken beside
    /// them goes back to the queue. Once only. Throws `Error` when the database cannot be used at
    /// the start, and what a handler throws with advice `stop`; later what a person has to mend.
    /// Database and broker lost later are tried for ever, as is a broker that is not there at
    /// first.
    void run();

    /// Ends `run`. Safe in a signal handler that does not outlive the consumer.
    void stop() noexcept;

    [[nodiscard]] ConsumerStats stats() const noexcept;

    /// Messages in the queue and in our hands, as of the last look, which is every 5 s. Nothing:
    /// the broker does not know (Redis, for a group whose place was set or whose stream lost
    /// entries).
    [[nodiscard]] std::optional<std::int64_t> lag() const noexcept;

  private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace outbox
