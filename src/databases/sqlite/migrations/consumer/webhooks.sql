-- Where webhooks go. `events`: patterns of event types with commas between them, in which '*' stands for
-- any text. `tenant_id`: only events of this tenant (NULL: of all). `secrets` are sealed with the key in
-- the relay's key file. `revision` rises with each change of what an operator says. Remove one with
-- `outbox webhook delete`, which also removes what is still to be delivered to it. Times are
-- microseconds since the Unix epoch.
CREATE TABLE IF NOT EXISTS outbox_webhook_endpoints (
    endpoint_id     text PRIMARY KEY NOT NULL
        CHECK (endpoint_id <> '' AND length(CAST(endpoint_id AS blob)) <= 64),
    url             text NOT NULL CHECK (url <> ''),
    events          text NOT NULL DEFAULT '*',
    tenant_id       text,
    state           text NOT NULL DEFAULT 'enabled' CHECK (state IN ('enabled', 'disabled')),
    reason          text NOT NULL DEFAULT '',
    secrets         text NOT NULL,
    revision        integer NOT NULL DEFAULT 1,
    created_at      integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    updated_at      integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    -- What the dispatcher last said of it; times are its own.
    failing_since   integer,
    failures        integer NOT NULL DEFAULT 0,
    last_attempt_at integer,
    paused_until    integer,
    last_status     integer,
    last_error      text,
    delivered_total integer NOT NULL DEFAULT 0,
    missed_total    integer NOT NULL DEFAULT 0  -- events that found its queue full
);

-- What is still to be delivered, a row for each endpoint and event. Readers go by the rows that are
-- there, never by a remembered position. `dead`: given up on; kept until an operator enables the
-- endpoint or deletes it. A payload is text where it is valid UTF-8, else a blob.
CREATE TABLE IF NOT EXISTS outbox_webhook_deliveries (
    position        INTEGER PRIMARY KEY AUTOINCREMENT,
    endpoint_id     text NOT NULL,
    event_id        text NOT NULL CHECK (event_id <> '' AND length(CAST(event_id AS blob)) <= 255),
    event_type      text NOT NULL DEFAULT '',
    key             text,
    headers         text CHECK (headers IS NULL
                                OR (json_valid(headers) AND json_type(headers) = 'object')),
    payload         blob,
    occurred_at     integer,
    created_at      integer NOT NULL
        DEFAULT (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS integer)),
    attempts        integer NOT NULL DEFAULT 0,
    first_failed_at integer,
    next_attempt_at integer,
    last_status     integer,
    last_error      text,
    dead            integer NOT NULL DEFAULT 0,
    UNIQUE (endpoint_id, event_id)
);
CREATE INDEX IF NOT EXISTS outbox_webhook_order
    ON outbox_webhook_deliveries (endpoint_id, position);
-- Deliveries that failed and go again, and those that were given up on. Keys wait for the former.
CREATE INDEX IF NOT EXISTS outbox_webhook_failing
    ON outbox_webhook_deliveries (endpoint_id, dead, next_attempt_at) WHERE attempts > 0;
CREATE INDEX IF NOT EXISTS outbox_webhook_failing_keys
    ON outbox_webhook_deliveries (endpoint_id, key)
    WHERE attempts > 0 AND NOT dead AND key IS NOT NULL;

-- Who delivers: one relay at a time, as with the lease of an outbox. `locked`: the owner holds the
-- flock on the file beside the database.
CREATE TABLE IF NOT EXISTS outbox_webhook_lease (
    source      text PRIMARY KEY,
    owner       text,
    epoch       integer NOT NULL DEFAULT 0,
    acquired_at integer,
    expires_at  integer,
    locked      integer NOT NULL DEFAULT 0
);
