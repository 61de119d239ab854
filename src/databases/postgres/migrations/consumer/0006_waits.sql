-- A wait that is longer than any that outbox_mailbox_failed gives (a minute) was stored before the
-- server's clock was set back: what is left of it is not known, and it is over. Else as in
-- 0001_consumer.sql.
CREATE OR REPLACE FUNCTION {{schema}}.outbox_mailbox_take(consumer text, mailbox text DEFAULT 'default',
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
               t.not_before > clock_timestamp()
                   AND t.not_before <= clock_timestamp() + interval '1 minute' AS waits,
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
