-- The layout `delete`: what is not finished moves into a table without segments, which takes over
-- numbers and rights. What every route has finished, the history, goes.
{{take_over}}
DO $$
DECLARE
    former  regclass := to_regclass(E'{{schema_text}}.outbox_events');
    numbers regclass := pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'position');
    last    bigint;
    upto    bigint;
    lowest  bigint;
    part    regclass;
    columns text := 'position, id, aggregate_type, aggregate_id, event_type, payload, headers, '
                    'tenant_id, schema_id, schema_version, occurred_at, topic, key, routing_key, '
                    'available_at';
    place   text := E'{{schema_text}}';
    published boolean;
    strangers boolean := false;  -- events of tenants whom no relay serves, which wait for one
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = former) = 'r' THEN RETURN; END IF;
    PERFORM pg_temp.outbox_may_change(former);
    SELECT coalesce(min(settled), 0) INTO upto FROM {{schema}}.outbox_routes
    WHERE split_part(source, '/', 1) = {{schema}}.outbox_source();
    -- Before anybody waits: nobody writes there any more.
    FOR part IN SELECT inhrelid FROM pg_inherits WHERE inhparent = former LOOP
        SELECT u.lowest, strangers OR u.unserved IS NOT NULL INTO lowest, strangers
        FROM {{schema}}.outbox_unfinished(part, upto) u;
        IF lowest IS NOT NULL THEN
            RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE = 'the event at position ' || lowest ||
                ' stands where all was finished, and is not: have a relay send it, or delete it';
        END IF;
    END LOOP;
    LOCK TABLE {{schema}}.outbox_events IN ACCESS EXCLUSIVE MODE;
    IF (SELECT count(*) FROM (SELECT FROM {{schema}}.outbox_events WHERE position > upto
                              LIMIT 1000001) x) > 1000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE = 'the table holds more than 1,000,000 '
            'events that wait, and writers would wait while they are copied: let the backlog run '
            'dry first (outbox status)';
    END IF;
    published := EXISTS (SELECT FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
                         WHERE p.pubname = 'outbox' AND r.prrelid = former);
    -- What is given next may have been set by hand.
    EXECUTE format('SELECT CASE WHEN is_called THEN last_value ELSE last_value - 1 END FROM %s',
                   numbers) INTO last;
    EXECUTE format('ALTER SEQUENCE %s RENAME TO outbox_events_former_numbers', numbers);
    ALTER TABLE {{schema}}.outbox_events RENAME TO outbox_events_former;
    ALTER TABLE {{schema}}.outbox_events_former
        RENAME CONSTRAINT outbox_events_pkey TO outbox_events_former_pkey;
    CREATE TABLE {{schema}}.outbox_events (
        LIKE {{schema}}.outbox_events_former INCLUDING DEFAULTS INCLUDING CONSTRAINTS
        INCLUDING IDENTITY, PRIMARY KEY (position));
    ALTER TABLE {{schema}}.outbox_events DROP COLUMN segment;
    PERFORM setval(pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'position'),
                   greatest(last, 1), last > 0);
    EXECUTE format('INSERT INTO %1$s.outbox_events (%2$s) OVERRIDING SYSTEM VALUE SELECT %2$s FROM '
                   '%1$s.outbox_events_former WHERE position > $1 ORDER BY position',
                   place, columns) USING upto;
    IF strangers THEN
        EXECUTE format($q$
            INSERT INTO %1$s.outbox_events (%2$s) OVERRIDING SYSTEM VALUE
            SELECT %2$s FROM %1$s.outbox_events_former e WHERE e.position <= $1 AND NOT EXISTS (
                SELECT FROM %1$s.outbox_routes r
                WHERE split_part(r.source, '/', 1) = %1$s.outbox_source()
                  AND (strpos(r.source, '/') = 0 OR strpos(
                      ',' || substr(r.source, strpos(r.source, '/') + 1) || ',',
                      ',' || replace(replace(e.tenant_id, '\', '\\'), ',', '\,') || ',') > 0))
            $q$, place, columns) USING upto;
    END IF;
    PERFORM pg_temp.outbox_same_rights(former, E'{{schema_text}}.outbox_events'::regclass);
    PERFORM pg_temp.outbox_same_rights(
        numbers, pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'position')::regclass);
    -- The same events under the same numbers, and nothing of those that went.
    DELETE FROM {{schema}}.outbox_ledger WHERE segment < upto / 65536
        AND split_part(source, '/', 1) = {{schema}}.outbox_source();
    UPDATE {{schema}}.outbox_ledger SET life = NULL
    WHERE split_part(source, '/', 1) = {{schema}}.outbox_source();
    UPDATE {{schema}}.outbox_routes SET settled = 0, life = NULL
    WHERE split_part(source, '/', 1) = {{schema}}.outbox_source();
    DELETE FROM {{schema}}.outbox_segments;
    ALTER VIEW {{schema}}.outbox_status RENAME TO outbox_status_former;
    IF published THEN
        BEGIN
            ALTER PUBLICATION outbox ADD TABLE {{schema}}.outbox_events;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'publication outbox was not changed: %', SQLERRM;
        END;
    END IF;
END
$$;
{{status_view}}
{{status_life}}
{{taken_over}}
