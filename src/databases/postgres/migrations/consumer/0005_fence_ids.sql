-- An id in a UUID's form that is no UUIDv7 says nothing of when it was made (RFC 9562: version and
-- variant): its event may be forgotten, and not that it is. Else as in 0004_fence.sql.
CREATE OR REPLACE FUNCTION {{schema}}.outbox_wait(consumer text, token text, OUT state text, OUT events json)
LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    body constant text := substr(outbox_wait.token, 6);
    raw bytea;
    hex text;
    many integer;
    sum_of_ids bigint;
    the_floor timestamptz;
    ids text[];
    here text[] := '{}';
BEGIN
    IF coalesce(outbox_wait.consumer, '') = '' THEN
        RAISE EXCEPTION 'outbox_wait wants the consumer''s name' USING ERRCODE = '22023';
    END IF;
    IF coalesce(outbox_wait.token ~ '^obf1\.[A-Za-z0-9_-]+$', false)
            AND length(body) <= 2139 AND length(body) % 4 <> 1 THEN
        raw := decode(translate(body, '-_', '+/') || repeat('=', (4 - length(body) % 4) % 4),
                      'base64');
        many := (length(raw) - 4) / 16;
        hex := encode(substr(raw, 5), 'hex');
        -- Adler-32 (RFC 1950).
        SELECT (length(raw) - 4 + coalesce(sum((length(raw) - i) * get_byte(raw, i)), 0))
                % 65521 * 65536 + (1 + coalesce(sum(get_byte(raw, i)), 0)) % 65521
        INTO sum_of_ids FROM generate_series(4, length(raw) - 1) i;
    END IF;
    IF raw IS NULL OR length(raw) % 16 <> 4
            OR lpad(to_hex(sum_of_ids), 8, '0') <> encode(substr(raw, 1, 4), 'hex')
            OR translate(encode(raw, 'base64'), E'+/=\n', '-_') <> body THEN
        RAISE EXCEPTION 'OB_INVALID_EVENT: this is no fence token, or it was cut or changed on its '
            'way' USING ERRCODE = '22023';
    END IF;
    ids := ARRAY(SELECT substr(hex, 32 * n + 1, 32)::uuid::text
                 FROM generate_series(0, many - 1) n ORDER BY n);
    -- By the names of the mailboxes, so that each id is found by the index.
    IF has_table_privilege(E'{{schema_text}}.outbox_mailbox', 'SELECT') THEN
        here := ARRAY(
            WITH RECURSIVE boxes AS (
                (SELECT m.mailbox FROM {{schema}}.outbox_mailbox m ORDER BY m.mailbox LIMIT 1)
                UNION ALL
                SELECT (SELECT m.mailbox FROM {{schema}}.outbox_mailbox m
                        WHERE m.mailbox > b.mailbox ORDER BY m.mailbox LIMIT 1)
                FROM boxes b WHERE b.mailbox IS NOT NULL)
            SELECT u.id FROM unnest(ids) u(id) WHERE (
                SELECT count(*) FROM boxes b, LATERAL (
                    SELECT FROM {{schema}}.outbox_mailbox m
                    WHERE m.mailbox = b.mailbox AND m.id = u.id LIMIT 1) one) > 0);
    END IF;
    SELECT f.floor INTO the_floor FROM {{schema}}.outbox_inbox_floor f
    WHERE f.consumer = outbox_wait.consumer AND f.floor > '-infinity';
    WITH asked AS (
        SELECT u.n, u.id,
            CASE WHEN u.id ~* '^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$'
                 THEN to_timestamp(
                ('x' || substr(replace(u.id, '-', ''), 1, 12))::bit(48)::bigint / 1000.0) END AS made,
            (SELECT CASE WHEN d.retry_requested_at IS NULL THEN 'dead_letter'
                         ELSE 'retry_requested' END
             FROM {{schema}}.outbox_inbox_dead_letters d
             WHERE d.consumer = outbox_wait.consumer AND d.message_id = u.id) AS letter,
            (SELECT CASE WHEN i.discarded THEN 'discarded' ELSE 'applied' END
             FROM {{schema}}.outbox_inbox i
             WHERE i.consumer = outbox_wait.consumer AND i.message_id = u.id) AS entry
        FROM unnest(ids) WITH ORDINALITY u(id, n)),
    known AS (
        SELECT a.n, a.id, coalesce(a.letter, a.entry,
            CASE WHEN a.id = ANY (here) THEN 'in_mailbox'
                 WHEN a.made < the_floor THEN 'forgotten'
                 WHEN a.made IS NULL AND the_floor IS NOT NULL THEN 'perhaps_forgotten'
                 ELSE 'not_seen' END) AS why
        FROM asked a),
    judged AS (
        SELECT k.n, k.id, nullif(k.why, 'applied') AS why,
            CASE WHEN k.why IN ('dead_letter', 'discarded') THEN 4
                 WHEN k.why IN ('not_seen', 'forgotten', 'perhaps_forgotten') THEN 3
                 WHEN k.why IN ('in_mailbox', 'retry_requested') THEN 2
                 ELSE 1 END AS grade
        FROM known k),
    named AS (
        SELECT j.*, ('{applied,waiting,unknown,dead}'::text[])[j.grade] AS state FROM judged j)
    SELECT ('{applied,waiting,unknown,dead}'::text[])[coalesce(max(m.grade), 1)],
        coalesce(json_agg(json_build_object('id', m.id, 'state', m.state, 'why', m.why)
                          ORDER BY m.n), '[]')
    INTO outbox_wait.state, outbox_wait.events FROM named m;
END
$$;
