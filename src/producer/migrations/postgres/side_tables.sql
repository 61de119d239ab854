-- What the relay keeps beside an outbox table, an adopted one included.
-- `source` is the table as schema.table; one set of side tables serves several outbox tables.

CREATE TABLE IF NOT EXISTS outbox_lease (
    source        text PRIMARY KEY,
    owner         text,
    epoch         bigint NOT NULL DEFAULT 0,
    acquired_at   timestamptz,
    expires_at    timestamptz,
    backend_pid   integer,
    backend_start timestamptz
);

CREATE TABLE IF NOT EXISTS outbox_ledger (
    source     text NOT NULL,
    route      text NOT NULL,
    ranges     int8multirange NOT NULL DEFAULT '{}',
    epoch      bigint NOT NULL,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, route)
);

CREATE TABLE IF NOT EXISTS outbox_delivery (
    source          text NOT NULL,
    route           text NOT NULL,
    event_id        text NOT NULL,
    position        bigint,
    key             text,
    attempts        integer NOT NULL,
    next_attempt_at timestamptz NOT NULL,
    error_code      text NOT NULL,
    last_error      text NOT NULL,
    first_failed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, route, event_id)
);
-- For outbox_status, which looks up each row that it shows.
CREATE INDEX IF NOT EXISTS outbox_delivery_position ON outbox_delivery (position);

CREATE TABLE IF NOT EXISTS outbox_dead_letters (
    dead_id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source             text NOT NULL,
    route              text NOT NULL,
    position           bigint,
    id                 text NOT NULL,
    aggregate_type     text,
    aggregate_id       text,
    event_type         text,
    payload            bytea,
    headers            jsonb,
    metadata           jsonb,
    tenant_id          text,
    schema_id          text,
    schema_version     text,
    occurred_at        timestamptz,
    topic              text,
    key                text,
    routing_key        text,
    attempts           integer NOT NULL,
    error_code         text NOT NULL,
    error              text NOT NULL,
    died_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_requested_at timestamptz
);
CREATE UNIQUE INDEX IF NOT EXISTS outbox_dead_letters_event
    ON outbox_dead_letters (source, route, id);
CREATE INDEX IF NOT EXISTS outbox_dead_letters_retry
    ON outbox_dead_letters (source, route, dead_id) WHERE retry_requested_at IS NOT NULL;

-- Figures that outlive the rows: published_total and the like, one row per route.
CREATE TABLE IF NOT EXISTS outbox_route_stats (
    source          text NOT NULL,
    route           text NOT NULL,
    published_total bigint NOT NULL DEFAULT 0,
    dead_total      bigint NOT NULL DEFAULT 0,
    circuit         text NOT NULL DEFAULT 'closed',
    path            text NOT NULL DEFAULT 'polling',
    path_reason     text NOT NULL DEFAULT '',
    last_error      text,
    rate_per_s      double precision NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, route)
);
