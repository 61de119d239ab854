"""Write, receive and Idempotency-Key over Outbox's SQL functions in PostgreSQL (psycopg 3).

The functions are made by `outbox migrate`. Nothing here keeps state of its own.
"""

import dataclasses
import json
import logging
import threading
import typing

import psycopg
from psycopg import pq

__version__ = "0.1.0"
_log = logging.getLogger("outbox_client")
__all__ = ["Claim", "Mailbox", "Message", "claim_key", "complete_key", "emit"]


def _need_transaction(connection):
    if connection.autocommit and connection.info.transaction_status == pq.TransactionStatus.IDLE:
        raise RuntimeError("no transaction is open: an event or a key must commit with the effect")


def emit(connection, *, payload, topic=None, aggregate_type=None, aggregate_id=None,
         event_type=None, key=None, headers=None, available_at=None, lock_key=False):
    """Writes one event in the connection's transaction and returns its id; never commits.

    `payload`: str as it is, anything else as JSON. Raises RuntimeError without a transaction.
    """
    _need_transaction(connection)
    text = payload if isinstance(payload, str) else json.dumps(payload)
    row = connection.execute(
        "SELECT outbox_emit(topic => %s, payload => %s, aggregate_type => %s, aggregate_id => %s, "
        "event_type => %s, key => %s, headers => %s, available_at => %s, lock_key => %s)",
        (topic, text, aggregate_type, aggregate_id, event_type, key,
         None if headers is None else json.dumps(headers), available_at, lock_key),
    ).fetchone()
    return str(row[0])


@dataclasses.dataclass(frozen=True)
class Message:
    """A message of a mailbox."""

    position: int
    id: str
    topic: str
    key: typing.Optional[str]
    headers: dict
    payload: typing.Optional[bytes]

    def json(self):
        return json.loads(self.payload)


class Mailbox:
    """One member that takes messages of a mailbox; start as many as you like.

    `run` calls the handler with the connection and a message, in the transaction that takes the
    message: what the handler writes there commits with it, or not at all. A handler that raises has
    the message tried again, its key waiting; after `max_attempts` it is a dead letter.
    """

    def __init__(self, url, consumer, mailbox="default", batch=100, max_attempts=5, idle_s=0.1):
        self._url = url
        self._consumer = consumer
        self._mailbox = mailbox
        self._batch = batch
        self._max_attempts = max_attempts
        self._idle_s = idle_s
        self._stop = threading.Event()

    def stop(self):
        """Lets `run` return after the message under way. Any thread, also a signal handler."""
        self._stop.set()

    def run(self, handler):
        """Until `stop`. Reconnects when the database was away, and logs a warning of it."""
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True) as connection:
                    while not self._stop.is_set():
                        if not self.turn(connection, handler):
                            self._stop.wait(self._idle_s)
            except psycopg.OperationalError as error:
                _log.warning("the database is out of reach: %s", error)
                self._stop.wait(max(self._idle_s, 1.0))

    def turn(self, connection, handler):
        """Takes and applies once; True where there was something. `connection`: autocommit."""
        failed = None
        try:
            with connection.transaction():
                messages = self._take(connection, self._batch)
                for message in messages:
                    if self._stop.is_set():
                        break
                    failed = message
                    handler(connection, message)
                    connection.execute("SELECT outbox_mailbox_done(%s, %s, %s)",
                                       (self._consumer, self._mailbox, message.position))
                    failed = None
            return bool(messages)
        except (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected):
            return True  # nothing happened; again
        except Exception as error:
            if failed is None or connection.broken:
                raise
            # What came before it in the batch was undone, too, and comes again.
            # PostgreSQL's text takes neither a NUL nor half a surrogate pair.
            told = f"{type(error).__name__}: {error}".replace("\0", "?")
            told = told.encode(errors="replace").decode()
            _log.warning("message %s failed: %s", failed.id, told)
            connection.execute("SELECT outbox_mailbox_failed(%s, %s, %s, %s, %s)",
                               (self._consumer, self._mailbox, failed.position, told,
                                self._max_attempts))
            return True

    def _take(self, connection, most):
        rows = connection.execute(
            "SELECT position, id, topic, key, headers, payload FROM outbox_mailbox_take(%s, %s, %s)",
            (self._consumer, self._mailbox, most))
        return [Message(row[0], row[1], row[2], row[3], row[4] or {},
                        None if row[5] is None else bytes(row[5])) for row in rows]


@dataclasses.dataclass(frozen=True)
class Claim:
    """`state`: "new" (do the work, then `complete_key`), "repeat" (send the stored answer),
    "running" (409) or "mismatch" (422)."""

    state: str
    attempt: int
    status: typing.Optional[int]
    headers: dict
    body: typing.Optional[bytes]


def claim_key(connection, scope, key, fingerprint):
    """Claims an Idempotency-Key in the connection's transaction, which does the work, too."""
    _need_transaction(connection)
    row = connection.execute("SELECT * FROM idempotency_claim(%s, %s, %s)",
                             (scope, key, fingerprint)).fetchone()
    return Claim(row[0], row[1], row[2], row[3] or {}, None if row[4] is None else bytes(row[4]))


def complete_key(connection, scope, key, claim, status, headers, body):
    """Stores the answer, in the same transaction. Raises where the claim is another's by now: the
    transaction is to be rolled back then, as the other one does the work."""
    connection.execute("SELECT idempotency_complete(%s, %s, %s, %s, %s, %s, must_hold => true)",
                       (scope, key, claim.attempt, status, json.dumps(headers), body))
