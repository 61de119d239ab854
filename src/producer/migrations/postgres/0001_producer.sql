-- Producer side: the outbox table, what the relay keeps beside it, and the view for people.
-- {{payload_type}} is jsonb unless `migrate --payload` says otherwise.

CREATE FUNCTION outbox_uuidv7() RETURNS uuid
LANGUAGE sql VOLATILE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    -- RFC 9562, section 5.7: 48 bits of Unix milliseconds, version, variant, random bits.
    SELECT encode(
        set_byte(
            set_byte(
                overlay(uuid_send(gen_random_uuid())
                        PLACING substring(int8send((extract(epoch FROM clock_timestamp()) * 1000)::bigint) FROM 3)
                        FROM 1 FOR 6),
                6, (get_byte(uuid_send(gen_random_uuid()), 6) & 15) | 112),
            8, (get_byte(uuid_send(gen_random_uuid()), 8) & 63) | 128),
        'hex')::uuid
$$;

CREATE TABLE outbox_events (
    position       bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    id             uuid NOT NULL DEFAULT outbox_uuidv7(),
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        {{payload_type}},
    headers        jsonb,
    tenant_id      text NOT NULL DEFAULT 'default',
    schema_id      text,
    schema_version text,
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic          text,
    key            text,
    routing_key    text
);

-- Delayed events wait here, so that they never hold a key; the relay moves them when due.
CREATE TABLE outbox_scheduled (
    available_at   timestamptz NOT NULL,
    schedule_id    bigint GENERATED ALWAYS AS IDENTITY,
    id             uuid NOT NULL DEFAULT outbox_uuidv7(),
    aggregate_type text,
    aggregate_id   text,
    event_type     text,
    payload        {{payload_type}},
    headers        jsonb,
    tenant_id      text NOT NULL DEFAULT 'default',
    schema_id      text,
    schema_version text,
    occurred_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    topic          text,
    key            text,
    routing_key    text,
    PRIMARY KEY (available_at, schedule_id)
);

{{side_tables}}
