-- Producer side for SQLite. Times are microseconds since the Unix epoch. `migrate` fills in the
-- payload's type (text, or blob for bytea) and its check.

-- AUTOINCREMENT: SQLite would else give the position of a removed row to a new one.
-- The default id is a UUIDv7 (RFC 9562, section 5.7).
CREATE TABLE outbox_events (
    position       INTEGER PRIMARY KEY AUTOINCREMENT,
    id             text NOT NULL DEFAULT ({{uuidv7}}),
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        {{payload_type}},
    headers        text,
    tenant_id      text NOT NULL DEFAULT 'default',
    schema_id      text,
    schema_version text,
    occurred_at    integer NOT NULL DEFAULT ({{now_us}}),
    topic          text,
    key            text,
    routing_key    text,
    available_at   integer, -- of an event that was delayed: its age counts from here
{{event_checks}}    CONSTRAINT "OB_INVALID_EVENT: occurred_at is not an integer (microseconds since the Unix epoch)"
        CHECK (typeof(occurred_at) = 'integer')
);

-- Delayed events wait here, so that they never hold a key; the relay moves them when due.
CREATE TABLE outbox_scheduled (
    schedule_id    INTEGER PRIMARY KEY AUTOINCREMENT,
    available_at   integer NOT NULL,
    id             text NOT NULL DEFAULT ({{uuidv7}}),
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        {{payload_type}},
    headers        text,
    tenant_id      text NOT NULL DEFAULT 'default',
    schema_id      text,
    schema_version text,
    occurred_at    integer NOT NULL DEFAULT ({{now_us}}),
    topic          text,
    key            text,
    routing_key    text,
{{event_checks}}    CONSTRAINT "OB_INVALID_EVENT: occurred_at or available_at is not an integer (microseconds since the Unix epoch)"
        CHECK (typeof(occurred_at) = 'integer' AND typeof(available_at) = 'integer')
);
CREATE INDEX outbox_scheduled_due ON outbox_scheduled (available_at, schedule_id);

{{side_tables}}

-- Every event that is not published yet, and the dead ones, each once: one that is dead in one route
-- and still unsent in another is shown as unsent. Rows of published events are gone.
-- The oldest unsent: WHERE status IN ('PENDING', 'RETRYING') ORDER BY position LIMIT 50.
CREATE VIEW outbox_status AS
SELECT e.position, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.occurred_at / 1000000.0, 'unixepoch') AS occurred_at,
       e.tenant_id, e.topic,
       CASE WHEN coalesce((SELECT max(d.attempts) FROM outbox_delivery d
                           WHERE d.position = e.position
                             AND d.source || '/' LIKE 'outbox_events/%'), 0) > 0
            THEN 'RETRYING' ELSE 'PENDING' END AS status,
       coalesce((SELECT max(d.attempts) FROM outbox_delivery d
                 WHERE d.position = e.position
                   AND d.source || '/' LIKE 'outbox_events/%'), 0) AS attempts,
       (SELECT d.error_code || ': ' || d.last_error FROM outbox_delivery d
        WHERE d.position = e.position AND d.source || '/' LIKE 'outbox_events/%'
        ORDER BY d.attempts DESC LIMIT 1) AS error,
       strftime('%Y-%m-%dT%H:%M:%fZ', e.available_at / 1000000.0, 'unixepoch') AS available_at
FROM outbox_events e
UNION ALL
SELECT d.position, d.id, d.aggregate_type, d.aggregate_id, d.event_type, {{dead_payload}},
       strftime('%Y-%m-%dT%H:%M:%fZ', d.occurred_at / 1000000.0, 'unixepoch'), d.tenant_id, d.topic,
       'DEAD', d.attempts, d.error_code || ': ' || d.error, NULL
FROM outbox_dead_letters d
WHERE d.dead_id IN (SELECT max(dead_id) FROM outbox_dead_letters
                    WHERE source || '/' LIKE 'outbox_events/%' GROUP BY id)
  AND NOT EXISTS (SELECT 1 FROM outbox_events e WHERE e.position = d.position)
UNION ALL
SELECT NULL, s.id, s.aggregate_type, s.aggregate_id, s.event_type, s.payload,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.occurred_at / 1000000.0, 'unixepoch'), s.tenant_id, s.topic,
       'SCHEDULED', 0, NULL,
       strftime('%Y-%m-%dT%H:%M:%fZ', s.available_at / 1000000.0, 'unixepoch')
FROM outbox_scheduled s;
