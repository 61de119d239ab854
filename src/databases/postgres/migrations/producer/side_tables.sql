-- What the relay keeps beside an outbox table, an adopted one included.
-- `source` is the table as schema.table; one set of side tables serves several outbox tables.
-- Run with the search_path pg_catalog, pg_temp.

CREATE TABLE IF NOT EXISTS {{schema}}.outbox_lease (
    source        text PRIMARY KEY,
    owner         text,
    epoch         bigint NOT NULL DEFAULT 0,
    acquired_at   timestamptz,
    expires_at    timestamptz,
    backend_pid   integer,
    backend_start timestamptz
);

-- The routes that a source has, and what the destination of each calls itself: what the ledger says
-- is finished holds for that one. NULL: whatever is met next. `life` names the table and the
-- numbering of its ids, where those could come again (NULL: whatever is met next). `filter` names
-- what a route takes: what it passed over by another one is not finished. `first`: it answers for
-- what nobody takes.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_routes (
    source      text NOT NULL,
    route       text NOT NULL,
    destination text,
    life        text,
    filter      text,
    first       boolean NOT NULL DEFAULT false,
    since       timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, route)
);

-- An earlier version kept all ranges of a route in one row.
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute
               WHERE attrelid = to_regclass(E'{{schema_text}}.outbox_ledger')
               AND attname = 'ranges' AND NOT attisdropped) THEN
        -- Nobody else can have made a table there.
        CREATE TEMP TABLE outbox_ledger_of_ranges AS SELECT * FROM {{schema}}.outbox_ledger;
        DROP TABLE {{schema}}.outbox_ledger;
    END IF;
END
$$;

-- What each route has finished and is still in the table, by 65,536 positions: bit n of a segment
-- stands for position segment * 65536 + n. `life` names the table and its numbering (NULL: of an
-- earlier version); where it names another one, these bits mean other events. `passed` are those of
-- `done` that the route only passed over, as its filter does not want them.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_ledger (
    source  text NOT NULL,
    route   text NOT NULL,
    segment bigint NOT NULL,
    life    text,
    done    bit(65536) NOT NULL,
    passed  bit(65536),
    PRIMARY KEY (source, route, segment)
) WITH (fillfactor = 50);

DO $$
BEGIN
    IF to_regclass('pg_temp.outbox_ledger_of_ranges') IS NOT NULL THEN
        INSERT INTO {{schema}}.outbox_ledger (source, route, segment, done)
        SELECT o.source, o.route, s.segment,
               (SELECT string_agg((o.ranges @> p)::integer::text, '' ORDER BY p)
                FROM generate_series(s.segment * 65536, s.segment * 65536 + 65535) AS p
               )::bit(65536)
        FROM pg_temp.outbox_ledger_of_ranges o,
             LATERAL (SELECT DISTINCT g AS segment FROM unnest(o.ranges) AS r,
                      generate_series(lower(r) / 65536, (upper(r) - 1) / 65536) AS g) s;
        INSERT INTO {{schema}}.outbox_routes (source, route)
        SELECT source, route FROM {{schema}}.outbox_route_stats UNION
        SELECT source, route FROM pg_temp.outbox_ledger_of_ranges;
        DROP TABLE pg_temp.outbox_ledger_of_ranges;
    END IF;
END
$$;

-- Of tables whose rows have no lasting position: what one route has finished while another has not.
-- Route '' stands for all: the row could not be marked then, and is owed its mark. `passed`: the
-- route only passed it over, as its filter does not want it.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_route_done (
    source   text NOT NULL,
    event_id text NOT NULL,
    route    text NOT NULL,
    passed   boolean NOT NULL DEFAULT false,
    PRIMARY KEY (source, event_id, route)
);
CREATE INDEX IF NOT EXISTS outbox_route_done_owed
    ON {{schema}}.outbox_route_done (source) WHERE route = '';

CREATE TABLE IF NOT EXISTS {{schema}}.outbox_delivery (
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
CREATE INDEX IF NOT EXISTS outbox_delivery_position ON {{schema}}.outbox_delivery (position);

CREATE TABLE IF NOT EXISTS {{schema}}.outbox_dead_letters (
    dead_id            bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    source             text NOT NULL,
    route              text NOT NULL,
    position           bigint,
    id                 text NOT NULL,
    aggregate_type     text,
    aggregate_id       text,
    event_type         text,
    payload            bytea,
    headers            text,  -- as they were: they may be why it died
    metadata           text,
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
    unmatched          boolean NOT NULL DEFAULT false,  -- no route took it; `route` only keeps it
    died_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_requested_at timestamptz
);
DO $$
BEGIN
    IF EXISTS (SELECT FROM pg_attribute
               WHERE attrelid = E'{{schema_text}}.outbox_dead_letters'::regclass
               AND attname = 'headers' AND atttypid = 'jsonb'::regtype) THEN
        ALTER TABLE {{schema}}.outbox_dead_letters
            ALTER headers TYPE text, ALTER metadata TYPE text;
    END IF;
END
$$;
-- Two events may have one id.
CREATE UNIQUE INDEX IF NOT EXISTS outbox_dead_letters_event
    ON {{schema}}.outbox_dead_letters (source, route, id, coalesce(position, 0));
CREATE INDEX IF NOT EXISTS outbox_dead_letters_retry
    ON {{schema}}.outbox_dead_letters (source, route, dead_id) WHERE retry_requested_at IS NOT NULL;

-- Figures that outlive the rows: published_total and the like, one row per route.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_route_stats (
    source          text NOT NULL,
    route           text NOT NULL,
    published_total bigint NOT NULL DEFAULT 0,
    dead_total      bigint NOT NULL DEFAULT 0,
    circuit         text NOT NULL DEFAULT 'closed',
    path            text NOT NULL DEFAULT 'polling',
    path_reason     text NOT NULL DEFAULT '',
    last_error      text,
    last_error_at   timestamptz,
    rate_per_s      double precision NOT NULL DEFAULT 0,
    updated_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, route)
);

-- Relays that wait for the lease, as each last said of itself; `routes` are the names of theirs, one
-- on each line.
CREATE TABLE IF NOT EXISTS {{schema}}.outbox_standbys (
    source  text NOT NULL,
    owner   text NOT NULL,
    routes  text NOT NULL,
    seen_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (source, owner)
);

{{audit}}
