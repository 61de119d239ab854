-- Replays, a row for each run of `outbox replay`: what it sends, whereto, how far it is and who runs
-- it. `selection` is a JSON object; `destination` the URL without secrets where it is not the route's
-- own, `met` what the destination calls itself. `place` is the last event up to which all is sent
-- or refused, `place_end` the last that the run sends. A runner goes on for as long as `epoch` is its
-- own, and says each second or so until when it may be taken for alive.
CREATE TABLE IF NOT EXISTS outbox_replays (
    run          text PRIMARY KEY,
    source       text NOT NULL,
    route        text NOT NULL,
    selection    text NOT NULL,
    destination  text NOT NULL,
    met          text NOT NULL,
    rate         integer NOT NULL,
    as_new       integer NOT NULL,
    reason       text NOT NULL,
    os_user      text NOT NULL,
    role         text NOT NULL DEFAULT '',
    state        text NOT NULL DEFAULT 'running'
                 CHECK (state IN ('running', 'cancelled', 'finished', 'failed')),
    expected     integer NOT NULL,
    sent         integer NOT NULL DEFAULT 0,
    refused      integer NOT NULL DEFAULT 0,
    refusals     text NOT NULL DEFAULT '[]',
    place        text NOT NULL DEFAULT '',
    place_end    text NOT NULL,
    error        text NOT NULL DEFAULT '',
    runner       text NOT NULL DEFAULT '',
    epoch        integer NOT NULL DEFAULT 0,
    runner_until integer,
    rate_per_s   real NOT NULL DEFAULT 0,
    started_at   integer NOT NULL,
    updated_at   integer NOT NULL,
    ended_at     integer
);
