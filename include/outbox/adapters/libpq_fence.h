#pragma once

#include <libpq-fe.h>
#include <string_view>

#include <outbox/consumer/fence.h>

namespace outbox {

/// One look whether `consumer` has applied the events of a fence token, in its database: the SQL
/// function outbox_wait (which `outbox migrate` makes), found by the search_path. Asks and waits
/// for nobody; ask again until it says so. Works inside a transaction and without one; a token that
/// is none is refused before anything is sent, so that a transaction stays as it is.
///
/// `kApplied` is said of effects that a later statement of this connection sees. In a transaction
/// under REPEATABLE READ or SERIALIZABLE the answer is that of its snapshot and stays: ask outside
/// of it. What the transaction has itself accepted counts as applied. Only consumers that keep ids
/// in outbox_inbox can be asked about: not `accept_offset`, `accept_sequence` and tables of one's
/// own, nor `Mode::kOffset`.
///
/// Blocks for one statement. Thread safety: as the connection, which stays the caller's. Throws
/// `Error`: `kInvalidEvent`/dead_letter (no token), `kConfigInvalid`/stop (no consumer's name),
/// `kNoTransaction`/stop (the transaction has failed already), `kNoSuchTable` (not migrated),
/// `kNoRights` (SELECT on outbox_inbox, outbox_inbox_dead_letters and outbox_inbox_floor, EXECUTE
/// on outbox_wait; with SELECT on outbox_mailbox what waits there is known), `kConnectionLost`,
/// `kQueryFailed`.
FenceLook look_for(PGconn* connection, std::string_view consumer, std::string_view token);

}  // namespace outbox
