-- Every event, each once: unsent, published where its row stays, dead. One that is dead in one route
-- and still unsent in another is shown as unsent. What lies at or below the position that every
-- route has settled is finished: only what lies above it is looked up in the ledgers, each of which
-- is unpacked once. Where relays serve some tenants, the events of all others wait, however far
-- theirs have come.
-- The oldest unsent: WHERE status IN ('PENDING', 'RETRYING') ORDER BY position LIMIT 50. Subqueries
-- instead of joins, and ORDER BY within (a branch with a condition is planned for itself), because
-- only then does that read stop after 50 rows of the segments' primary keys.
CREATE VIEW {{schema}}.outbox_status AS
-- Unsent, that a ledger speaks of and does not call finished.
(WITH d AS MATERIALIZED (
    SELECT segment, bit_or(done) AS done
    FROM (SELECT l.segment, bit_and(l.done | l.done) AS done FROM {{schema}}.outbox_ledger l
          WHERE split_part(l.source, '/', 1) = (SELECT {{schema}}.outbox_source())
            AND l.segment >= (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source())) / 65536
          GROUP BY l.source, l.segment
          HAVING count(*) >= (SELECT count(*) FROM {{schema}}.outbox_routes r
                              WHERE r.source = l.source)) of_source
    GROUP BY segment)
SELECT e.position, e.id::text AS id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.occurred_at, e.tenant_id, e.topic,
       'PENDING' AS status, 0 AS attempts, (SELECT d.error_code || ': ' || d.last_error FROM {{schema}}.outbox_delivery d
        WHERE d.position = e.position AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())
        ORDER BY d.attempts DESC LIMIT 1) AS error,
       e.available_at
FROM (SELECT d.segment * 65536 + i AS position FROM d, generate_series(0, 65535) i
      WHERE bit_count(d.done) < 65536 AND get_bit(d.done, i) = 0
        AND d.segment * 65536 + i > (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
        AND d.segment * 65536 + i <= (SELECT max(position) FROM {{schema}}.outbox_events)) z
JOIN {{schema}}.outbox_events e USING (position)
WHERE ((SELECT max(d.attempts) FROM {{schema}}.outbox_delivery d
        WHERE d.position = e.position AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())) > 0) IS NOT TRUE
ORDER BY e.position)
UNION ALL
-- Unsent, that none speaks of.
(SELECT e.position, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.occurred_at, e.tenant_id, e.topic,
       'PENDING', 0, (SELECT d.error_code || ': ' || d.last_error FROM {{schema}}.outbox_delivery d
        WHERE d.position = e.position AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())
        ORDER BY d.attempts DESC LIMIT 1),
       e.available_at
FROM {{schema}}.outbox_events e
WHERE e.position > (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
  AND e.position / 65536 NOT IN (
    SELECT l.segment FROM {{schema}}.outbox_ledger l
    WHERE split_part(l.source, '/', 1) = (SELECT {{schema}}.outbox_source())
    GROUP BY l.source, l.segment
    HAVING count(*) >= (SELECT count(*) FROM {{schema}}.outbox_routes r
                        WHERE r.source = l.source))
  AND ((SELECT max(d.attempts) FROM {{schema}}.outbox_delivery d
        WHERE d.position = e.position AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())) > 0) IS NOT TRUE
ORDER BY e.position)
UNION ALL
(WITH d AS MATERIALIZED (
    SELECT segment, bit_or(done) AS done
    FROM (SELECT l.segment, bit_and(l.done | l.done) AS done FROM {{schema}}.outbox_ledger l
          WHERE split_part(l.source, '/', 1) = (SELECT {{schema}}.outbox_source())
            AND l.segment >= (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source())) / 65536
          GROUP BY l.source, l.segment
          HAVING count(*) >= (SELECT count(*) FROM {{schema}}.outbox_routes r
                              WHERE r.source = l.source)) of_source
    GROUP BY segment)
SELECT e.position, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.occurred_at, e.tenant_id, e.topic,
       'RETRYING', t.attempts, (SELECT d.error_code || ': ' || d.last_error FROM {{schema}}.outbox_delivery d
        WHERE d.position = e.position AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())
        ORDER BY d.attempts DESC LIMIT 1),
       e.available_at
FROM (SELECT d.position, max(d.attempts) AS attempts FROM {{schema}}.outbox_delivery d
      WHERE split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source()) AND d.attempts > 0
        AND d.position > (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
      GROUP BY d.position) t
JOIN {{schema}}.outbox_events e USING (position)
WHERE NOT EXISTS (SELECT FROM d WHERE d.segment = e.position / 65536
                    AND get_bit(d.done, (e.position % 65536)::integer) = 1)
ORDER BY e.position)
UNION ALL
(SELECT e.position, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.occurred_at, e.tenant_id, e.topic,
       'PENDING', 0, NULL, e.available_at
FROM {{schema}}.outbox_events e
WHERE (SELECT bool_and(strpos(r.source, '/') > 0) FROM {{schema}}.outbox_routes r
       WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
  AND e.position <= (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
  AND NOT EXISTS (
        SELECT FROM {{schema}}.outbox_routes r
        WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source())
          AND strpos(',' || substr(r.source, strpos(r.source, '/') + 1) || ',',
                     ',' || replace(replace(e.tenant_id, '\', '\\'), ',', '\,') || ',') > 0)
ORDER BY e.position)
UNION ALL
(WITH d AS MATERIALIZED (
    SELECT segment, bit_or(done) AS done
    FROM (SELECT l.segment, bit_and(l.done | l.done) AS done FROM {{schema}}.outbox_ledger l
          WHERE split_part(l.source, '/', 1) = (SELECT {{schema}}.outbox_source())
            AND l.segment >= (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source())) / 65536
          GROUP BY l.source, l.segment
          HAVING count(*) >= (SELECT count(*) FROM {{schema}}.outbox_routes r
                              WHERE r.source = l.source)) of_source
    GROUP BY segment)
SELECT e.position, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.occurred_at, e.tenant_id, e.topic,
       'PUBLISHED', 0, NULL, e.available_at
FROM d JOIN {{schema}}.outbox_events e ON e.position / 65536 = d.segment
WHERE e.position > (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
  AND get_bit(d.done, (e.position % 65536)::integer) = 1
  AND e.position NOT IN (
    SELECT d.position FROM {{schema}}.outbox_dead_letters d
    WHERE split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source()) AND d.position IS NOT NULL))
UNION ALL
SELECT e.position, e.id::text, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.occurred_at, e.tenant_id, e.topic,
       'PUBLISHED', 0, NULL, e.available_at
FROM {{schema}}.outbox_events e
WHERE e.position <= (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
            WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
  AND e.position NOT IN (
    SELECT d.position FROM {{schema}}.outbox_dead_letters d
    WHERE split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source()) AND d.position IS NOT NULL)
  AND ((SELECT bool_or(strpos(r.source, '/') = 0) FROM {{schema}}.outbox_routes r
        WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source()))
       OR EXISTS (
        SELECT FROM {{schema}}.outbox_routes r
        WHERE split_part(r.source, '/', 1) = (SELECT {{schema}}.outbox_source())
          AND strpos(',' || substr(r.source, strpos(r.source, '/') + 1) || ',',
                     ',' || replace(replace(e.tenant_id, '\', '\\'), ',', '\,') || ',') > 0))
UNION ALL
SELECT s.position, s.id, s.aggregate_type, s.aggregate_id, s.event_type, s.payload, s.occurred_at,
       s.tenant_id, s.topic, 'DEAD', s.attempts, s.error, NULL
FROM (SELECT DISTINCT ON (d.id) d.position, d.id, d.aggregate_type, d.aggregate_id, d.event_type,
             {{dead_payload}} AS payload, d.occurred_at, d.tenant_id, d.topic, d.attempts,
             d.error_code || ': ' || d.error AS error
      FROM {{schema}}.outbox_dead_letters d
      WHERE split_part(d.source, '/', 1) = {{schema}}.outbox_source()
        AND NOT EXISTS (
            SELECT FROM {{schema}}.outbox_events e
            WHERE e.position = d.position
              AND e.position > (SELECT coalesce(min(r.settled), 0) FROM {{schema}}.outbox_routes r
                                WHERE split_part(r.source, '/', 1) =
                                      (SELECT {{schema}}.outbox_source()))
              AND NOT EXISTS (
                SELECT FROM {{schema}}.outbox_ledger l
                WHERE split_part(l.source, '/', 1) = (SELECT {{schema}}.outbox_source())
                  AND l.segment = e.position / 65536
                  AND get_bit(l.done, (e.position % 65536)::integer) = 1
                GROUP BY l.source
                HAVING count(*) >= (SELECT count(*) FROM {{schema}}.outbox_routes r
                                    WHERE r.source = l.source)))
      ORDER BY d.id, d.dead_id DESC) s
UNION ALL
SELECT NULL, s.id::text, s.aggregate_type, s.aggregate_id, s.event_type, s.payload, s.occurred_at,
       s.tenant_id, s.topic, 'SCHEDULED', 0, NULL, s.available_at
FROM {{schema}}.outbox_scheduled s;
