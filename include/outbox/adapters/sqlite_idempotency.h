#pragma once

#include <outbox/consumer/idempotency.h>

struct sqlite3;

namespace outbox {

/// Claims the request's key (table outbox_idempotency, made by `outbox migrate`) in the transaction
/// that is open on `transaction` and does the request's work: the claim lives and dies with it. Not
/// new: give the answer and roll back. A request without a key is always new.
///
/// Two-phase form, for work with effects outside the database (`lease_ms` above 0): claim and
/// commit; do the outside work, passing the key on; then complete in the transaction of the
/// business write. Others see `kRunning` until the lease ends; then the next one takes over
/// (`attempt` counts) and the late one's `complete_key` is refused.
///
/// Begin the transaction with BEGIN IMMEDIATE: SQLite has one writer, so of the requests under way
/// one is in its transaction and the others wait for the file, up to the busy timeout. Thread
/// safety: as the connection, which stays the caller's. Throws `Error`: `kNoTransaction`/stop,
/// `kConflict`/retry_event (run the transaction again), `kNoSuchTable`, `kNoRights`, `kDiskFull`,
/// `kQueryFailed`.
IdempotencyClaim claim_key(sqlite3* transaction, const IdempotentRequest& request,
                           const ClaimOptions& options = {});

/// Keeps the answer for repeats, in the open transaction; commit follows. Blocks for one statement.
/// Throws as `claim_key`, and `kConflict`/stop when the lease ran out and another attempt took
/// over: roll back and answer 409.
void complete_key(sqlite3* transaction, const IdempotentRequest& request,
                  const IdempotencyClaim& claim, const IdempotentAnswer& answer);

/// Gives a leased claim back after work that is known to have changed nothing, in the open
/// transaction. Throws as `claim_key`.
void release_key(sqlite3* transaction, const IdempotentRequest& request,
                 const IdempotencyClaim& claim);

}  // namespace outbox
