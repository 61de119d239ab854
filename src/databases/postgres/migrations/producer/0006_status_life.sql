-- outbox_source(), or NULL: the ledgers are of another table than the one that is there, which a relay
-- has not met yet (table, file of its numbers, persistence, as the relay compares them).
CREATE FUNCTION {{schema}}.outbox_ledger_source() RETURNS text
LANGUAGE sql STABLE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.source FROM {{schema}}.outbox_source() s(source)
    CROSS JOIN (
        SELECT oid::text AS root, relpersistence::text || CASE relpersistence WHEN 'u' THEN
                   coalesce(extract(epoch FROM least(pg_stat_get_bgwriter_stat_reset_time(),
                       (SELECT stats_reset FROM pg_stat_archiver))), 0)::text ELSE '' END AS persistence,
               pg_relation_filenode(
                   pg_get_serial_sequence(oid::regclass::text, 'position'))::text AS file
        FROM pg_class WHERE oid = E'{{schema_text}}.outbox_events'::regclass) t
    WHERE NOT EXISTS (
        SELECT FROM (SELECT l.source, l.life FROM {{schema}}.outbox_ledger l
                     UNION SELECT r.source, r.life FROM {{schema}}.outbox_routes r
                     WHERE r.settled > 0) known
        WHERE split_part(known.source, '/', 1) = s.source
          AND known.life <> t.root || '/' || t.file || '/' || t.persistence)
$$;
-- By name, too, to whoever may read the view, which calls it: what PUBLIC has is often taken away.
DO $$
DECLARE
    reader text;
BEGIN
    FOR reader IN
        SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END FROM (
            SELECT x.* FROM pg_class c, aclexplode(coalesce(c.relacl, acldefault('r', c.relowner))) x
            WHERE c.oid = E'{{schema_text}}.outbox_status'::regclass
            UNION ALL
            SELECT x.* FROM pg_attribute t, aclexplode(t.attacl) x
            WHERE t.attrelid = E'{{schema_text}}.outbox_status'::regclass) a
        WHERE a.privilege_type = 'SELECT'
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s.outbox_ledger_source() TO %s',
                       E'{{schema_text}}', reader);
    END LOOP;
END
$$;
{{status_life}}
