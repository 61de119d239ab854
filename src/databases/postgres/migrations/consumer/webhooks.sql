-- Where webhooks go. `events`: patterns of event types with commas between them, in which '*' stands for
-- any text. `tenant_id`: only events of this tenant (NULL: of all). `secrets` are sealed with the key in
-- the relay's key file. `revision` rises with each change of what an operator says. Remove one with
-- `outbox webhook delete`, which also removes what is still to be delivered to it.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_webhook_endpoints (
    endpoint_id     text PRIMARY KEY
        CHECK (endpoint_id <> '' AND octet_length(endpoint_id) <= 64),
    url             text NOT NULL CHECK (url <> ''),
    events          text NOT NULL DEFAULT '*',
    tenant_id       text,
    state           text NOT NULL DEFAULT 'enabled' CHECK (state IN ('enabled', 'disabled')),
    reason          text NOT NULL DEFAULT '',
    secrets         text NOT NULL,
    revision        bigint NOT NULL DEFAULT 1,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    -- What the dispatcher last said of it; times are its own.
    failing_since   timestamptz,
    failures        integer NOT NULL DEFAULT 0,
    last_attempt_at timestamptz,
    paused_until    timestamptz,
    last_status     integer,
    last_error      text,
    delivered_total bigint NOT NULL DEFAULT 0,
    missed_total    bigint NOT NULL DEFAULT 0  -- events that found its queue full
) WITH (fillfactor = 50);

-- What is still to be delivered, a row for each endpoint and event. Readers go by the rows that are
-- there, never by a remembered position. `dead`: given up on; kept until an operator enables the
-- endpoint or deletes it.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_webhook_deliveries (
    position        bigint GENERATED ALWAYS AS IDENTITY (CACHE 1),
    endpoint_id     text NOT NULL,
    event_id        text NOT NULL CHECK (event_id <> '' AND octet_length(event_id) <= 255),
    event_type      text NOT NULL DEFAULT '',
    key             text,
    headers         json CHECK (json_typeof(headers) = 'object'),
    payload         bytea,
    occurred_at     timestamptz,
    created_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    attempts        integer NOT NULL DEFAULT 0,
    first_failed_at timestamptz,
    next_attempt_at timestamptz,
    last_status     integer,
    last_error      text,
    dead            boolean NOT NULL DEFAULT false,
    PRIMARY KEY (endpoint_id, position),
    UNIQUE (endpoint_id, event_id)
);
-- Deliveries that failed and go again; their keys wait for them.
CREATE INDEX IF NOT EXISTS outbox_webhook_failing
    ON {{schema}}.outbox_webhook_deliveries (endpoint_id, next_attempt_at)
    WHERE attempts > 0 AND NOT dead;
CREATE INDEX IF NOT EXISTS outbox_webhook_failing_keys
    ON {{schema}}.outbox_webhook_deliveries (endpoint_id, hashtextextended(key, 0))
    WHERE attempts > 0 AND NOT dead AND key IS NOT NULL;

-- Who delivers: one relay at a time, as with the lease of an outbox.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_webhook_lease (
    source        text PRIMARY KEY,
    owner         text,
    epoch         bigint NOT NULL DEFAULT 0,
    acquired_at   timestamptz,
    expires_at    timestamptz,
    backend_pid   integer,
    backend_start timestamptz
);
