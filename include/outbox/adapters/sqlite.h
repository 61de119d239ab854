#pragma once

#include <string>
#include <string_view>

#include <outbox/producer/emit.h>
#include <outbox/producer/unit_of_work.h>

struct sqlite3;

namespace outbox {

/// Writes the event into `outbox_events` (`outbox_scheduled` if it has `available_at`) on the
/// database's open transaction, and returns its id. The event exists if and only if the caller
/// commits: emit never begins, commits or rolls back.
///
/// Blocks for one statement, at most the connection's busy_timeout if the transaction was begun
/// without IMMEDIATE. Thread safety: as the connection. The connection stays the caller's.
///
/// Throws `Error`: `kNoTransaction` (no transaction is open), those of `insert_command`,
/// `kInvalidEvent` (not JSON), `kPayloadTooLarge`, `kNoSuchTable`, `kConflict` (busy: run the
/// transaction again), `kDiskFull` (SQLite may have rolled the transaction back), `kNoRights`,
/// `kQueryFailed`.
std::string emit(sqlite3* transaction, const Event& event, const EmitOptions& options = {});

/// The same for an event that has only a topic and a payload; it has no key and no order.
std::string emit(sqlite3* transaction, std::string_view topic, std::string_view payload,
                 const EmitOptions& options = {});

/// Begins a transaction (IMMEDIATE: no other writer until it ends) on the connection, which must
/// outlive the unit and have none open (`kConflict`).
[[nodiscard]] UnitOfWork begin_unit_of_work(sqlite3* connection, const EmitOptions& options = {});

}  // namespace outbox
