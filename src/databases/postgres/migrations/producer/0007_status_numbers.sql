-- As migration 6 made it, and NULL as well where the numbers were set back below what ledgers call
-- finished: a table into which the rows of a dump alone were restored is the same, with a file of its
-- numbers that is the same. Where nobody may ask how far they are, that tells nothing.
CREATE OR REPLACE FUNCTION {{schema}}.outbox_ledger_source() RETURNS text
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
    AND NOT EXISTS (
        -- Of one of which the next number was set, the server's function has no answer.
        SELECT FROM (
            SELECT coalesce(pg_sequence_last_value(n), substring(query_to_xml(
                       format('SELECT last_value - 1 AS n FROM %s', n), true, false, '')::text
                       FROM '<n>(-?[0-9]+)</n>')::bigint) AS last
            FROM (SELECT pg_get_serial_sequence(
                      E'{{schema_text}}.outbox_events', 'position')::regclass AS n) numbers
            WHERE has_sequence_privilege(n, 'SELECT') OFFSET 0) given
        WHERE EXISTS (
                SELECT FROM {{schema}}.outbox_ledger l
                WHERE split_part(l.source, '/', 1) = s.source
                  AND (l.segment > given.last / 65536
                       OR (l.segment = given.last / 65536
                           AND l.done << (given.last % 65536 + 1)::integer <> B'0'::bit(65536))))
           OR EXISTS (
                SELECT FROM {{schema}}.outbox_routes r
                WHERE split_part(r.source, '/', 1) = s.source AND r.settled > given.last))
$$;
