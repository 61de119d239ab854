#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <outbox/consumer/claims.h>
#include <outbox/consumer/message.h>
#include <outbox/consumer/message_format.h>
#include <outbox/consumer/spans.h>
#include <outbox/error.h>
#include <outbox/limits.h>

namespace outbox {

/// What a consumer reports while it goes on.
struct ConsumerReport {
    enum class What : std::uint8_t {
        kApplied,       ///< The message was handled and its transaction is committed.
        kRepeat,        ///< The message was dropped: the inbox knew its id.
        kRetry,         ///< The message failed and is tried again; its key waits, others go on.
        kDeadLetter,    ///< The message was moved to outbox_inbox_dead_letters.
        kDisconnected,  ///< The database fails; nothing counts; tried again. Once per change.
        kConnected,     ///< The database answers again.
        kStandby,       ///< Another member holds the mailbox; this one waits.
        kActive,        ///< This member holds the mailbox.
        kPruneFailed,   ///< Old ids could not be removed; tried again. Once per change.
        kQuarantined,   ///< Kafka: a partition is not read, since its log is not the one whose
                        ///< offset is stored; the error says what to do.
        kLogChanged     ///< Kafka, mode kInbox: records went before they were read, or the topic
                        ///< was made anew; the partition is read from its beginning.
    };
    What what = What::kRetry;
    ErrorInfo
        error;  ///< Set for kRetry, kDeadLetter, kDisconnected and those from kPruneFailed on.
    const Message* message = nullptr;  ///< For the first four; valid during the call.
};

/// Which mailbox a `MailboxConsumer` applies, and how. Copied by the function that makes one, which
/// throws `Error` kConfigInvalid for values out of range.
struct MailboxOptions {
    std::string mailbox = "default";  ///< `?mailbox=` of the sink's URL.
    std::string consumer;             ///< The inbox's name for us; empty: the mailbox's name.
    MessageFormat format = MessageFormat::kAuto;

    /// Where payloads are that messages refer to.
    ClaimStore claims = {};

    /// Who is told of what is applied, for tracing.
    SpanExport spans = {};

    std::uint32_t max_attempts = 5;  ///< Then the message goes to the dead letters.
    std::int64_t retry_base_ms = 200;
    std::int64_t retry_max_ms = 60'000;
    std::int64_t poll_busy_ms = 1;    ///< First wait when the mailbox is empty; doubles up to
    std::int64_t poll_idle_ms = 100;  ///< this one.
    /// Messages applied in one transaction. Above 1 a transaction that fails is rolled back and its
    /// messages are applied one by one, so that only the guilty one counts.
    std::size_t transaction_size = 1;
    std::size_t batch_size = 500;          ///< Messages read at a time, at most 1 MiB of payload.
    std::size_t max_failing_keys = 1'000;  ///< At the limit nothing is read until one is due.
    int connect_timeout_s = kConnectTimeoutS;

    /// Above 0: this consumer's ids older than this are removed while `run` runs, by a thread and a
    /// connection of its own, and its messages from before are quarantined (see docs/receiving.md
    /// for how long it must be); at least 7200. 0: that is left to `outbox prune`, as are sagas.
    /// Expired Idempotency-Keys go as well where the user may.
    std::int64_t inbox_retention_s = 0;

    /// Called on the consumer's thread; must not throw. For logs.
    std::function<void(const ConsumerReport&)> on_report = {};
};

/// Figures since the consumer was made.
struct ConsumerStats {
    std::uint64_t applied = 0;    ///< Handled for the first time and committed.
    std::uint64_t repeats = 0;    ///< Dropped because the inbox knew the id.
    std::uint64_t failed = 0;     ///< Attempts that counted.
    std::uint64_t dead = 0;       ///< Moved to the dead letters.
    std::uint64_t conflicts = 0;  ///< Transactions run again after 40001 or 40P01.
};

/// Applies the messages of one mailbox, each exactly once in effect.
///
/// Per message one transaction: remove it from the mailbox, enter its id in the inbox, call the
/// handler, commit. A repeat does not reach the handler. Messages of one key are handled in the
/// order of their positions.
///
/// A handler that throws is rolled back. `Error` with advice `dead_letter` gives up at once,
/// `retry_destination` waits without counting (something the handler needs is down), `stop` ends
/// `run` with that error; everything else counts, waits (exponential, with jitter) and is given up
/// after `max_attempts`. Meanwhile later messages of that key wait, those of other keys go on;
/// a message without a key delays no other. Serialization failures and deadlocks (40001, 40P01) are
/// run again at once and do not count. Dead letters with `retry_requested_at` are tried once more,
/// outside the order of their key.
///
/// Members: any number of consumers may be started on one mailbox, in any number of processes. One
/// holds it, by a lock that ends with its database session (PostgreSQL: advisory lock; SQLite: a
/// lock on FILE-outbox-mailbox-lease); the others stand by and take over when it ends. So a key's
/// order holds across members, and one that hangs cannot commit once it lost its session. For more
/// throughput divide the work into several mailboxes, by route. With PgBouncer use session mode.
///
/// Made by `libpq_mailbox_consumer` or `sqlite_mailbox_consumer` (outbox/adapters/).
/// Thread safety: `stop`, `stats` and `lag` from any thread; the rest from one.
class MailboxConsumer {
  public:
    class Impl;
    explicit MailboxConsumer(std::unique_ptr<Impl> impl);
    MailboxConsumer(MailboxConsumer&& other) noexcept;
    MailboxConsumer& operator=(MailboxConsumer&& other) noexcept;
    /// Ends the session; the mailbox is free for another member.
    ~MailboxConsumer();

    /// Blocks until `stop`: the message in hand is finished first, then the mailbox is freed.
    /// Throws `Error` when the database cannot be used at the start (`kConnectFailed`,
    /// `kAuthFailed`, `kNoSuchDatabase`, `kNoSuchTable`, `kNoRights`), and what a handler throws
    /// with advice `stop`. Lost later, the database is tried again for ever.
    void run();

    /// Applies what waits and is due now, then returns how many messages are dealt with (applied,
    /// repeats, given up on); 0 while another member holds the mailbox. Keeps the session. Throws
    /// as `run`, and also when the database is lost.
    std::size_t drain();

    /// Ends `run` and `drain` now and for ever. Safe in a signal handler that does not outlive
    /// this.
    void stop() noexcept;

    [[nodiscard]] ConsumerStats stats() const noexcept;

    /// Messages in the mailbox, waiting ones included, as `run` counted them in the last 5 s; it
    /// counts up to 100,000. 0 for a standby.
    [[nodiscard]] std::int64_t lag() const noexcept;

  private:
    std::unique_ptr<Impl> impl_;
};

}  // namespace outbox
