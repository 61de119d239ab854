-- Consumer's side for SQLite: messages delivered without a broker, the ids of what was applied, and
-- the messages given up on. Times are microseconds since the Unix epoch.

{{mailbox}}

{{audit}}

-- Ids that a consumer has dealt with (applied, or moved to its dead letters), written in the
-- transaction of the effect. message_time is the event's own time, the same on each repeat; the
-- default is "unknown".
CREATE TABLE outbox_inbox (
    consumer     text NOT NULL,
    message_id   text NOT NULL CHECK (message_id <> ''),
    message_time integer NOT NULL DEFAULT (-9223372036854775807),
    applied_at   integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    PRIMARY KEY (consumer, message_id)
) WITHOUT ROWID;

-- Messages whose handler failed for good, whole. Setting retry_requested_at has the consumer try
-- the message once more: the one of the mailbox that it came from, where it came from one.
CREATE TABLE outbox_inbox_dead_letters (
    consumer           text NOT NULL,
    message_id         text NOT NULL,
    topic              text NOT NULL,
    key                text,
    headers            text,
    payload            blob,
    attempts           integer NOT NULL,
    error_code         text NOT NULL,
    error              text NOT NULL,
    died_at            integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    retry_requested_at integer,
    mailbox            text,
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX outbox_inbox_dead_letters_retry
    ON outbox_inbox_dead_letters (consumer, retry_requested_at)
    WHERE retry_requested_at IS NOT NULL;

CREATE INDEX outbox_inbox_age ON outbox_inbox (message_time);

-- Ids of messages from before a consumer's floor may have been pruned: such a message cannot be
-- known as new. Only pruning raises a floor.
CREATE TABLE outbox_inbox_floor (
    consumer text PRIMARY KEY,
    floor    integer NOT NULL DEFAULT (-9223372036854775807)
);

-- The last sequence number that a consumer has applied, for messages that carry one per key.
CREATE TABLE outbox_inbox_sequences (
    consumer      text NOT NULL,
    key           text NOT NULL,
    last_sequence integer NOT NULL,
    PRIMARY KEY (consumer, key)
) WITHOUT ROWID;

-- The offset that a consumer applies next in a partition of a log, set in the transaction of the
-- effect; and whose log that is: the Kafka cluster and the id of the record before it (its place and
-- time for one without an id, NULL where it is not known).
CREATE TABLE outbox_inbox_offsets (
    consumer    text NOT NULL,
    topic       text NOT NULL,
    partition   integer NOT NULL,
    next_offset integer NOT NULL,
    cluster_id  text NOT NULL DEFAULT '',
    last_id     text,
    updated_at  integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    PRIMARY KEY (consumer, topic, partition)
) WITHOUT ROWID;

-- What a running consumer last said of itself.
CREATE TABLE outbox_inbox_stats (
    consumer   text NOT NULL,
    member     text NOT NULL,
    applied    integer NOT NULL,
    repeats    integer NOT NULL,
    failed     integer NOT NULL,
    dead       integer NOT NULL,
    lag        integer,
    updated_at integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    PRIMARY KEY (consumer, member)
) WITHOUT ROWID;

-- Requests that carry an Idempotency-Key, with the answer they were given. Without a status the
-- request is under way (lease_until set) or was committed without an answer.
CREATE TABLE outbox_idempotency (
    scope       text NOT NULL,
    key         text NOT NULL CHECK (key <> ''),
    fingerprint text NOT NULL,
    attempt     integer NOT NULL DEFAULT 1,
    lease_until integer,
    status      integer,
    headers     text,
    body        blob,
    created_at  integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    expires_at  integer NOT NULL,
    PRIMARY KEY (scope, key)
);
CREATE INDEX outbox_idempotency_expiry ON outbox_idempotency (expires_at);

-- Sagas that this service leads, beside its business data; each transition is one transaction with
-- the inbox and the outbox. state says what is awaited, `steps` what was sent and what became of it,
-- leader the topic of answers when it began, cause why it turned back, trouble why it is stuck or a request was refused. Open sagas without
-- progress for ten minutes:
--   SELECT saga_id, name, state, step, trouble FROM outbox_saga
--   WHERE finished_at IS NULL AND updated_at < (unixepoch() - 600) * 1000000 ORDER BY started_at;
CREATE TABLE outbox_saga (
    saga_id     text PRIMARY KEY NOT NULL CHECK (saga_id <> ''),
    name        text NOT NULL,
    version     integer NOT NULL,
    state       text NOT NULL
        CHECK (state IN ('running', 'compensating', 'stuck', 'completed', 'compensated')),
    step        text,
    steps       text NOT NULL CHECK (json_valid(steps)),
    data        text NOT NULL,
    leader      text NOT NULL,
    topic       text NOT NULL,
    timer       integer NOT NULL,
    due_at      integer,
    cause       text,
    trouble     text,
    requested   text CHECK (requested IN ('abort', 'resume')),
    started_at  integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    updated_at  integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    finished_at integer
);
CREATE INDEX outbox_saga_open ON outbox_saga (started_at) WHERE finished_at IS NULL;
CREATE INDEX outbox_saga_finished ON outbox_saga (finished_at) WHERE finished_at IS NOT NULL;

-- What a participant has done with the steps of sagas that others lead (two leaders may use one id):
-- done, refused, or undone (a
-- command that comes after its compensation finds that and does nothing).
CREATE TABLE outbox_saga_steps (
    leader     text NOT NULL,
    saga_id    text NOT NULL,
    step       text NOT NULL,
    state      text NOT NULL CHECK (state IN ('done', 'refused', 'undone')),
    updated_at integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    PRIMARY KEY (leader, saga_id, step)
);
CREATE INDEX outbox_saga_steps_age ON outbox_saga_steps (updated_at);
