#pragma once

#include <outbox/consumer/idempotency.h>

struct pg_conn;  // libpq's PGconn

namespace outbox {

/// Claims the request's key (table outbox_idempotency, made by `outbox migrate`) in the transaction
/// that is open on `transaction` and does the request's work: the claim lives and dies with it. Not
/// new: commit, then give the answer (with a synchronous standby the COMMIT waits until the standby
/// has the answer, too; rolled back, it may be one that a failover undoes). A request without a key
/// is always new.
///
/// Two-phase form, for work with effects outside the database (`lease_ms` above 0): claim and
/// commit; do the outside work, passing the key on; then complete in the transaction of the
/// business write. Others see `kRunning` until the lease ends; then the next one takes over
/// (`attempt` counts) and the late one's `complete_key` is refused.
///
/// One round trip (two with an adopted table), no prepared statement; never waits for another
/// claim. Thread safety: as the connection, which stays the caller's. Throws `Error`:
/// `kNoTransaction`/stop, `kConflict`/retry_event (run the transaction again), `kNoSuchTable`,
/// `kTableShape`, `kNoRights`, `kConnectionLost`, `kQueryFailed`, `kInvalidEvent`/dead_letter (the
/// adopted table's columns do not take the key).
IdempotencyClaim claim_key(pg_conn* transaction, const IdempotentRequest& request,
                           const ClaimOptions& options = {});

/// BEGIN and `claim_key` in one round trip, with statements that the connection keeps prepared
/// (behind PgBouncer in transaction mode use `claim_key` and `complete_key`). `connection` must be
/// idle and not in pipeline mode (`kConflict`/stop). A request without a key begins a transaction,
/// too. After an exception no transaction is open. Otherwise as `claim_key`.
IdempotencyClaim begin_and_claim_key(pg_conn* connection, const IdempotentRequest& request,
                                     const ClaimOptions& options = {});

/// Keeps the answer for repeats, in the open transaction; commit follows. Blocks for one statement.
/// Throws as `claim_key`, and `kConflict`/stop when the lease ran out and another attempt took
/// over: roll back and answer 409.
void complete_key(pg_conn* transaction, const IdempotentRequest& request,
                  const IdempotencyClaim& claim, const IdempotentAnswer& answer);

/// `complete_key` and COMMIT in one round trip. Throws as `complete_key`; where the claim was lost,
/// or a deferred constraint refuses, the transaction is rolled back. `kConnectionLost` means that
/// the outcome is not known: a repeat of the request tells.
void complete_key_and_commit(pg_conn* transaction, const IdempotentRequest& request,
                             const IdempotencyClaim& claim, const IdempotentAnswer& answer);

/// Gives a leased claim back after work that is known to have changed nothing, in the open
/// transaction. Throws as `claim_key`.
void release_key(pg_conn* transaction, const IdempotentRequest& request,
                 const IdempotencyClaim& claim);

}  // namespace outbox
