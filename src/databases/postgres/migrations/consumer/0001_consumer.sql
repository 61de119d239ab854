-- Consumer's side: messages delivered without a broker, the ids of what was applied, and the
-- messages given up on. `migrate` fills in their schema and runs this with the search_path
-- pg_catalog, pg_temp: with another one what others made could fit better than the server's own.

{{mailbox}}

{{audit}}

-- Ids that a consumer has dealt with (applied, or moved to its dead letters), written in the
-- transaction of the effect. message_time is the event's own time, the same on each repeat.
CREATE TABLE {{schema}}.outbox_inbox (
    consumer     text NOT NULL,
    message_id   text NOT NULL CHECK (message_id <> ''),
    message_time timestamptz NOT NULL DEFAULT '-infinity',
    applied_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, message_id)
);

-- Messages whose handler failed for good, whole. Setting retry_requested_at has the consumer try
-- the message once more: the one of the mailbox that it came from, where it came from one.
CREATE TABLE {{schema}}.outbox_inbox_dead_letters (
    consumer           text NOT NULL,
    message_id         text NOT NULL,
    topic              text NOT NULL,
    key                text,
    headers            json,
    payload            bytea,
    attempts           integer NOT NULL,
    error_code         text NOT NULL,
    error              text NOT NULL,
    died_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_requested_at timestamptz,
    letter             bigint GENERATED ALWAYS AS IDENTITY UNIQUE,
    mailbox            text,
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX IF NOT EXISTS outbox_inbox_dead_letters_retry
    ON {{schema}}.outbox_inbox_dead_letters (consumer, retry_requested_at)
    WHERE retry_requested_at IS NOT NULL;

CREATE INDEX IF NOT EXISTS outbox_inbox_age ON {{schema}}.outbox_inbox USING brin (message_time)
    WITH (autosummarize = on);

-- Ids of messages from before a consumer's floor may have been pruned: such a message cannot be
-- known as new. Only pruning raises a floor.
CREATE TABLE {{schema}}.outbox_inbox_floor (
    consumer text PRIMARY KEY,
    floor    timestamptz NOT NULL DEFAULT '-infinity'
);

-- The last sequence number that a consumer has applied, for messages that carry one per key.
CREATE TABLE {{schema}}.outbox_inbox_sequences (
    consumer      text NOT NULL,
    key           text NOT NULL,
    last_sequence bigint NOT NULL,
    PRIMARY KEY (consumer, key)
) WITH (fillfactor = 80);

-- The offset that a consumer applies next in a partition of a log, set in the transaction of the
-- effect; and whose log that is: the Kafka cluster and the id of the record before it (its place and
-- time for one without an id, NULL where it is not known).
CREATE TABLE {{schema}}.outbox_inbox_offsets (
    consumer    text NOT NULL,
    topic       text NOT NULL,
    partition   integer NOT NULL,
    next_offset bigint NOT NULL,
    cluster_id  text NOT NULL DEFAULT '',
    last_id     text,
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, topic, partition)
) WITH (fillfactor = 50);

-- What a running consumer last said of itself.
CREATE TABLE {{schema}}.outbox_inbox_stats (
    consumer   text NOT NULL,
    member     text NOT NULL,
    applied    bigint NOT NULL,
    repeats    bigint NOT NULL,
    failed     bigint NOT NULL,
    dead       bigint NOT NULL,
    lag        bigint,
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, member)
) WITH (fillfactor = 50);

-- True: the message is new and now remembered; false: a repeat, or one that another transaction has
-- just applied (waits for that one to end). Call it first in the transaction that applies the
-- message. Under REPEATABLE READ and SERIALIZABLE a concurrent repeat raises 40001: run the
-- transaction again. message_time is the event's own time, the same on each repeat. A message that
-- the inbox does not know, from before the floor or more than a day ahead, raises OBQ01
-- (OB_QUARANTINED): put it aside.
CREATE FUNCTION {{schema}}.inbox_accept(consumer text, message_id text,
                                        message_time timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    the_floor timestamptz;
BEGIN
    INSERT INTO {{schema}}.outbox_inbox (consumer, message_id, message_time)
    VALUES (inbox_accept.consumer, inbox_accept.message_id,
            coalesce(inbox_accept.message_time, '-infinity'))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF inbox_accept.message_time > clock_timestamp() + interval '1 day' THEN
        RAISE EXCEPTION 'OB_QUARANTINED: message % has the time %, more than a day ahead of the '
            'database''s clock', inbox_accept.message_id, inbox_accept.message_time
            USING ERRCODE = 'OBQ01';
    END IF;
    -- A floor is at least two hours back, so younger messages need not look. An id is removed no
    -- earlier than its floor is raised, and this look comes after the insert: who could insert
    -- because the id was removed sees the floor. With a snapshot from before that it does not:
    -- there the lock raises 40001 instead.
    IF inbox_accept.message_time < clock_timestamp() - interval '1 hour'
            AND inbox_accept.message_time > '-infinity' THEN
        IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
            INSERT INTO {{schema}}.outbox_inbox_floor (consumer) VALUES (inbox_accept.consumer)
            ON CONFLICT DO NOTHING;
            SELECT f.floor INTO the_floor FROM {{schema}}.outbox_inbox_floor f
            WHERE f.consumer = inbox_accept.consumer FOR SHARE;
        ELSE
            SELECT f.floor INTO the_floor FROM {{schema}}.outbox_inbox_floor f
            WHERE f.consumer = inbox_accept.consumer;
        END IF;
        IF inbox_accept.message_time < the_floor THEN
            RAISE EXCEPTION 'OB_QUARANTINED: message % is from %, before the floor % of consumer %: '
                'its id may have been pruned, so it cannot be known as new',
                inbox_accept.message_id, inbox_accept.message_time, the_floor,
                inbox_accept.consumer
                USING ERRCODE = 'OBQ01';
        END IF;
    END IF;
    RETURN true;
END
$$;

-- Raises the floor of one consumer, or of each, to `retention` before now, or before the oldest
-- message that still waits in a mailbox, and removes ids from before it, at most max_rows; gives how
-- many. Waits for nobody: a floor that a transaction looks at is raised the next time. Retention
-- must cover how long a message can take and be repeated: the broker's retention, the longest
-- delay, the backlog, and the age of dead letters that are retried; two hours at least. Ids of
-- messages without a time are kept.
CREATE FUNCTION {{schema}}.inbox_prune(retention interval, max_rows integer DEFAULT 10000,
                                       consumer text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    new_floor timestamptz := clock_timestamp();
    removed bigint;
BEGIN
    IF inbox_prune.retention < interval '2 hours' THEN
        RAISE EXCEPTION 'an inbox must be kept for at least two hours, not %',
            inbox_prune.retention USING ERRCODE = '22023';
    END IF;
    IF has_table_privilege(E'{{schema_text}}.outbox_mailbox', 'SELECT') THEN
        new_floor := least(new_floor, (SELECT min(m.received_at) FROM {{schema}}.outbox_mailbox m));
    END IF;
    new_floor := new_floor - inbox_prune.retention;
    INSERT INTO {{schema}}.outbox_inbox_floor (consumer)
    WITH RECURSIVE names AS (
        (SELECT i.consumer FROM {{schema}}.outbox_inbox i ORDER BY i.consumer LIMIT 1)
        UNION ALL
        SELECT (SELECT i.consumer FROM {{schema}}.outbox_inbox i WHERE i.consumer > n.consumer
                ORDER BY i.consumer LIMIT 1)
        FROM names n WHERE n.consumer IS NOT NULL)
    SELECT inbox_prune.consumer WHERE inbox_prune.consumer IS NOT NULL
    UNION ALL
    SELECT n.consumer FROM names n
    WHERE inbox_prune.consumer IS NULL AND n.consumer IS NOT NULL ORDER BY 1
    ON CONFLICT DO NOTHING;
    UPDATE {{schema}}.outbox_inbox_floor u SET floor = new_floor
    FROM (SELECT f.consumer FROM {{schema}}.outbox_inbox_floor f
          WHERE f.floor < new_floor
              AND f.consumer = coalesce(inbox_prune.consumer, f.consumer)
          ORDER BY f.consumer FOR UPDATE SKIP LOCKED) l
    WHERE u.consumer = l.consumer;
    WITH old AS (
        SELECT i.ctid FROM {{schema}}.outbox_inbox i
            JOIN {{schema}}.outbox_inbox_floor f USING (consumer)
        WHERE i.message_time < f.floor AND i.message_time > '-infinity'
            AND i.message_time < new_floor
            AND i.consumer = coalesce(inbox_prune.consumer, i.consumer)
        LIMIT inbox_prune.max_rows)
    DELETE FROM {{schema}}.outbox_inbox i USING old WHERE i.ctid = old.ctid;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$;

-- Messages of a mailbox that failed and will be tried again; with their tries. They are a message's
-- own, not its place's: positions begin anew where the mailbox is emptied or restored.
CREATE TABLE {{schema}}.outbox_mailbox_tries (
    mailbox     text NOT NULL,
    position    bigint NOT NULL,
    id          text NOT NULL,
    attempts    integer NOT NULL,
    not_before  timestamptz NOT NULL DEFAULT '-infinity',
    error       text,
    PRIMARY KEY (mailbox, position)
);

-- The event's own time, as every consumer reads it: of a UUIDv7 (RFC 9562, section 5.7), else of the
-- header occurred_at; NULL where neither says it.
CREATE FUNCTION {{schema}}.outbox_message_time(message_id text, headers json)
RETURNS timestamptz
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF message_id ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$' THEN
        RETURN to_timestamp(('x' || substr(replace(message_id, '-', ''), 1, 12))::bit(48)::bigint
            / 1000.0);
    END IF;
    IF headers ->> 'occurred_at' ~ '^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,6})?Z$' THEN
        RETURN (headers ->> 'occurred_at')::timestamptz;
    END IF;
    RETURN NULL;
EXCEPTION WHEN data_exception THEN  -- a header that is no text of the database's, too
    RETURN NULL;
END
$$;

-- What a consumer counts of itself, one row for each of its sessions. A session that is new keeps
-- those that have said nothing for five minutes together under no name, and waits for nobody.
CREATE FUNCTION {{schema}}.outbox_mailbox_count(consumer text, applied bigint, repeats bigint,
                                                failed bigint, dead bigint)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    UPDATE {{schema}}.outbox_inbox_stats s SET applied = s.applied + outbox_mailbox_count.applied,
        repeats = s.repeats + outbox_mailbox_count.repeats,
        failed = s.failed + outbox_mailbox_count.failed,
        dead = s.dead + outbox_mailbox_count.dead, updated_at = clock_timestamp()
    WHERE s.consumer = outbox_mailbox_count.consumer AND s.member = 'sql/' || pg_backend_pid();
    IF FOUND THEN
        RETURN;
    END IF;
    INSERT INTO {{schema}}.outbox_inbox_stats AS s
        (consumer, member, applied, repeats, failed, dead)
    VALUES (consumer, 'sql/' || pg_backend_pid(), applied, repeats, failed, dead);
    IF NOT pg_try_advisory_xact_lock(hashtextextended(
            'outbox_inbox_stats ' || outbox_mailbox_count.consumer,
            E'{{schema_text}}.outbox_inbox_stats'::regclass::oid::bigint)) THEN
        RETURN;
    END IF;
    WITH silent AS (
        SELECT s.member FROM {{schema}}.outbox_inbox_stats s
        WHERE s.consumer = outbox_mailbox_count.consumer AND s.member LIKE 'sql/%'
            AND s.updated_at < clock_timestamp() - interval '5 minutes'
        FOR UPDATE SKIP LOCKED),
    gone AS (
        DELETE FROM {{schema}}.outbox_inbox_stats s USING silent
        WHERE s.consumer = outbox_mailbox_count.consumer AND s.member = silent.member
        RETURNING s.applied, s.repeats, s.failed, s.dead)
    INSERT INTO {{schema}}.outbox_inbox_stats AS s
        (consumer, member, applied, repeats, failed, dead)
    SELECT outbox_mailbox_count.consumer, '', sum(g.applied), sum(g.repeats), sum(g.failed),
        sum(g.dead) FROM gone g HAVING count(*) > 0
    ON CONFLICT (consumer, member) DO UPDATE SET
        applied = s.applied + excluded.applied, repeats = s.repeats + excluded.repeats,
        failed = s.failed + excluded.failed, dead = s.dead + excluded.dead,
        updated_at = clock_timestamp();
END
$$;

-- Moves a message to the consumer's dead letters; nothing where somebody has applied it.
CREATE FUNCTION {{schema}}.outbox_mailbox_bury(consumer text, mailbox text, "position" bigint,
                                               attempts integer, error_code text, error text)
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    m {{schema}}.outbox_mailbox;
BEGIN
    DELETE FROM {{schema}}.outbox_mailbox_tries t WHERE t.mailbox = outbox_mailbox_bury.mailbox
        AND t.position = outbox_mailbox_bury.position;
    DELETE FROM {{schema}}.outbox_mailbox b WHERE b.mailbox = outbox_mailbox_bury.mailbox
        AND b.position = outbox_mailbox_bury.position RETURNING b.* INTO m;
    IF m.id IS NULL THEN
        RETURN;
    END IF;
    INSERT INTO {{schema}}.outbox_inbox (consumer, message_id, message_time)
    VALUES (outbox_mailbox_bury.consumer, m.id,
            coalesce({{schema}}.outbox_message_time(m.id, m.headers), '-infinity'))
    ON CONFLICT DO NOTHING;
    IF NOT FOUND THEN
        RETURN;
    END IF;
    INSERT INTO {{schema}}.outbox_inbox_dead_letters (consumer, message_id, topic, key, headers,
        payload, attempts, error_code, error, mailbox)
    VALUES (outbox_mailbox_bury.consumer, m.id, m.topic, m.key, m.headers, m.payload,
        outbox_mailbox_bury.attempts, outbox_mailbox_bury.error_code, outbox_mailbox_bury.error,
        m.mailbox)
    ON CONFLICT (consumer, message_id) DO UPDATE SET attempts = excluded.attempts,
        error_code = excluded.error_code, error = excluded.error, died_at = excluded.died_at,
        retry_requested_at = NULL, mailbox = excluded.mailbox;
    PERFORM {{schema}}.outbox_mailbox_count(outbox_mailbox_bury.consumer, 0, 0, 0, 1);
END
$$;

-- The next messages of a mailbox, at most `max_messages` (1,000) and 16 MiB of payload and headers
-- (one message is given however large it is), in the order of each key, for this transaction: until
-- it ends no other member is given messages of their keys. Apply them, say outbox_mailbox_done for
-- each, and commit. Repeats are removed and not given. A key whose message failed is left out until
-- its wait is over. Under READ COMMITTED.
CREATE FUNCTION {{schema}}.outbox_mailbox_take(consumer text, mailbox text DEFAULT 'default',
                                               max_messages integer DEFAULT 100)
RETURNS TABLE ("position" bigint, id text, topic text, key text, headers json, payload bytea)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    salt constant bigint := E'{{schema_text}}.outbox_mailbox'::regclass::oid::bigint;
    name constant text := 'outbox_mailbox ' || outbox_mailbox_take.mailbox;
    lanes constant text := 'outbox_mailbox_key ' || length(outbox_mailbox_take.mailbox) || ' '
        || outbox_mailbox_take.mailbox || ' ';
    max_bytes constant bigint := 16 * 1024 * 1024;
    most integer := least(max_messages, 1000);
    bytes bigint := 0;
    m record;
    mine bigint[] := '{}';
    others bigint[] := '{}';
    letters bigint[] := '{}';
    places bigint[] := '{}';
    floor_now timestamptz;
    repeats bigint;
BEGIN
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'outbox_mailbox_take wants READ COMMITTED, not %',
            current_setting('transaction_isolation') USING ERRCODE = '25001';
    END IF;
    -- Each of these would give nothing, for ever.
    IF coalesce(outbox_mailbox_take.consumer, '') = '' OR outbox_mailbox_take.mailbox IS NULL
            OR max_messages < 1 THEN
        RAISE EXCEPTION 'outbox_mailbox_take wants the consumer''s name, a mailbox, and at least 1 '
            'message' USING ERRCODE = '22023';
    END IF;
    -- A MailboxConsumer of the library holds the whole mailbox.
    IF NOT pg_try_advisory_xact_lock_shared(hashtextextended(name, salt)) THEN
        RETURN;
    END IF;
    -- What an operator wants tried again stays a letter until it is done; it is given by a negative
    -- number.
    FOR m IN
        SELECT d.letter, coalesce(octet_length(d.payload), 0)
            + coalesce(octet_length(d.headers::text), 0) AS size
        FROM {{schema}}.outbox_inbox_dead_letters d
        WHERE d.consumer = outbox_mailbox_take.consumer AND d.retry_requested_at IS NOT NULL
            AND (d.mailbox IS NULL OR d.mailbox = outbox_mailbox_take.mailbox)
        ORDER BY d.retry_requested_at LIMIT greatest(most / 10, 1)
        FOR UPDATE SKIP LOCKED
    LOOP
        -- Half of the room is for fresh messages.
        EXIT WHEN bytes + m.size > max_bytes / 2 AND cardinality(letters) > 0;
        bytes := bytes + m.size;
        letters := letters || m.letter;
    END LOOP;
    most := most - cardinality(letters);

    -- Another member's keys are stepped over, 10,000 messages at most.
    FOR m IN
        SELECT b.position, hashtextextended(
                   lanes || coalesce(nullif(b.key, ''), chr(1) || b.position), salt) AS lane,
               t.not_before > clock_timestamp() AS waits,
               coalesce(octet_length(b.payload), 0)
                   + coalesce(octet_length(b.headers::text), 0) AS size
        FROM {{schema}}.outbox_mailbox b LEFT JOIN {{schema}}.outbox_mailbox_tries t
            ON t.mailbox = b.mailbox AND t.position = b.position AND t.id = b.id
        WHERE b.mailbox = outbox_mailbox_take.mailbox ORDER BY b.position LIMIT 10000
    LOOP
        EXIT WHEN cardinality(places) >= most;
        CONTINUE WHEN m.lane = ANY (others);
        IF m.waits THEN
            others := others || m.lane;
            CONTINUE;
        END IF;
        EXIT WHEN bytes + m.size > max_bytes AND cardinality(places) > 0;
        IF NOT m.lane = ANY (mine) THEN
            IF NOT pg_try_advisory_xact_lock(m.lane) THEN
                others := others || m.lane;
                CONTINUE;
            END IF;
            mine := mine || m.lane;
        END IF;
        bytes := bytes + m.size;
        places := places || m.position;
    END LOOP;

    -- With the keys in hand: a new look, in which what their last member finished is gone.
    WITH known AS (
        SELECT b.position FROM {{schema}}.outbox_mailbox b JOIN {{schema}}.outbox_inbox i
            ON i.consumer = outbox_mailbox_take.consumer AND i.message_id = b.id
        WHERE b.mailbox = outbox_mailbox_take.mailbox AND b.position = ANY (places)),
    gone AS (
        DELETE FROM {{schema}}.outbox_mailbox b USING known
        WHERE b.mailbox = outbox_mailbox_take.mailbox AND b.position = known.position
        RETURNING b.position),
    tries AS (
        DELETE FROM {{schema}}.outbox_mailbox_tries t USING gone
        WHERE t.mailbox = outbox_mailbox_take.mailbox AND t.position = gone.position)
    SELECT count(*) INTO repeats FROM gone;
    IF repeats > 0 THEN
        PERFORM {{schema}}.outbox_mailbox_count(outbox_mailbox_take.consumer, 0, repeats, 0, 0);
    END IF;
    -- After the look into the inbox: whoever prunes raises the floor before.
    SELECT f.floor INTO floor_now FROM {{schema}}.outbox_inbox_floor f
    WHERE f.consumer = outbox_mailbox_take.consumer;
    FOR m IN
        SELECT b.position, {{schema}}.outbox_message_time(b.id, b.headers) AS time
        FROM {{schema}}.outbox_mailbox b
        WHERE b.mailbox = outbox_mailbox_take.mailbox AND b.position = ANY (places)
            AND ({{schema}}.outbox_message_time(b.id, b.headers)
                     > clock_timestamp() + interval '1 day'
                 OR {{schema}}.outbox_message_time(b.id, b.headers) < floor_now)
    LOOP
        PERFORM {{schema}}.outbox_mailbox_bury(outbox_mailbox_take.consumer,
            outbox_mailbox_take.mailbox, m.position, 0, 'OB_QUARANTINED',
            'the message is from ' || m.time || ', before the inbox''s floor or more than a day ahead: it cannot be known as new');
    END LOOP;
    RETURN QUERY
        SELECT b.position, b.id, b.topic, b.key, b.headers, b.payload
        FROM {{schema}}.outbox_mailbox b
        WHERE b.mailbox = outbox_mailbox_take.mailbox AND b.position = ANY (places)
        ORDER BY b.position;
    RETURN QUERY
        SELECT -d.letter, d.message_id, d.topic, d.key, d.headers, d.payload
        FROM {{schema}}.outbox_inbox_dead_letters d WHERE d.letter = ANY (letters)
        ORDER BY d.retry_requested_at;
END
$$;

-- These messages are applied: to be said in the transaction that applied them and took them. Raises
-- 40001 where somebody else applied one meanwhile: roll back and take again. Said of a message that
-- was not taken it is done all the same, and who has it under way gets the 40001.
CREATE FUNCTION {{schema}}.outbox_mailbox_done(consumer text, mailbox text,
                                               VARIADIC positions bigint[])
RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    entered bigint;
    oldest timestamptz;
    delivered bigint;
BEGIN
    IF coalesce(outbox_mailbox_done.consumer, '') = '' OR outbox_mailbox_done.mailbox IS NULL
            OR positions IS NULL OR array_position(positions, NULL) IS NOT NULL THEN
        RAISE EXCEPTION 'outbox_mailbox_done wants the consumer''s name, a mailbox, and positions'
            USING ERRCODE = '22023';
    END IF;
    positions := ARRAY(SELECT DISTINCT p FROM unnest(positions) AS p);
    WITH gone AS (
        DELETE FROM {{schema}}.outbox_mailbox b WHERE b.mailbox = outbox_mailbox_done.mailbox
            AND b.position = ANY (positions) RETURNING b.id, b.headers),
    entries AS (
        INSERT INTO {{schema}}.outbox_inbox (consumer, message_id, message_time)
        SELECT outbox_mailbox_done.consumer, g.id,
               coalesce({{schema}}.outbox_message_time(g.id, g.headers), '-infinity')
        FROM gone g ORDER BY g.id ON CONFLICT DO NOTHING RETURNING message_time)
    SELECT count(*), min(message_time) FILTER (WHERE message_time > '-infinity')
    INTO entered, oldest FROM entries;
    -- A letter's id is in the inbox since it died, unless it was pruned.
    WITH letters AS (
        DELETE FROM {{schema}}.outbox_inbox_dead_letters d
        WHERE d.consumer = outbox_mailbox_done.consumer AND d.retry_requested_at IS NOT NULL
            AND (d.mailbox IS NULL OR d.mailbox = outbox_mailbox_done.mailbox)
            AND d.letter = ANY (ARRAY(SELECT -p FROM unnest(positions) AS p))
        RETURNING d.message_id, d.headers),
    again AS (
        INSERT INTO {{schema}}.outbox_inbox (consumer, message_id, message_time)
        SELECT outbox_mailbox_done.consumer, l.message_id,
               coalesce({{schema}}.outbox_message_time(l.message_id, l.headers), '-infinity')
        FROM letters l ON CONFLICT DO NOTHING)
    SELECT count(*) INTO delivered FROM letters;
    IF entered + delivered <> cardinality(positions) THEN
        RAISE EXCEPTION 'OB_CONFLICT: a message was applied by somebody else meanwhile, or was '
            'not taken in this transaction' USING ERRCODE = '40001';
    END IF;
    -- What the inbox knew of it may have been pruned meanwhile.
    IF oldest < (SELECT f.floor FROM {{schema}}.outbox_inbox_floor f
                 WHERE f.consumer = outbox_mailbox_done.consumer) THEN
        RAISE EXCEPTION 'OB_CONFLICT: the inbox was pruned meanwhile' USING ERRCODE = '40001';
    END IF;
    entered := entered + delivered;
    DELETE FROM {{schema}}.outbox_mailbox_tries t WHERE t.mailbox = outbox_mailbox_done.mailbox
        AND t.position = ANY (positions);
    PERFORM {{schema}}.outbox_mailbox_count(outbox_mailbox_done.consumer, entered, 0, 0, 0);
END
$$;

-- This message could not be applied: to be said in a transaction of its own after the rollback. Its
-- key waits, 1 s at first and twice as long each time, at most a minute; after max_attempts the
-- message goes to the consumer's dead letters and its key goes on. True: it did. Of a message that is
-- not there any more nothing is counted.
CREATE FUNCTION {{schema}}.outbox_mailbox_failed(consumer text, mailbox text, "position" bigint,
                                                 error text, max_attempts integer DEFAULT 5)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    tries integer;
    message_id text;
BEGIN
    IF coalesce(outbox_mailbox_failed.consumer, '') = '' OR outbox_mailbox_failed.mailbox IS NULL
            OR outbox_mailbox_failed.position IS NULL OR coalesce(max_attempts, 0) < 1 THEN
        RAISE EXCEPTION 'outbox_mailbox_failed wants the consumer''s name, a mailbox, a position, '
            'and at least 1 attempt' USING ERRCODE = '22023';
    END IF;
    outbox_mailbox_failed.error := coalesce(left(outbox_mailbox_failed.error, 4096), '');
    IF outbox_mailbox_failed.position < 0 THEN
        UPDATE {{schema}}.outbox_inbox_dead_letters d SET attempts = d.attempts + 1,
            error_code = 'OB_HANDLER_FAILED', error = outbox_mailbox_failed.error,
            died_at = clock_timestamp(), retry_requested_at = NULL
        WHERE d.consumer = outbox_mailbox_failed.consumer
            AND d.letter = -outbox_mailbox_failed.position AND d.retry_requested_at IS NOT NULL
            AND (d.mailbox IS NULL OR d.mailbox = outbox_mailbox_failed.mailbox);
        IF FOUND THEN
            PERFORM {{schema}}.outbox_mailbox_count(outbox_mailbox_failed.consumer, 0, 0, 1, 1);
        END IF;
        RETURN FOUND;
    END IF;
    SELECT b.id INTO message_id FROM {{schema}}.outbox_mailbox b
    WHERE b.mailbox = outbox_mailbox_failed.mailbox
        AND b.position = outbox_mailbox_failed.position FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {{schema}}.outbox_mailbox_tries t WHERE t.mailbox = outbox_mailbox_failed.mailbox
        AND t.position = outbox_mailbox_failed.position AND t.id <> message_id;
    INSERT INTO {{schema}}.outbox_mailbox_tries AS t
        (mailbox, position, id, attempts, not_before, error)
    VALUES (outbox_mailbox_failed.mailbox, outbox_mailbox_failed.position, message_id, 1,
            clock_timestamp() + interval '1 second', outbox_mailbox_failed.error)
    ON CONFLICT (mailbox, position) DO UPDATE SET attempts = t.attempts + 1,
        not_before = clock_timestamp() + least(60, 2 ^ t.attempts) * interval '1 second',
        error = excluded.error
    RETURNING t.attempts INTO tries;
    PERFORM {{schema}}.outbox_mailbox_count(outbox_mailbox_failed.consumer, 0, 0, 1, 0);
    -- Of messages that somebody took by another way nothing is kept.
    IF tries = 1 THEN
        DELETE FROM {{schema}}.outbox_mailbox_tries t USING (
            SELECT o.mailbox, o.position FROM {{schema}}.outbox_mailbox_tries o
            WHERE NOT EXISTS (SELECT FROM {{schema}}.outbox_mailbox b
                              WHERE b.mailbox = o.mailbox AND b.position = o.position
                                  AND b.id = o.id)
            LIMIT 1000 FOR UPDATE OF o SKIP LOCKED) gone
        WHERE t.mailbox = gone.mailbox AND t.position = gone.position;
    END IF;
    IF tries < max_attempts THEN
        RETURN false;
    END IF;
    PERFORM {{schema}}.outbox_mailbox_bury(outbox_mailbox_failed.consumer,
        outbox_mailbox_failed.mailbox, outbox_mailbox_failed.position, tries, 'OB_HANDLER_FAILED',
        outbox_mailbox_failed.error);
    RETURN true;
END
$$;

-- Requests that carry an Idempotency-Key, with the answer they were given. Without a status the
-- request is under way (lease_until set) or was committed without an answer. A name that several
-- headers have is one member of `headers` with an array.
CREATE TABLE {{schema}}.outbox_idempotency (
    scope       text NOT NULL,
    key         text NOT NULL CHECK (key <> ''),
    fingerprint text NOT NULL,
    attempt     integer NOT NULL DEFAULT 1,
    lease_until timestamptz,
    status      integer,
    headers     json,
    body        bytea,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS outbox_idempotency_expiry ON {{schema}}.outbox_idempotency (expires_at);

-- Claims the key for the transaction that does the request's work, so that the claim lives and dies
-- with it. state: 'new' (do the work, then idempotency_complete), 'repeat' (give the stored answer;
-- a null status: it was done and no answer was kept), 'running' (another transaction has it now),
-- 'mismatch' (the key was used for another request). Never waits. With a lease the claim is to be
-- committed before the work, which may then change things outside the database: a lease that ran
-- out is taken over, and attempt says how often. The scope is the authenticated caller.
CREATE FUNCTION {{schema}}.idempotency_claim(scope text, key text, fingerprint text,
                                             retention interval DEFAULT '1 day',
                                             lease interval DEFAULT NULL,
                                             OUT state text, OUT attempt integer, OUT status integer,
                                             OUT headers json, OUT body bytea)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    known {{schema}}.outbox_idempotency%ROWTYPE;
BEGIN
    -- It would be 'running' for ever.
    IF idempotency_claim.scope IS NULL OR coalesce(idempotency_claim.key, '') = ''
            OR idempotency_claim.fingerprint IS NULL THEN
        RAISE EXCEPTION 'idempotency_claim wants a scope, a key and a fingerprint'
            USING ERRCODE = '22004';
    END IF;
    IF pg_try_advisory_xact_lock(
            hashtextextended(idempotency_claim.scope || E'\x1f' || idempotency_claim.key,
                             E'{{schema_text}}.outbox_idempotency'::regclass::oid::bigint)) THEN
        -- Not even tried beside a row: the insert would wait for who changes that.
        INSERT INTO {{schema}}.outbox_idempotency (scope, key, fingerprint, lease_until, expires_at)
        SELECT idempotency_claim.scope, idempotency_claim.key, idempotency_claim.fingerprint,
               clock_timestamp() + idempotency_claim.lease,
               clock_timestamp() + greatest(idempotency_claim.retention, idempotency_claim.lease)
        WHERE NOT EXISTS (SELECT FROM {{schema}}.outbox_idempotency i
                          WHERE i.scope = idempotency_claim.scope AND i.key = idempotency_claim.key)
        ON CONFLICT (scope, key) DO NOTHING;
        IF FOUND THEN
            idempotency_claim.state := 'new';
            idempotency_claim.attempt := 1;
            RETURN;
        END IF;
        -- An attempt's number is not given again while its owner may yet come back.
        UPDATE {{schema}}.outbox_idempotency i
        SET attempt = CASE WHEN i.attempt = 1 AND (i.status IS NOT NULL OR i.lease_until IS NULL)
                THEN 1 ELSE i.attempt + 1 END,
            fingerprint = idempotency_claim.fingerprint,
            lease_until = clock_timestamp() + idempotency_claim.lease,
            status = NULL, headers = NULL, body = NULL,
            created_at = clock_timestamp(),
            expires_at = clock_timestamp()
                + greatest(idempotency_claim.retention, idempotency_claim.lease)
        FROM (SELECT f.scope, f.key FROM {{schema}}.outbox_idempotency f
              WHERE f.scope = idempotency_claim.scope AND f.key = idempotency_claim.key
                  AND (f.expires_at <= clock_timestamp()
                      OR (f.status IS NULL AND f.lease_until <= clock_timestamp()
                          AND f.fingerprint = idempotency_claim.fingerprint))
              -- Its late owner may be about to commit an answer: then it is running.
              FOR UPDATE SKIP LOCKED) free
        WHERE i.scope = free.scope AND i.key = free.key
        RETURNING i.attempt INTO idempotency_claim.attempt;
        IF FOUND THEN
            idempotency_claim.state := 'new';
            RETURN;
        END IF;
    END IF;
    -- Who does not get the lock may still find an answer: repeats do not hinder each other.
    SELECT * INTO known FROM {{schema}}.outbox_idempotency i
    WHERE i.scope = idempotency_claim.scope AND i.key = idempotency_claim.key
        AND i.expires_at > clock_timestamp();
    IF NOT FOUND THEN
        idempotency_claim.state := 'running';
        RETURN;
    END IF;
    idempotency_claim.attempt := known.attempt;
    IF known.fingerprint <> idempotency_claim.fingerprint THEN
        idempotency_claim.state := 'mismatch';
    ELSIF known.status IS NULL AND known.lease_until IS NOT NULL THEN
        idempotency_claim.state := 'running';
    ELSE
        idempotency_claim.state := 'repeat';
        idempotency_claim.status := known.status;
        idempotency_claim.headers := known.headers;
        idempotency_claim.body := known.body;
    END IF;
END
$$;

-- Keeps the answer for repeats, without headers that belong to one caller's session. False: the
-- claim is not this attempt's any more (its lease ran out and another took over): roll back. With
-- `must_hold` that is the error OBK01, so that a COMMIT sent together with it commits nothing.
CREATE FUNCTION {{schema}}.idempotency_complete(scope text, key text, attempt integer,
                                                status integer, headers json DEFAULT NULL,
                                                body bytea DEFAULT NULL,
                                                must_hold boolean DEFAULT false)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    cleaned boolean := false;
BEGIN
    -- A backslash may hide a letter of a name. Few answers pay for the long way.
    IF headers::text ~* 'set-cookie|authorization|\\' THEN
        -- No text holds a NUL or half of a surrogate pair, and no header either: '?' for those, not
        -- an error that would leave the work undone and the key claimed.
        LOOP
            BEGIN
                idempotency_complete.headers := (
                    SELECT json_object_agg(h.key, h.value)
                    FROM json_each(idempotency_complete.headers) h
                    WHERE lower(h.key) NOT IN ('set-cookie', 'authorization'));
                EXIT;
            EXCEPTION WHEN untranslatable_character OR invalid_text_representation THEN
                IF cleaned THEN
                    RAISE;
                END IF;
                cleaned := true;
                idempotency_complete.headers := regexp_replace(headers::text,
                    '(?<!\\)((?:\\\\)*)\\u(?:0000|[dD][89a-fA-F][0-9a-fA-F]{2})', '\1?', 'g')::json;
            END;
        END LOOP;
    END IF;
    UPDATE {{schema}}.outbox_idempotency i
    SET status = idempotency_complete.status, headers = idempotency_complete.headers,
        body = idempotency_complete.body, lease_until = NULL
    WHERE i.scope = idempotency_complete.scope AND i.key = idempotency_complete.key
        AND i.attempt = idempotency_complete.attempt AND i.status IS NULL;
    IF idempotency_complete.must_hold AND NOT FOUND THEN
        RAISE EXCEPTION 'OB_CONFLICT: the claim on key % is not attempt %''s any more',
            idempotency_complete.key, idempotency_complete.attempt USING ERRCODE = 'OBK01';
    END IF;
    RETURN FOUND;
END
$$;

-- Gives a leased claim back after work that changed nothing, so that a repeat need not wait.
CREATE FUNCTION {{schema}}.idempotency_release(scope text, key text, attempt integer)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    UPDATE {{schema}}.outbox_idempotency i SET lease_until = '-infinity'
    WHERE i.scope = idempotency_release.scope AND i.key = idempotency_release.key
        AND i.attempt = idempotency_release.attempt AND i.status IS NULL
        AND i.lease_until IS NOT NULL;
    RETURN FOUND;
END
$$;

-- Removes expired keys, at most max_rows; gives how many. One whose lease ran out without an answer
-- stays for a week longer, so that its late owner finds another attempt and not its own.
CREATE FUNCTION {{schema}}.idempotency_prune(max_rows integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    removed bigint;
BEGIN
    WITH old AS (
        SELECT i.ctid FROM {{schema}}.outbox_idempotency i
        WHERE i.expires_at <= statement_timestamp()
            AND ((i.attempt = 1 AND (i.status IS NOT NULL OR i.lease_until IS NULL))
                 OR i.expires_at <= statement_timestamp() - interval '7 days')
        ORDER BY i.expires_at LIMIT max_rows FOR UPDATE SKIP LOCKED)
    DELETE FROM {{schema}}.outbox_idempotency i USING old WHERE i.ctid = old.ctid;
    GET DIAGNOSTICS removed = ROW_COUNT;
    RETURN removed;
END
$$;

-- Sagas that this service leads, beside its business data; each transition is one transaction with
-- the inbox and the outbox. state says what is awaited, `steps` what was sent and what became of it,
-- leader the topic of answers when it began, cause why it turned back, trouble why it is stuck or a request was refused. Open sagas without
-- progress for ten minutes:
--   SELECT saga_id, name, state, step, trouble FROM outbox_saga
--   WHERE finished_at IS NULL AND updated_at < now() - interval '10 minutes' ORDER BY started_at;
CREATE TABLE {{schema}}.outbox_saga (
    saga_id     text PRIMARY KEY CHECK (saga_id <> ''),
    name        text NOT NULL,
    version     integer NOT NULL,
    state       text NOT NULL
        CHECK (state IN ('running', 'compensating', 'stuck', 'completed', 'compensated')),
    step        text,
    steps       json NOT NULL,
    data        text NOT NULL,
    leader      text NOT NULL,
    topic       text NOT NULL,
    timer       bigint NOT NULL,
    due_at      timestamptz,
    cause       text,
    trouble     text,
    requested   text CHECK (requested IN ('abort', 'resume')),
    started_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at timestamptz
) WITH (fillfactor = 50);
-- On columns that no transition but the last one changes, so that the others stay on their page.
CREATE INDEX IF NOT EXISTS outbox_saga_open ON {{schema}}.outbox_saga (started_at) WHERE finished_at IS NULL;
CREATE INDEX IF NOT EXISTS outbox_saga_finished ON {{schema}}.outbox_saga (finished_at)
    WHERE finished_at IS NOT NULL;

-- What a participant has done with the steps of sagas that others lead (two leaders may use one id):
-- done, refused, or undone (a
-- command that comes after its compensation finds that and does nothing).
CREATE TABLE {{schema}}.outbox_saga_steps (
    leader     text NOT NULL,
    saga_id    text NOT NULL,
    step       text NOT NULL,
    state      text NOT NULL CHECK (state IN ('done', 'refused', 'undone')),
    updated_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (leader, saga_id, step)
) WITH (fillfactor = 70);
CREATE INDEX IF NOT EXISTS outbox_saga_steps_age ON {{schema}}.outbox_saga_steps USING brin (updated_at)
    WITH (autosummarize = on);

-- Removes sagas that finished, and steps that a participant last changed, longer ago than
-- `retention`, at most max_rows of each; gives how many. Retention as for inbox_prune; open sagas
-- stay, so their participants' retention must be longer than a saga can take.
CREATE FUNCTION {{schema}}.saga_prune(retention interval, max_rows integer DEFAULT 10000)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    sagas bigint;
    steps bigint;
BEGIN
    WITH old AS (
        SELECT s.ctid FROM {{schema}}.outbox_saga s
        WHERE s.finished_at < statement_timestamp() - retention
        ORDER BY s.finished_at LIMIT max_rows FOR UPDATE SKIP LOCKED)
    DELETE FROM {{schema}}.outbox_saga s USING old WHERE s.ctid = old.ctid;
    GET DIAGNOSTICS sagas = ROW_COUNT;
    WITH old AS (
        SELECT s.ctid FROM {{schema}}.outbox_saga_steps s
        WHERE s.updated_at < statement_timestamp() - retention
        LIMIT max_rows FOR UPDATE SKIP LOCKED)
    DELETE FROM {{schema}}.outbox_saga_steps s USING old WHERE s.ctid = old.ctid;
    GET DIAGNOSTICS steps = ROW_COUNT;
    RETURN sagas + steps;
END
$$;
