-- What the relay keeps beside an outbox table, an adopted one included. `source` is the table's
-- name; one set of side tables serves several outbox tables. Times are microseconds since the
-- Unix epoch.

-- `locked`: the owner holds the flock on the file beside the database.
CREATE TABLE IF NOT EXISTS outbox_lease (
    source      text PRIMARY KEY,
    owner       text,
    epoch       integer NOT NULL DEFAULT 0,
    acquired_at integer,
    expires_at  integer,
    locked      integer NOT NULL DEFAULT 0
);

-- The routes that a source has, and what the destination of each calls itself: what the ledger says
-- is finished holds for that one. NULL: whatever is met next. `filter` names what a route takes:
-- what it passed over by another one is not finished. `first`: it answers for what nobody takes.
CREATE TABLE IF NOT EXISTS outbox_routes (
    source      text NOT NULL,
    route       text NOT NULL,
    destination text,
    filter      text,
    first       integer NOT NULL DEFAULT 0,
    since       integer NOT NULL,
    PRIMARY KEY (source, route)
);

-- What each route has finished and is still in the table, by 65,536 positions: bit n of a segment,
-- the highest of a byte first, stands for position segment * 65536 + n. `passed` are those of `done`
-- that the route only passed over, as its filter does not want them.
CREATE TABLE IF NOT EXISTS outbox_ledger_segments (
    source  text NOT NULL,
    route   text NOT NULL,
    segment integer NOT NULL,
    done    blob NOT NULL,
    passed  blob,
    PRIMARY KEY (source, route, segment)
);

-- Of tables whose rows have no lasting position: what one route has finished while another has not.
-- `passed`: the route only passed it over, as its filter does not want it.
CREATE TABLE IF NOT EXISTS outbox_route_done (
    source   text NOT NULL,
    event_id text NOT NULL,
    route    text NOT NULL,
    passed   integer NOT NULL DEFAULT 0,
    PRIMARY KEY (source, event_id, route)
) WITHOUT ROWID;

CREATE TABLE IF NOT EXISTS outbox_delivery (
    source          text NOT NULL,
    route           text NOT NULL,
    event_id        text NOT NULL,
    position        integer,
    key             text,
    attempts        integer NOT NULL,
    next_attempt_at integer NOT NULL,
    error_code      text NOT NULL,
    last_error      text NOT NULL,
    first_failed_at integer NOT NULL,
    PRIMARY KEY (source, route, event_id)
);
-- For outbox_status, which looks up each row that it shows.
CREATE INDEX IF NOT EXISTS outbox_delivery_position ON outbox_delivery (position);

CREATE TABLE IF NOT EXISTS outbox_dead_letters (
    dead_id            INTEGER PRIMARY KEY AUTOINCREMENT,
    source             text NOT NULL,
    route              text NOT NULL,
    position           integer,
    id                 text NOT NULL,
    aggregate_type     text,
    aggregate_id       text,
    event_type         text,
    payload            blob,
    headers            text,
    metadata           text,
    tenant_id          text,
    schema_id          text,
    schema_version     text,
    occurred_at        integer,
    topic              text,
    key                text,
    routing_key        text,
    attempts           integer NOT NULL,
    error_code         text NOT NULL,
    error              text NOT NULL,
    unmatched          integer NOT NULL DEFAULT 0,  -- no route took it; `route` only keeps it
    died_at            integer NOT NULL,
    retry_requested_at integer
);
-- Two events may have one id.
CREATE UNIQUE INDEX IF NOT EXISTS outbox_dead_letters_event
    ON outbox_dead_letters (source, route, id, coalesce(position, 0));
CREATE INDEX IF NOT EXISTS outbox_dead_letters_retry
    ON outbox_dead_letters (source, route, dead_id) WHERE retry_requested_at IS NOT NULL;

-- Figures that outlive the rows: published_total and the like, one row per route.
CREATE TABLE IF NOT EXISTS outbox_route_stats (
    source          text NOT NULL,
    route           text NOT NULL,
    published_total integer NOT NULL DEFAULT 0,
    dead_total      integer NOT NULL DEFAULT 0,
    circuit         text NOT NULL DEFAULT 'closed',
    path            text NOT NULL DEFAULT 'polling',
    path_reason     text NOT NULL DEFAULT '',
    last_error      text,
    last_error_at   integer,
    rate_per_s      real NOT NULL DEFAULT 0,
    updated_at      integer NOT NULL,
    PRIMARY KEY (source, route)
);

-- Relays that wait for the lease, as each last said of itself; `routes` are the names of theirs, one
-- on each line.
CREATE TABLE IF NOT EXISTS outbox_standbys (
    source  text NOT NULL,
    owner   text NOT NULL,
    routes  text NOT NULL,
    seen_at integer NOT NULL,
    PRIMARY KEY (source, owner)
);

{{audit}}
