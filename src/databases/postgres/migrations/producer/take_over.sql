-- Both layouts: what the table was becomes what it is now. Temporary functions of a change of the
-- layout, in its transaction.

-- Refuses what a change would lose. ERRCODE OB006: for people.
CREATE FUNCTION pg_temp.outbox_may_change(root regclass) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    status regclass := to_regclass(E'{{schema_text}}.outbox_status');
    reason text;
BEGIN
    SELECT owner INTO reason FROM {{schema}}.outbox_lease l
    WHERE split_part(source, '/', 1) = {{schema}}.outbox_source() AND owner IS NOT NULL
      AND expires_at > clock_timestamp() AND (backend_start IS NULL OR EXISTS (
          SELECT FROM pg_stat_activity a WHERE a.pid = backend_pid
          AND (a.backend_start IS NULL OR a.backend_start = l.backend_start)))
    FOR UPDATE;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE =
            'relay ' || reason || ' (host:process) is running: stop it, writers may go on';
    END IF;
    IF {{schema}}.outbox_ledger_source() IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE =
            'the table is not the one that the ledgers of its routes were kept for (replaced, '
            'restored, or its numbers begun anew): start a relay, which sends all that it holds, or '
            'says what has to be settled first';
    END IF;
    -- One whose lease has run out while it was stopped must find that when it goes on.
    UPDATE {{schema}}.outbox_lease SET epoch = epoch + 1, owner = NULL, expires_at = NULL,
        backend_pid = NULL, backend_start = NULL
    WHERE split_part(source, '/', 1) = {{schema}}.outbox_source() AND owner IS NOT NULL;
    SELECT string_agg(DISTINCT what, ', ' ORDER BY what) INTO reason FROM (
        SELECT 'column ' || quote_ident(attname) AS what FROM pg_attribute
        WHERE attrelid = root AND attnum > 0 AND NOT attisdropped AND attname NOT IN (
            'position', 'id', 'aggregate_type', 'aggregate_id', 'event_type', 'payload', 'headers',
            'tenant_id', 'schema_id', 'schema_version', 'occurred_at', 'topic', 'key',
            'routing_key', 'available_at', 'segment')
        UNION ALL SELECT 'trigger ' || quote_ident(tgname) FROM pg_trigger
        WHERE tgrelid = root AND NOT tgisinternal
        UNION ALL SELECT 'index ' || indexrelid::regclass::text FROM pg_index
        WHERE indrelid = root AND NOT indisprimary
        UNION ALL SELECT 'policy ' || quote_ident(polname) FROM pg_policy WHERE polrelid = root
        UNION ALL SELECT 'foreign key ' || quote_ident(conname) FROM pg_constraint
        WHERE contype = 'f' AND root IN (conrelid, confrelid)
        UNION ALL SELECT pg_describe_object(coalesce(dependent.classid, d.classid),
                                            coalesce(dependent.objid, d.objid), 0)
        FROM pg_depend d
        LEFT JOIN LATERAL (SELECT 'pg_class'::regclass::oid AS classid, r.ev_class AS objid
                           FROM pg_rewrite r
                           WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid) dependent
            ON true
        WHERE d.deptype IN ('n', 'a') AND d.classid NOT IN (
                'pg_constraint'::regclass, 'pg_trigger'::regclass, 'pg_policy'::regclass,
                'pg_attrdef'::regclass, 'pg_publication_rel'::regclass)
          AND (d.classid <> 'pg_class'::regclass OR NOT EXISTS (
                SELECT FROM pg_class c WHERE c.oid = d.objid
                AND (c.relkind IN ('i', 'I', 'S', 't') OR c.relispartition)))
          AND dependent.objid IS DISTINCT FROM status
          AND ((d.refclassid = 'pg_class'::regclass AND d.refobjid IN (root, status)) OR
               (d.refclassid = 'pg_type'::regclass AND d.refobjid IN (
                    SELECT t.oid FROM pg_type t WHERE t.typrelid IN (root, status) OR t.typelem IN (
                        SELECT reltype FROM pg_class WHERE oid IN (root, status)))))
        UNION ALL SELECT 'a place in publication ' || quote_ident(p.pubname)
        FROM pg_publication_rel r JOIN pg_publication p ON p.oid = r.prpubid
        WHERE r.prrelid = root AND p.pubname <> 'outbox'
        UNION ALL SELECT 'a REPLICA IDENTITY' FROM pg_class WHERE oid = root AND relreplident <> 'd'
        UNION ALL SELECT 'row level security' FROM pg_class WHERE oid = root AND relrowsecurity
        UNION ALL SELECT 'option ' || array_to_string(reloptions, ', ') FROM pg_class
        WHERE oid = root AND reloptions IS NOT NULL) own;
    IF reason IS NOT NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'OB006', MESSAGE =
            'the table has ' || reason || ', which the new one would lack: drop it, and make it '
            'again when the layout has changed';
    END IF;
END
$$;

-- The rights that roles have on one, of tables and columns, also on the other; and its owner.
CREATE FUNCTION pg_temp.outbox_same_rights(former regclass, latter regclass) RETURNS void
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    statement text;
BEGIN
    FOR statement IN
        SELECT format('GRANT %s%s ON %s %s TO %s%s', a.privilege_type, a.of,
                      CASE a.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, latter,
                      CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END,
                      CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
        FROM (SELECT c.relkind, '' AS of, x.* FROM pg_class c, aclexplode(c.relacl) x
              WHERE c.oid = former AND x.grantee <> c.relowner
              UNION ALL
              SELECT 'r', format(' (%I)', t.attname), x.* FROM pg_attribute t, aclexplode(t.attacl) x
              WHERE t.attrelid = former AND NOT t.attisdropped AND t.attname <> 'segment') a
    LOOP
        EXECUTE statement;
    END LOOP;
    IF obj_description(former, 'pg_class') IS NOT NULL THEN
        EXECUTE format('COMMENT ON %s %s IS %L',
                       CASE (SELECT relkind FROM pg_class WHERE oid = latter)
                       WHEN 'v' THEN 'VIEW' WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END, latter,
                       obj_description(former, 'pg_class'));
    END IF;
    IF (SELECT relowner FROM pg_class WHERE oid = former)
       <> (SELECT relowner FROM pg_class WHERE oid = latter)
       AND (SELECT relkind FROM pg_class WHERE oid = latter) <> 'S' THEN
        EXECUTE format('ALTER TABLE %s OWNER TO %s', latter,
                       (SELECT relowner::regrole FROM pg_class WHERE oid = former));
    END IF;
END
$$;
