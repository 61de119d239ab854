-- What `after_publish = keep` needs: rows stay, nothing is written about them, and segments of the
-- table are emptied as a whole (docs/keep.md). A table of the layout `delete` has no segments and
-- is not touched by any of this.

-- No event at or below it is still to come to the route: what was there it has finished, and nobody
-- can write there any more. 0 in the layout `delete`.
ALTER TABLE {{schema}}.outbox_routes ADD COLUMN IF NOT EXISTS settled bigint NOT NULL DEFAULT 0;

-- The segments of the ring. Both times NULL: empty, to be used next. `left_at` NULL: writers write
-- to it now, which the sequence outbox_segment says, too, and decides. `waits_for`: the virtual
-- transactions that may not know of it yet, in which an insert into it would fail ('*': not looked
-- at yet); NULL: there are none.
CREATE TABLE {{schema}}.outbox_segments (
    segment   integer PRIMARY KEY,
    began_at  timestamptz,
    left_at   timestamptz,
    waits_for text[]
);

-- Whether the table still has a segment: its owner may have detached it, to archive it.
CREATE FUNCTION {{schema}}.outbox_segment_attached(of integer) RETURNS boolean
LANGUAGE sql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT EXISTS (SELECT FROM pg_inherits
                   WHERE inhparent = E'{{schema_text}}.outbox_events'::regclass
                     AND inhrelid = to_regclass(E'{{schema_text}}.outbox_events_' || of))
$$;

-- The rows of a segment up to a position; the lowest of those that are not finished: that not every
-- route of a source which serves their tenant has in its ledger; and the lowest whose tenant no
-- source serves.
CREATE FUNCTION {{schema}}.outbox_unfinished(part regclass, upto bigint, OUT counted bigint,
                                             OUT lowest bigint, OUT unserved bigint)
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format($q$
        WITH s AS MATERIALIZED (
            SELECT r.source, count(*) AS routes,
                   CASE WHEN strpos(r.source, '/') > 0
                        THEN ',' || substr(r.source, strpos(r.source, '/') + 1) || ',' END AS tenants
            FROM %2$s.outbox_routes r
            WHERE split_part(r.source, '/', 1) = %2$s.outbox_source() GROUP BY r.source),
        -- A new value is unpacked: get_bit would unpack what is stored for each row.
        l AS MATERIALIZED (
            SELECT l.source, l.segment, bit_and(l.done | l.done) AS done
            FROM %2$s.outbox_ledger l JOIN s USING (source)
            WHERE l.segment BETWEEN (SELECT min(position) / 65536 FROM %1$s)
                                AND (SELECT max(position) / 65536 FROM %1$s)
            GROUP BY l.source, l.segment, s.routes HAVING count(*) >= s.routes)
        SELECT count(*), min(t.position) FILTER (WHERE s.source IS NOT NULL AND (
                   l.done IS NULL OR get_bit(l.done, (t.position %% 65536)::integer) = 0)),
               min(t.position) FILTER (WHERE s.source IS NULL)
        FROM %1$s t
        LEFT JOIN s ON s.tenants IS NULL OR strpos(s.tenants,
            ',' || replace(replace(t.tenant_id, '\', '\\'), ',', '\,') || ',') > 0
        LEFT JOIN l ON l.source = s.source AND l.segment = t.position / 65536
        WHERE t.position <= $1 $q$, part, E'{{schema_text}}')
    INTO counted, lowest, unserved USING upto;
END
$$;

-- Keeps two empty segments ahead of writers, up to `most` in all. Nothing waits for it: ATTACH lets
-- writers write and readers read. One that was added is used when two things are over: this
-- transaction, as what a sequence says is seen before a commit, and survives none; and all who wrote
-- to the table then, as a transaction may go on with the partitions that it has met. Returns why none
-- could be added, or NULL.
CREATE FUNCTION {{schema}}.outbox_segment_spare(most integer) RETURNS text
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    place   text := E'{{schema_text}}';
    writers text[];
    added   integer;
BEGIN
    LOCK TABLE {{schema}}.outbox_segments IN SHARE ROW EXCLUSIVE MODE;
    DELETE FROM {{schema}}.outbox_segments WHERE NOT {{schema}}.outbox_segment_attached(segment);
    IF EXISTS (SELECT FROM {{schema}}.outbox_segments WHERE waits_for IS NOT NULL) THEN
        SELECT coalesce(array_agg(DISTINCT virtualtransaction), '{}') INTO writers FROM pg_locks
        WHERE locktype = 'relation' AND relation = E'{{schema_text}}.outbox_events'::regclass
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
          AND granted AND mode <> 'AccessShareLock';
        UPDATE {{schema}}.outbox_segments SET waits_for = nullif(
            CASE WHEN waits_for = '{*}' THEN writers
                 ELSE ARRAY(SELECT unnest(waits_for) INTERSECT SELECT unnest(writers)) END, '{}')
        WHERE waits_for IS NOT NULL;
    END IF;
    IF (SELECT count(*) FROM {{schema}}.outbox_segments WHERE began_at IS NULL) >= 2
       OR (SELECT count(*) FROM {{schema}}.outbox_segments) >= most THEN
        RETURN NULL;
    END IF;
    -- Not one of a name that is taken, as by one that was detached.
    SELECT coalesce(max(segment), 0) + 1 INTO added FROM {{schema}}.outbox_segments;
    WHILE to_regclass(E'{{schema_text}}.outbox_events_' || added) IS NOT NULL LOOP
        added := added + 1;
    END LOOP;
    BEGIN
        PERFORM set_config('lock_timeout', '100ms', true);
        EXECUTE format('CREATE TABLE %1$s.outbox_events_%2$s (LIKE %1$s.outbox_events '
                       'INCLUDING ALL EXCLUDING IDENTITY EXCLUDING STATISTICS)', place, added);
        EXECUTE format('ALTER TABLE %1$s.outbox_events ATTACH PARTITION %1$s.outbox_events_%2$s '
                       'FOR VALUES IN (%2$s)', place, added);
        INSERT INTO {{schema}}.outbox_segments (segment, waits_for) VALUES (added, '{*}');
    EXCEPTION
        WHEN lock_not_available THEN NULL;  -- somebody changes the table: next time
        WHEN OTHERS THEN RETURN SQLERRM;
    END;
    RETURN NULL;
END
$$;

-- Lets writers write to the next empty segment once the current one is `share` old. What the
-- sequence says is no part of the transaction: after a crash between the two the table follows it,
-- and it names only what was there before. Returns the segment that is current now.
CREATE FUNCTION {{schema}}.outbox_segment_turn(share interval) RETURNS integer
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    sequence  regclass := pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'segment');
    written   integer;
    successor integer;
    used      boolean;
BEGIN
    LOCK TABLE {{schema}}.outbox_segments IN SHARE ROW EXCLUSIVE MODE;
    written := coalesce(pg_sequence_last_value(sequence), 1);
    -- Set by hand, or its segment was detached: every insert fails until it names one again.
    IF NOT {{schema}}.outbox_segment_attached(written) THEN
        SELECT s.segment INTO successor FROM {{schema}}.outbox_segments s
        WHERE s.waits_for IS NULL AND {{schema}}.outbox_segment_attached(s.segment)
        ORDER BY s.began_at IS NULL, s.left_at IS NOT NULL, s.segment LIMIT 1;
        IF NOT FOUND THEN RETURN written; END IF;
        PERFORM setval(sequence, successor);
        written := successor;
    END IF;
    INSERT INTO {{schema}}.outbox_segments (segment) VALUES (written) ON CONFLICT DO NOTHING;
    UPDATE {{schema}}.outbox_segments SET left_at = clock_timestamp()
    WHERE segment <> written AND began_at IS NOT NULL AND left_at IS NULL;
    UPDATE {{schema}}.outbox_segments
    SET began_at = clock_timestamp(), left_at = NULL, waits_for = NULL
    WHERE segment = written AND (began_at IS NULL OR left_at IS NOT NULL);
    IF NOT EXISTS (SELECT FROM {{schema}}.outbox_segments
                   WHERE segment = written AND began_at <= clock_timestamp() - share) THEN
        RETURN written;
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)',
                   to_regclass(E'{{schema_text}}.outbox_events_' || written)) INTO used;
    IF NOT used THEN RETURN written; END IF;
    SELECT min(segment) INTO successor FROM {{schema}}.outbox_segments
    WHERE began_at IS NULL AND waits_for IS NULL AND {{schema}}.outbox_segment_attached(segment);
    -- With none the written one becomes longer: no insert waits for that.
    IF successor IS NULL THEN RETURN written; END IF;
    UPDATE {{schema}}.outbox_segments SET left_at = clock_timestamp() WHERE segment = written;
    UPDATE {{schema}}.outbox_segments SET began_at = clock_timestamp() WHERE segment = successor;
    PERFORM setval(sequence, successor);
    RETURN successor;
END
$$;

-- Empties a segment that was left `retention` ago, if each of its rows is finished: that is asked
-- under a lock which no writer can pass, and which this gives up for none. `removed` NULL: it stays,
-- and `why` says for what: 'busy', 'gone', 'kept', 'waits' (for a route), 'unserved' (of a tenant
-- whom no relay serves), or 'unfinished': a row that stands where all was settled, and is sent now.
CREATE FUNCTION {{schema}}.outbox_segment_empty(of integer, retention interval,
                                                OUT removed bigint, OUT why text)
LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part    regclass := to_regclass(E'{{schema_text}}.outbox_events_' || of);
    numbers regclass := pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'position');
    -- Names the table and its numbering as a relay does: ledgers of another life mean other events.
    its_life text := E'{{schema_text}}.outbox_events'::regclass::oid::text || '/' ||
                     pg_relation_filenode(numbers)::text || '/' ||
                     (SELECT relpersistence FROM pg_class
                      WHERE oid = E'{{schema_text}}.outbox_events'::regclass)::text;
    settled bigint;
    highest bigint;
    lowest  bigint;
    unserved bigint;
    tries   integer := 0;
BEGIN
    -- An older snapshot would not show what was committed before the lock.
    IF current_setting('transaction_isolation') <> 'read committed' THEN
        RAISE EXCEPTION 'segments are emptied in READ COMMITTED only';
    END IF;
    IF NOT {{schema}}.outbox_segment_attached(of) THEN why := 'gone'; RETURN; END IF;
    SELECT min(r.settled) INTO settled FROM {{schema}}.outbox_routes r
    WHERE split_part(r.source, '/', 1) = {{schema}}.outbox_source();
    EXECUTE format('SELECT max(position) FROM %s', part) INTO highest;
    IF settled IS NULL OR highest > settled
       OR coalesce(pg_sequence_last_value(numbers), 0) < settled
       OR EXISTS (SELECT FROM {{schema}}.outbox_routes r
                  WHERE split_part(r.source, '/', 1) = {{schema}}.outbox_source()
                    AND r.life IS DISTINCT FROM its_life) THEN
        why := 'waits';
        RETURN;
    END IF;
    BEGIN
        EXECUTE format('LOCK TABLE %s IN SHARE MODE NOWAIT', part);
        IF of = coalesce(pg_sequence_last_value(pg_get_serial_sequence(
                E'{{schema_text}}.outbox_events', 'segment')::regclass), 1)
           OR NOT EXISTS (SELECT FROM {{schema}}.outbox_segments WHERE segment = of
                          AND left_at <= clock_timestamp() - retention) THEN
            why := 'kept';
            RETURN;
        END IF;
        SELECT u.counted, u.lowest, u.unserved INTO removed, lowest, unserved
        FROM {{schema}}.outbox_unfinished(part, 9223372036854775807) u;
        IF lowest IS NOT NULL THEN
            removed := NULL;
            why := CASE WHEN lowest > settled THEN 'waits' ELSE 'unfinished' END;
            UPDATE {{schema}}.outbox_routes r SET settled = least(r.settled, lowest - 1)
            WHERE split_part(r.source, '/', 1) = {{schema}}.outbox_source() AND lowest > 0;
            RETURN;
        ELSIF unserved IS NOT NULL THEN
            removed := NULL;
            why := 'unserved';
            RETURN;
        END IF;
        UPDATE {{schema}}.outbox_segments SET began_at = NULL, left_at = NULL WHERE segment = of;
        LOOP
            BEGIN
                EXECUTE format('LOCK TABLE %s IN ACCESS EXCLUSIVE MODE NOWAIT', part);
                EXIT;
            EXCEPTION WHEN lock_not_available THEN
                tries := tries + 1;
                IF tries = 50 THEN RAISE; END IF;
                PERFORM pg_sleep(0.01);
            END;
        END LOOP;
        EXECUTE format('TRUNCATE %s', part);
    EXCEPTION WHEN lock_not_available THEN
        removed := NULL;
        why := 'busy';
    END;
END
$$;

REVOKE ALL ON FUNCTION {{schema}}.outbox_segment_attached(integer),
    {{schema}}.outbox_unfinished(regclass, bigint),
    {{schema}}.outbox_segment_spare(integer),
    {{schema}}.outbox_segment_turn(interval),
    {{schema}}.outbox_segment_empty(integer, interval) FROM PUBLIC;
