#pragma once

#include <chrono>
#include <functional>
#include <libpq-fe.h>
#include <optional>
#include <string>
#include <string_view>

#include <outbox/consumer/mailbox.h>

namespace outbox {

/// Enters `message_id` in `consumer`'s inbox (table outbox_inbox), in the transaction that is open
/// on `transaction`. True: the message is new, apply it in this same transaction. False: a repeat,
/// leave it. Call it before anything the message changes.
///
/// The entry lives and dies with the transaction. While another transaction has entered the same id
/// and is open, this waits for its end. `message_time` is the event's own time, the same on each
/// repeat; it serves retention only.
///
/// Thread safety: as the connection. Blocks on the database. The connection stays the caller's.
/// Throws `Error`: `kNoTransaction`/stop when no transaction is open or it has failed already,
/// `kInvalidEvent`/dead_letter for an empty id, `kConflict`/retry_event (40001 under REPEATABLE
/// READ or SERIALIZABLE, 40P01): roll back and run the transaction again; `kNoSuchTable`,
/// `kNoRights`, `kConnectionLost`, `kQueryFailed`.
bool accept(PGconn* transaction, std::string_view consumer, std::string_view message_id,
            std::optional<std::chrono::system_clock::time_point> message_time = std::nullopt);

/// Applies one message with the connection whose open transaction it is to use. It must leave the
/// transaction open: neither commit nor roll back (savepoints are fine). Ids of messages are not
/// to be passed to `accept`: that is done.
using LibpqHandler = std::function<void(PGconn* transaction, const Message& message)>;

/// A consumer of a mailbox in PostgreSQL, with a connection of its own, made by `run` or `drain`.
/// `url`: what libpq takes. Needs SELECT and DELETE on outbox_mailbox, SELECT and INSERT on
/// outbox_inbox, SELECT, INSERT, UPDATE and DELETE on outbox_inbox_dead_letters. The isolation
/// level is the database's default, or `?options=-c default_transaction_isolation=...`.
/// Throws `Error` `kConfigInvalid` for a URL that libpq cannot read or options out of range.
MailboxConsumer libpq_mailbox_consumer(const std::string& url, LibpqHandler handler,
                                       MailboxOptions options = {});

}  // namespace outbox
