#pragma once

#include <span>
#include <string>
#include <string_view>

#include <outbox/producer/emit.h>
#include <outbox/producer/unit_of_work.h>

struct pg_conn;  // libpq's PGconn

namespace outbox {

/// Writes the event into `outbox_events` (`outbox_scheduled` if it has `available_at`) on the
/// connection's open transaction, and returns its id. The event exists if and only if the caller
/// commits: emit never begins, commits or rolls back. One round trip, no prepared statement, so
/// that it works behind PgBouncer in transaction mode. The tables are found by the search_path.
///
/// Blocks for one statement; with `lock_key` until other writers of the key have ended. Thread
/// safety: as the connection, one thread at a time. The connection stays the caller's.
///
/// Throws `Error`. Before anything is sent: `kNoTransaction` (no transaction is open), those of
/// `insert_command`, `kConfigInvalid` (client_encoding is not UTF8), `kConflict` (the transaction
/// has failed already, or a command or pipeline is under way). From the server, after which only a
/// rollback helps: `kInvalidEvent` (not JSON, not a UUID), `kPayloadTooLarge`, `kNoSuchTable`,
/// `kNoRights`, `kConflict` (run the transaction again), `kConnectionLost`, `kDiskFull`,
/// `kQueryFailed`.
std::string emit(pg_conn* transaction, const Event& event, const EmitOptions& options = {});

/// The same for an event that has only a topic and a payload; it has no key and no order.
std::string emit(pg_conn* transaction, std::string_view topic, std::string_view payload,
                 const EmitOptions& options = {});

/// Takes the per-key locks of these keys, in one order everywhere; they are held until the
/// transaction ends. Blocks until other holders have ended. Throws as `emit`.
void lock_keys(pg_conn* transaction, std::span<const std::string> keys);

/// Begins a transaction on the connection, which must outlive the unit and have none open
/// (`kConflict`).
[[nodiscard]] UnitOfWork begin_unit_of_work(pg_conn* connection, const EmitOptions& options = {});

/// Takes over the transaction that is open on the connection (`kNoTransaction`): committing and
/// rolling back are the unit's from here on.
[[nodiscard]] UnitOfWork join_unit_of_work(pg_conn* transaction, const EmitOptions& options = {});

}  // namespace outbox
