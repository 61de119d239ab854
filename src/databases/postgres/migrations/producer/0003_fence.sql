-- The token of events by their ids, for a reader who asks outbox_wait with it in a consumer's database
-- (docs/receiving.md): SELECT outbox_fence(outbox_emit(...), outbox_emit(...)). An id that is given
-- twice counts once. "obf1." and base64url of the Adler-32 checksum (RFC 1950) of the ids, and the ids,
-- 16 bytes each.
CREATE FUNCTION {{schema}}.outbox_fence(VARIADIC event_ids uuid[]) RETURNS text
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    hex text;
    many bigint;
    ids bytea;
    low bigint;
    high bigint;
BEGIN
    SELECT coalesce(string_agg(replace(e.id::text, '-', ''), '' ORDER BY e.first), ''), count(*)
    INTO hex, many
    FROM (SELECT u.id, min(u.n) AS first FROM unnest(event_ids) WITH ORDINALITY u(id, n)
          WHERE u.id IS NOT NULL GROUP BY u.id) e;
    IF many > 100 THEN
        RAISE EXCEPTION 'OB_INVALID_EVENT: a fence token holds up to 100 events, and these are %: '
            'take the ids of those that the reader looks for, or make several tokens', many
            USING ERRCODE = '22023';
    END IF;
    ids := decode(hex, 'hex');
    SELECT (1 + coalesce(sum(get_byte(ids, i)), 0)) % 65521,
        (length(ids) + coalesce(sum((length(ids) - i) * get_byte(ids, i)), 0)) % 65521
    INTO low, high FROM generate_series(0, length(ids) - 1) i;
    RETURN 'obf1.' || translate(encode(
        decode(lpad(to_hex(high * 65536 + low), 8, '0'), 'hex') || ids, 'base64'), E'+/=\n', '-_');
END
$$;
