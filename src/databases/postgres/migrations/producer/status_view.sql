-- Every event that is not published yet, and the dead ones, each once: one that is dead in one route
-- and still unsent in another is shown as unsent. Rows of published events are gone, or about to be.
-- The oldest unsent: WHERE status IN ('PENDING', 'RETRYING') ORDER BY position LIMIT 50. Subqueries
-- instead of a join, because only then does that read stop after 50 rows of the primary key.
CREATE VIEW {{schema}}.outbox_status AS
SELECT e.position, e.id::text AS id, e.aggregate_type, e.aggregate_id, e.event_type, e.payload,
       e.occurred_at, e.tenant_id, e.topic,
       CASE WHEN EXISTS (SELECT FROM {{schema}}.outbox_ledger l
                         WHERE split_part(l.source, '/', 1) = (SELECT {{schema}}.outbox_source())
                           AND l.segment = e.position / 65536
                           AND get_bit(l.done, (e.position % 65536)::integer) = 1
                         GROUP BY l.source
                         HAVING count(*) >= (SELECT count(*) FROM {{schema}}.outbox_routes r
                                             WHERE r.source = l.source))
            THEN 'PUBLISHED'
            WHEN (SELECT max(d.attempts) FROM {{schema}}.outbox_delivery d
                  WHERE d.position = e.position
                    AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())) > 0
            THEN 'RETRYING' ELSE 'PENDING' END AS status,
       coalesce((SELECT max(d.attempts) FROM {{schema}}.outbox_delivery d
                 WHERE d.position = e.position
                   AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())), 0)
           AS attempts,
       (SELECT d.error_code || ': ' || d.last_error FROM {{schema}}.outbox_delivery d
        WHERE d.position = e.position
          AND split_part(d.source, '/', 1) = (SELECT {{schema}}.outbox_source())
        ORDER BY d.attempts DESC LIMIT 1) AS error,
       e.available_at
FROM {{schema}}.outbox_events e
UNION ALL
SELECT s.position, s.id, s.aggregate_type, s.aggregate_id, s.event_type, s.payload, s.occurred_at,
       s.tenant_id, s.topic, 'DEAD', s.attempts, s.error, NULL
FROM (SELECT DISTINCT ON (d.id) d.position, d.id, d.aggregate_type, d.aggregate_id, d.event_type,
             {{dead_payload}} AS payload, d.occurred_at, d.tenant_id, d.topic, d.attempts,
             d.error_code || ': ' || d.error AS error
      FROM {{schema}}.outbox_dead_letters d
      WHERE split_part(d.source, '/', 1) = {{schema}}.outbox_source()
        AND NOT EXISTS (SELECT FROM {{schema}}.outbox_events e WHERE e.position = d.position)
      ORDER BY d.id, d.dead_id DESC) s
UNION ALL
SELECT NULL, s.id::text, s.aggregate_type, s.aggregate_id, s.event_type, s.payload, s.occurred_at,
       s.tenant_id, s.topic, 'SCHEDULED', 0, NULL, s.available_at
FROM {{schema}}.outbox_scheduled s;
