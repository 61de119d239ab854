#pragma once

#include <sqlite3.h>
#include <string_view>

#include <outbox/consumer/fence.h>

namespace outbox {

/// One look whether `consumer` has applied the events of a fence token, in its database: one
/// SELECT. Asks and waits for nobody but, in a file without WAL, for a writer that is about to
/// commit (up to the busy timeout); ask again until it says so. Works inside a transaction and
/// without one.
///
/// `kApplied` is said of effects that a later statement of this connection sees. In a transaction
/// the answer is that of its snapshot and stays: ask outside of it. What the transaction has itself
/// accepted counts as applied. Only consumers that keep ids in outbox_inbox can be asked about: not
/// `accept_offset`, `accept_sequence` and tables of one's own, nor `Mode::kOffset`.
///
/// Thread safety: as the connection, which stays the caller's. Throws `Error`:
/// `kInvalidEvent`/dead_letter (no token), `kConfigInvalid`/stop (no consumer's name),
/// `kNoSuchTable` and `kTableShape` (not migrated), `kConflict`, `kQueryFailed`.
FenceLook look_for(sqlite3* connection, std::string_view consumer, std::string_view token);

}  // namespace outbox
