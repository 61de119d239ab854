-- The layout `keep`: the table becomes one of segments, and takes over events, numbers and rights.
{{take_over}}
DO $$
DECLARE
    former  regclass := to_regclass(E'{{schema_text}}.outbox_events');
    latter  regclass;
    numbers regclass := pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'position');
    last    bigint;
    columns text := 'position, id, aggregate_type, aggregate_id, event_type, payload, headers, '
                    'tenant_id, schema_id, schema_version, occurred_at, topic, key, routing_key, '
                    'available_at';
    place   text := E'{{schema_text}}';
    published boolean;
    shown text;
    writer text;
BEGIN
    IF (SELECT relkind FROM pg_class WHERE oid = former) = 'p' THEN RETURN; END IF;
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE = 'PostgreSQL 14 and older have the '
            'layout delete alone: keep needs 15 or newer';
    END IF;
    LOCK TABLE {{schema}}.outbox_events IN ACCESS EXCLUSIVE MODE;
    PERFORM pg_temp.outbox_may_change(former);
    SELECT string_agg(quote_ident(p.pubname), ', ') INTO shown FROM pg_publication p
    WHERE NOT p.pubviaroot AND p.pubname <> 'outbox' AND (p.puballtables OR EXISTS (
        SELECT FROM pg_publication_namespace n JOIN pg_class c ON c.oid = former
        WHERE n.pnpubid = p.oid AND n.pnnspid = c.relnamespace));
    IF shown IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE = 'publication ' || shown || ' would show '
            'the segments of the table under names of their own: ALTER PUBLICATION ' || shown ||
            ' SET (publish_via_partition_root = true)';
    END IF;
    IF (SELECT count(*) FROM (SELECT FROM {{schema}}.outbox_events LIMIT 1000001) x) > 1000000 THEN
        RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE = 'the table holds more than 1,000,000 '
            'events, and writers would wait while they are copied: let the backlog run dry first '
            '(outbox status)';
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
    -- Where writers write: whoever may insert may see it, and only the owner may change it.
    CREATE SEQUENCE {{schema}}.outbox_segment AS integer;
    GRANT SELECT ON SEQUENCE {{schema}}.outbox_segment TO PUBLIC;
    -- By name, too: what PUBLIC has is often taken away.
    FOR writer IN SELECT DISTINCT a.grantee::regrole::text FROM (
        SELECT x.* FROM pg_class c, aclexplode(c.relacl) x WHERE c.oid = former
        UNION ALL SELECT x.* FROM pg_attribute t, aclexplode(t.attacl) x WHERE t.attrelid = former) a
        WHERE a.privilege_type = 'INSERT' AND a.grantee <> 0
    LOOP
        EXECUTE format('GRANT SELECT ON SEQUENCE %s.outbox_segment TO %s', place, writer);
    END LOOP;
    PERFORM setval(E'{{schema_text}}.outbox_segment', 1);
    EXECUTE format(
        'CREATE TABLE %1$s.outbox_events (LIKE %1$s.outbox_events_former INCLUDING DEFAULTS '
        'INCLUDING CONSTRAINTS INCLUDING IDENTITY, segment integer NOT NULL DEFAULT '
        'coalesce(pg_catalog.pg_sequence_last_value(%2$L::regclass), 1), '
        'PRIMARY KEY (position, segment)) PARTITION BY LIST (segment)',
        place, place || '.outbox_segment');
    latter := to_regclass(E'{{schema_text}}.outbox_events');
    ALTER SEQUENCE {{schema}}.outbox_segment OWNED BY {{schema}}.outbox_events.segment;
    FOR n IN 1..8 LOOP
        EXECUTE format('CREATE TABLE %1$s.outbox_events_%2$s PARTITION OF %1$s.outbox_events '
                       'FOR VALUES IN (%2$s)', place, n);
        INSERT INTO {{schema}}.outbox_segments (segment, began_at)
        VALUES (n, CASE n WHEN 1 THEN clock_timestamp() END);
    END LOOP;
    PERFORM setval(pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'position'),
                   greatest(last, 1), last > 0);
    EXECUTE format('INSERT INTO %1$s.outbox_events (%2$s) OVERRIDING SYSTEM VALUE '
                   'SELECT %2$s FROM %1$s.outbox_events_former ORDER BY position', place, columns);
    PERFORM pg_temp.outbox_same_rights(former, latter);
    PERFORM pg_temp.outbox_same_rights(
        numbers, pg_get_serial_sequence(E'{{schema_text}}.outbox_events', 'position')::regclass);
    -- The same events under the same numbers.
    UPDATE {{schema}}.outbox_ledger SET life = NULL
    WHERE split_part(source, '/', 1) = {{schema}}.outbox_source();
    UPDATE {{schema}}.outbox_routes SET settled = 0, life = NULL
    WHERE split_part(source, '/', 1) = {{schema}}.outbox_source();
    ALTER VIEW {{schema}}.outbox_status RENAME TO outbox_status_former;
    IF published THEN
        BEGIN
            ALTER PUBLICATION outbox SET (publish_via_partition_root = true);
            ALTER PUBLICATION outbox ADD TABLE {{schema}}.outbox_events;
        EXCEPTION WHEN insufficient_privilege THEN
            RAISE NOTICE 'publication outbox was not changed: %', SQLERRM;
        END;
    END IF;
END
$$;
{{status_view_keep}}
{{status_life}}
{{taken_over}}
