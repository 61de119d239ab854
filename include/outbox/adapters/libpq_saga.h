#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <outbox/consumer/message.h>
#include <outbox/saga/saga.h>

struct pg_conn;  // libpq's PGconn

namespace outbox {

/// Starts a saga of the highest version of `name`, in the open transaction of the business write:
/// its row in outbox_saga, the first command and its timer. Gives its id.
///
/// `id`: empty: a UUIDv7. An id of the application's own (the order's) makes a second start an
/// error. `data`: what the commands are made from, UTF-8, up to 1 MiB.
///
/// Blocks for three statements. Thread safety: as the connection, which stays the caller's. Throws
/// `Error`: `kNoTransaction`/stop, `kConfigInvalid`/stop (no such saga),
/// `kConflict`/dead_letter (the id is in use), `kPayloadTooLarge`/dead_letter, those of
/// `accept` and `emit`, and what the command throws.
std::string start_saga(pg_conn* transaction, const Sagas& sagas, std::string_view name,
                       std::string data, std::string id = {});

/// Applies an answer, a timer or an operator's request to its saga, in the open transaction that
/// has accepted the message: a mailbox or Kafka consumer's handler, or your own after `accept`.
/// State, next command and timer are written in it; so are business writes that depend on the
/// outcome (`SagaChange::finished`).
///
/// Waits for another transaction that has the saga in hand; blocks for up to four statements.
/// Thread safety: as the connection. Throws `Error` with advice dead_letter, the saga unchanged:
/// `kInvalidEvent` (no header saga_id; no such saga; a step that was never sent; an answer that the
/// step does not have), `kUnsupported` (this program has no definition of the saga's version: once
/// it has, `outbox dead retry` brings the message back). Else as `start_saga`.
SagaChange advance_saga(pg_conn* transaction, const Sagas& sagas, const Message& message);

/// For participants: what to do with a command, in the open transaction that has accepted it. Keeps
/// in outbox_saga_steps that the step was done, or undone: a command that comes after its
/// compensation does nothing. Blocks for up to two statements. Throws as `advance_saga`.
SagaCall begin_saga_step(pg_conn* transaction, const Message& command);

/// For participants: answers the command, in the same transaction. Adds topic, key and headers that
/// bring it to its saga. Gives the event's id. Throws as `emit`.
std::string answer_saga_step(pg_conn* transaction, const Message& command, Event answer,
                             const EmitOptions& options = {});

/// The same after `kDo`, with one of `SagaStep::refused`: the step was not done, nothing has to be
/// undone. Roll back what it wrote before this.
std::string refuse_saga_step(pg_conn* transaction, const Message& command, Event answer,
                             const EmitOptions& options = {});

/// Sagas by name and state, for `saga_metrics`. Blocks for one statement. Throws as `accept`.
std::vector<SagaCount> count_sagas(pg_conn* connection);

}  // namespace outbox
