"""Write, receive and Idempotency-Key over Outbox's SQL functions in PostgreSQL (psycopg 3).

The functions are made by `outbox migrate`. Nothing here keeps state of its own.
"""

import base64
import dataclasses
import json
import logging
import threading
import time
import typing
import uuid
import zlib

import psycopg
from psycopg import pq

__version__ = "0.1.0"
_log = logging.getLogger("outbox_client")
__all__ = ["Claim", "Look", "Mailbox", "Message", "claim_key", "complete_key", "emit",
           "fence_token", "look_for", "wait_for"]


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


MAX_FENCED_EVENTS = 100  # of one token


def fence_token(event_ids):
    """The fence token of events that `emit` wrote, for who asks the consumer's database whether
    they are applied; hand it on once the transaction is committed. No secret.

    An id that is given twice counts once. Raises ValueError for more than MAX_FENCED_EVENTS, and
    for an id that is no UUID.
    """
    ids = list(dict.fromkeys(uuid.UUID(str(id)) for id in event_ids))
    if len(ids) > MAX_FENCED_EVENTS:
        raise ValueError(f"a fence token holds up to {MAX_FENCED_EVENTS} events, and these are "
                         f"{len(ids)}: take those that the reader looks for, or several tokens")
    held = b"".join(id.bytes for id in ids)
    whole = zlib.adler32(held).to_bytes(4, "big") + held
    return "obf1." + base64.urlsafe_b64encode(whole).decode().rstrip("=")


@dataclasses.dataclass(frozen=True)
class Look:
    """`state`: the worst of the events' ("applied", "waiting", "unknown", "dead"); `events`: for
    each a dict of id, state and why, in the token's order."""

    state: str
    events: list

    @property
    def settled(self):
        """No later look is expected to say anything else."""
        return self.state in ("applied", "dead") or any(
            event["why"] == "forgotten" for event in self.events)


def look_for(connection, consumer, token):
    """One look in the consumer's database, which waits for nobody. Under REPEATABLE READ the
    answer stays that of the transaction's snapshot. What is no token raises psycopg.Error with
    SQLSTATE 22023."""
    row = connection.execute("SELECT state, events FROM outbox_wait(%s, %s)",
                             (consumer, token)).fetchone()
    return Look(row[0], row[1])


_FIRST_PAUSE_S = 0.02
_MOST_PAUSE_S = 0.5


def wait_for(connection, consumer, token, timeout_s):
    """Looks until the answer is settled or `timeout_s` is over, and returns the last look.
    `connection`: autocommit, as a transaction would stay open meanwhile. Outages are raised."""
    if not connection.autocommit:
        raise RuntimeError("to wait wants a connection with autocommit: a transaction would stay "
                           "open, and could see one snapshot alone")
    deadline = time.monotonic() + timeout_s
    pause = _FIRST_PAUSE_S
    while True:
        look = look_for(connection, consumer, token)
        left = deadline - time.monotonic()
        if look.settled or left <= 0:
            return look
        time.sleep(min(pause, left))
        pause = min(2 * pause, _MOST_PAUSE_S)


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


# As in the library: conflicts of one message that are run again at once, and sessions lost (outages)
# in a row under one message, before they count as tries of it.
_MAX_CONFLICTS = 20
_MAX_LOST = 3
_CONFLICTS = ("40001", "40P01")
# The server is away, stops, starts, only reads, or is short of something.
_OUTAGES = ("08", "25006", "53", "57P", "58")
_MAX_PAUSE_S = 5.0


def _state(error):
    """The SQLSTATE of what was raised, or of what that was raised from."""
    while error is not None:
        if isinstance(error, psycopg.Error) and error.sqlstate:
            return error.sqlstate
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return ""


def _is_outage(connection, error):
    return connection.closed or _state(error).startswith(_OUTAGES)


def _text(error):
    # PostgreSQL's text takes neither a NUL nor half a surrogate pair.
    text = f"{type(error).__name__}: {error}".replace("\0", "?")
    return text.encode(errors="replace").decode()


def _once_more(counted, message):
    return (message.id, counted[1] + 1 if counted[0] == message.id else 1)


class Mailbox:
    """One member that takes messages of a mailbox; start as many as you like, each its own.

    `run` calls the handler with the connection and a message, in the transaction that takes the
    message: what the handler writes there commits with it, or not at all. A handler that raises, or
    a commit that fails, has the message tried again, its key waiting; after `max_attempts` it is a
    dead letter. An outage of the database counts nothing, unless it comes with the same message
    more than three times in a row; a conflict (40001, 40P01) not the first twenty times.
    """

    def __init__(self, url, consumer, mailbox="default", batch=100, max_attempts=5, idle_s=0.1):
        self._url = url
        self._consumer = consumer
        self._mailbox = mailbox
        self._batch = batch
        self._max_attempts = max_attempts
        self._idle_s = idle_s
        self._stop = threading.Event()
        self._singly = 0  # turns that take one message, so that a failed commit has one culprit
        self._conflicts = (None, 0)  # the last message that had one, and how often in a row
        self._lost = (None, 0)  # the last message that lost its session, likewise
        self._owed = None  # a failure that is to be told: message and text

    def stop(self):
        """Lets `run` return after the message under way. Any thread, also a signal handler."""
        self._stop.set()

    def run(self, handler):
        """Until `stop`. Waits out an outage of the database, and logs a warning of it."""
        outages = 0
        while not self._stop.is_set():
            try:
                with psycopg.connect(self._url, autocommit=True,
                                     client_encoding="UTF8") as connection:
                    # The database's default may be another, which taking refuses.
                    connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
                    while not self._stop.is_set():
                        some = self.turn(connection, handler)
                        outages = 0
                        if not some:
                            self._stop.wait(self._idle_s)
            except psycopg.OperationalError as error:
                _log.warning("the database is out of reach: %s", error)
                self._stop.wait(min(self._idle_s * 2 ** outages, _MAX_PAUSE_S))
                outages = min(outages + 1, 10)

    def turn(self, connection, handler):
        """Takes and applies once; True where there was something. `connection`: autocommit, UTF8,
        transactions READ COMMITTED. Raises psycopg.OperationalError in an outage: go on with a new
        connection."""
        self._tell(connection)
        most = 1 if self._singly else self._batch
        self._singly = max(0, self._singly - 1)
        messages, applied, under_way = [], [], None
        try:
            with connection.transaction():
                messages = self._take(connection, most)
                for under_way in messages:
                    if self._stop.is_set():
                        break
                    self._apply(connection, under_way, handler)
                    applied.append(under_way)
                under_way = None
        except Exception as error:
            if under_way is None and len(applied) == 1:
                under_way = applied[0]
            self._failed(connection, under_way, len(applied), error)
            return True
        return bool(messages)

    def _apply(self, connection, message, handler):
        try:
            handler(connection, message)
        except psycopg.Rollback as error:  # would end the whole transaction without a word
            raise RuntimeError("the handler raised psycopg.Rollback") from error
        connection.execute("SELECT outbox_mailbox_done(%s, %s, %s)",
                           (self._consumer, self._mailbox, message.position))

    # All of it was rolled back. `message`: whose fault it is, None where that is not known.
    def _failed(self, connection, message, applied, error):
        outage = _is_outage(connection, error)
        if message is None:
            self._singly = applied
        elif outage:
            self._lost = _once_more(self._lost, message)
            self._singly = max(self._singly, applied + 1)
            if self._lost[1] > _MAX_LOST:
                self._owed = (message, _text(error))
        elif _state(error) in _CONFLICTS and self._conflicts != (message.id, _MAX_CONFLICTS):
            self._conflicts = _once_more(self._conflicts, message)
            self._singly = max(self._singly, applied + 1)
            self._stop.wait(self._conflicts[1] / 1000)
        else:
            self._conflicts = (None, 0)
            self._owed = (message, _text(error))
            self._tell(connection)
        if outage:
            raise psycopg.OperationalError(_text(error)) from error
        if message is None and not applied:
            raise error

    # In a transaction of its own; in an outage, after it.
    def _tell(self, connection):
        if self._owed is None:
            return
        message, text = self._owed
        _log.warning("message %s failed: %s", message.id, text)
        try:
            self._count(connection, message, text)
        except psycopg.DataError:  # the database's encoding has not all of it
            self._count(connection, message, text.encode("ascii", "backslashreplace").decode())
        except psycopg.Error as error:
            if _is_outage(connection, error):
                raise psycopg.OperationalError(str(error)) from error
            raise
        self._owed = None

    def _count(self, connection, message, text):
        connection.execute("SELECT outbox_mailbox_failed(%s, %s, %s, %s, %s)",
                           (self._consumer, self._mailbox, message.position, text,
                            self._max_attempts))

    def _take(self, connection, most):
        rows = connection.execute(
            "SELECT position, id, topic, key, headers, payload FROM outbox_mailbox_take(%s, %s, %s)",
            (self._consumer, self._mailbox, most))
        return [Message(row[0], row[1], row[2], row[3], row[4] or {},
                        None if row[5] is None else bytes(row[5])) for row in rows]


@dataclasses.dataclass(frozen=True)
class Claim:
    """`state`: "new" (do the work, then `complete_key`), "repeat" (commit, send the stored answer),
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
