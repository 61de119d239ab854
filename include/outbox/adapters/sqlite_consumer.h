#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <sqlite3.h>
#include <string>
#include <string_view>

#include <outbox/consumer/mailbox.h>

namespace outbox {

/// Enters `message_id` in `consumer`'s inbox (table outbox_inbox), in the transaction that is open
/// on `transaction`. True: the message is new, apply it in this same transaction. False: a repeat,
/// leave it. Call it before anything the message changes. The entry lives and dies with the
/// transaction; begin that with BEGIN IMMEDIATE. `message_time` serves retention only.
///
/// Thread safety: as the connection. Blocks up to the connection's busy timeout. The connection
/// stays the caller's. Throws `Error`: `kNoTransaction`/stop when no transaction is open,
/// `kInvalidEvent`/dead_letter for an empty id, `kConflict`/retry_event when another connection
/// writes (roll back and run the transaction again), `kNoSuchTable`, `kDiskFull`, `kQueryFailed`.
bool accept(sqlite3* transaction, std::string_view consumer, std::string_view message_id,
            std::optional<std::chrono::system_clock::time_point> message_time = std::nullopt);

/// Applies one message with the connection whose open transaction it is to use. It must leave the
/// transaction open: neither commit nor roll back (savepoints are fine). Statements that it leaves
/// open are reset.
using SqliteHandler = std::function<void(sqlite3* transaction, const Message& message)>;

/// A consumer of a mailbox in an SQLite file, with a connection of its own, made by `run` or
/// `drain`. `url`: sqlite:///path of a database with the tables that `outbox migrate` makes.
/// Throws `Error` `kConfigInvalid` for another URL or options out of range.
MailboxConsumer sqlite_mailbox_consumer(const std::string& url, SqliteHandler handler,
                                        MailboxOptions options = {});

}  // namespace outbox
