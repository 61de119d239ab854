-- Who hears of a repeat forgets the message, or the request. What it repeats may be committed here
-- alone: who crashed, or was cancelled, while it waited for a synchronous standby is seen. So the
-- COMMIT of a repeat waits for the standbys, as that of a write does: for a message in the log, as an
-- xid by itself does not. Else as in 0001_consumer.sql.
CREATE OR REPLACE FUNCTION {{schema}}.inbox_accept(consumer text, message_id text,
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
        PERFORM pg_logical_emit_message(true, 'outbox_repeat', ''::text)
        WHERE current_setting('synchronous_standby_names') <> ''
            AND current_setting('synchronous_commit') NOT IN ('off', 'local');
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

CREATE OR REPLACE FUNCTION {{schema}}.idempotency_claim(scope text, key text, fingerprint text,
                                                        retention interval DEFAULT '1 day',
                                                        lease interval DEFAULT NULL,
                                                        OUT state text, OUT attempt integer,
                                                        OUT status integer, OUT headers json,
                                                        OUT body bytea)
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
        PERFORM pg_logical_emit_message(true, 'outbox_repeat', ''::text)
        WHERE current_setting('synchronous_standby_names') <> ''
            AND current_setting('synchronous_commit') NOT IN ('off', 'local');
        idempotency_claim.state := 'repeat';
        idempotency_claim.status := known.status;
        idempotency_claim.headers := known.headers;
        idempotency_claim.body := known.body;
    END IF;
END
$$;

-- Removes ids of one consumer, or of each, from longer than `retention` before now, or before the
-- oldest message that still waits in a mailbox, at most max_rows, and raises the floors to the newest
-- that went; gives how many. Waits for nobody: what a transaction looks at the floor of goes the next
-- time. Retention must cover how long a message can take and be repeated: the broker's retention, the
-- longest delay, the backlog, and the age of dead letters that are retried; two hours at least. Ids of
-- messages without a time are kept.
-- The clock may be ahead, and what went would be applied again once it is set back. So it counts only
-- as far as messages have come, of whatever consumer: while none does, ids are kept for as long again.
CREATE OR REPLACE FUNCTION {{schema}}.inbox_prune(retention interval, max_rows integer DEFAULT 10000,
                                                  consumer text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
-- The newest are the last in the table, and found by its index. JIT would compile what has none.
SET enable_seqscan = off SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    now_here constant timestamptz := clock_timestamp();
    back interval := '1 minute';
    too_old timestamptz;
    held text[];
    removed bigint;
BEGIN
    IF inbox_prune.retention < interval '2 hours' THEN
        RAISE EXCEPTION 'an inbox must be kept for at least two hours, not %',
            inbox_prune.retention USING ERRCODE = '22023';
    END IF;
    WHILE NOT EXISTS (SELECT FROM {{schema}}.outbox_inbox i
                      WHERE i.message_time > now_here - back
                          AND i.message_time < now_here + interval '1 day') LOOP
        back := back * 2;
        IF back > interval '100 years' THEN
            RETURN 0;
        END IF;
    END LOOP;
    too_old := now_here - back;
    IF has_table_privilege(E'{{schema_text}}.outbox_mailbox', 'SELECT') THEN
        too_old := least(too_old, (SELECT min(m.received_at) FROM {{schema}}.outbox_mailbox m));
    END IF;
    too_old := too_old - inbox_prune.retention;
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
    held := ARRAY(SELECT f.consumer FROM {{schema}}.outbox_inbox_floor f
                  WHERE f.consumer = coalesce(inbox_prune.consumer, f.consumer)
                  ORDER BY f.consumer FOR UPDATE SKIP LOCKED);
    WITH old AS (
        SELECT i.ctid FROM {{schema}}.outbox_inbox i
        WHERE i.message_time < too_old AND i.message_time > '-infinity' AND i.consumer = ANY (held)
        LIMIT inbox_prune.max_rows),
    gone AS (
        DELETE FROM {{schema}}.outbox_inbox i USING old WHERE i.ctid = old.ctid
        RETURNING i.consumer, i.message_time),
    newest AS (
        SELECT g.consumer, max(g.message_time) AS message_time FROM gone g GROUP BY g.consumer),
    raised AS (
        UPDATE {{schema}}.outbox_inbox_floor f SET floor = n.message_time + interval '1 microsecond'
        FROM newest n WHERE f.consumer = n.consumer AND f.floor <= n.message_time)
    SELECT count(*) INTO removed FROM gone;
    RETURN removed;
END
$$;
