#pragma once

#include <functional>
#include <libpq-fe.h>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <outbox/consumer/inbox.h>
#include <outbox/consumer/mailbox.h>

namespace outbox {

/// Enters `message_id` in `consumer`'s inbox (table outbox_inbox), in the transaction that is open
/// on `transaction`. True: the message is new, apply it in this same transaction. False: a repeat,
/// leave it; commit before the broker is told (with a synchronous standby that waits until the
/// standby has the entry, too). Call it before anything the message changes.
///
/// The entry lives and dies with the transaction. While another transaction has entered the same id
/// and is open, this waits for its end. `message_time` is the event's own time, the same on each
/// repeat; it serves retention only.
///
/// Thread safety: as the connection. Blocks on the database. The connection stays the caller's.
/// Throws `Error`: `kNoTransaction`/stop when no transaction is open or it has failed already,
/// `kInvalidEvent`/dead_letter for an id that is empty or over 255 bytes, `kConflict`/retry_event
/// (40001 under REPEATABLE READ or SERIALIZABLE, 40P01): roll back and run the transaction again;
/// `kNoSuchTable`, `kNoRights`, `kConnectionLost`, `kQueryFailed`.
bool accept(PGconn* transaction, std::string_view consumer, std::string_view message_id,
            MessageTime message_time = std::nullopt);

/// BEGIN and `accept` in one round trip, for a loop that takes one message after the other; the
/// effect and COMMIT follow. `connection` must be idle and not in pipeline mode (`kConflict`/stop).
/// After an exception no transaction is open. Otherwise as `accept`.
bool begin_and_accept(PGconn* connection, std::string_view consumer, std::string_view message_id,
                      MessageTime message_time = std::nullopt);

/// `accept` for an inbox table of the application's own. Nothing is known of its retention, so no
/// message is quarantined. Throws as above, and `kInvalidEvent`/dead_letter when the id column does
/// not take the id (not a UUID).
bool accept(PGconn* transaction, const InboxTable& table, std::string_view consumer,
            std::string_view message_id);

/// Enters several messages at once; which of them are new, in the order given. An id that is given
/// twice is new once. One round trip. Where a message of the batch is refused (quarantined, without
/// id) all of them are: roll back and accept them one by one. Throws as `accept`.
std::vector<bool> accept_batch(PGconn* transaction, std::string_view consumer,
                               std::span<const InboxEntry> messages);

/// Accepts a message by its number among those of its key, which are numbered 1, 2, 3, ...:
/// constant space for each key, and gaps are named. Only where the writer numbers without gaps, in
/// the order of its transactions. After `kGap` nothing is changed: roll back and let the message
/// wait, or find out what was lost. Throws as `accept`.
SequenceResult accept_sequence(PGconn* transaction, std::string_view consumer, std::string_view key,
                               std::int64_t sequence);

/// The offset that `consumer` applies next in a partition, as the last `accept_offset` set it; none
/// at first. Throws as `accept`, but for a missing transaction.
std::optional<std::int64_t> next_offset(PGconn* connection, std::string_view consumer,
                                        std::string_view topic, int partition);

/// Compare-and-set: moves the next offset from `expected` (none: there is none yet) to `next`.
/// False: another member has moved it; roll back, this one has lost the partition. Constant space
/// for each partition, and a stale member cannot commit. Drops only what the broker delivers again,
/// NOT a repeat of the relay, which has another offset: alone it is exactly once only behind a wire
/// that is exactly once; else use it together with `accept` or `accept_sequence`. Serial per
/// partition. Throws as `accept`.
bool accept_offset(PGconn* transaction, std::string_view consumer, std::string_view topic,
                   int partition, std::optional<std::int64_t> expected, std::int64_t next);

/// Applies one message with the connection whose open transaction it is to use. It must leave the
/// transaction open: neither commit nor roll back (savepoints are fine). Ids of messages are not
/// to be passed to `accept`: that is done.
using LibpqHandler = std::function<void(PGconn* transaction, const Message& message)>;

/// A consumer of a mailbox in PostgreSQL, with a connection of its own, made by `run` or `drain`.
/// `url`: what libpq takes. The user needs the rights that docs/receiving.md lists; `run` names the
/// GRANT of one that is missing (`kNoRights`/stop, at the start and later). The isolation level is
/// the database's default, or `?options=-c default_transaction_isolation=...`.
/// Throws `Error` `kConfigInvalid` for a URL that libpq cannot read or options out of range.
MailboxConsumer libpq_mailbox_consumer(const std::string& url, LibpqHandler handler,
                                       MailboxOptions options = {});

/// Applies several new messages at once, in their order, under the same rules: for work that is
/// cheaper for many (one statement over arrays). With `MailboxOptions::transaction_size`.
using LibpqBatchHandler =
    std::function<void(PGconn* transaction, std::span<const Message> messages)>;

/// The same with a handler of batches.
MailboxConsumer libpq_mailbox_consumer(const std::string& url, LibpqBatchHandler handler,
                                       MailboxOptions options = {});

}  // namespace outbox
