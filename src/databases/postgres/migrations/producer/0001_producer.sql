-- Producer side: the outbox table, what the relay keeps beside it, the view for people and the
-- functions for writers. `migrate` fills in the payload type (jsonb unless told otherwise) and what
-- follows from it, and the schema; it runs this with the search_path pg_catalog, pg_temp: with
-- another one what others made could fit better than the server's own.

-- RFC 9562, section 5.7: 48 bits of Unix milliseconds, then a version 4 UUID's random bits with the
-- version set to 7. plpgsql, because a language-sql function costs each plain INSERT 50 us more;
-- and without a search_path of its own for the same reason: each name says whose it is.
CREATE FUNCTION {{schema}}.outbox_uuidv7() RETURNS uuid
LANGUAGE plpgsql VOLATILE PARALLEL SAFE
AS $$
BEGIN
    RETURN pg_catalog.encode(pg_catalog.set_bit(pg_catalog.set_bit(
        pg_catalog.overlay(
            pg_catalog.uuid_send(pg_catalog.gen_random_uuid()),
            pg_catalog.substring(pg_catalog.int8send(pg_catalog.floor(pg_catalog.date_part(
                'epoch', pg_catalog.clock_timestamp()) OPERATOR(pg_catalog.*)
                1000::pg_catalog.float8)::pg_catalog.int8), 3),
            1, 6),
        52, 1), 53, 1), 'hex')::pg_catalog.uuid;
END
$$;

-- Reached only by a payload over the limit; a constraint alone could not name the remedy.
CREATE FUNCTION {{schema}}.outbox_refuse_payload(actual_bytes integer, max_bytes integer)
RETURNS boolean
LANGUAGE plpgsql IMMUTABLE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION 'OB_PAYLOAD_TOO_LARGE: the payload has % bytes, the limit is %',
            actual_bytes, max_bytes
        USING ERRCODE = 'OB001',
              HINT = 'Store the data elsewhere and send a reference to it (claim check). To raise '
                     'the limit, replace the constraint outbox_payload_size of the table; the '
                     'broker''s limit must be above it.';
END
$$;

-- Likewise for what else is wrong. VOLATILE, or the planner would run it while it plans.
CREATE FUNCTION {{schema}}.outbox_refuse_event(problem text, remedy text,
                                               state text DEFAULT 'OB002')
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '%: %', CASE state WHEN 'OB003' THEN 'OB_TOPIC_INVALID'
                                       ELSE 'OB_INVALID_EVENT' END, problem
        USING ERRCODE = state, HINT = remedy;
END
$$;

-- The limit counts bytes of the payload's text, which is what the sinks send; the check costs
-- 1.5 us for 200 bytes.
CREATE TABLE {{schema}}.outbox_events (
    position       bigint GENERATED ALWAYS AS IDENTITY (CACHE 1) PRIMARY KEY,
    id             uuid NOT NULL DEFAULT {{schema}}.outbox_uuidv7(),
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
    available_at   timestamptz, -- of an event that was delayed: its age counts from here
{{event_checks}});

-- Delayed events wait here, so that they never hold a key; the relay moves them when due.
CREATE TABLE {{schema}}.outbox_scheduled (
    available_at   timestamptz NOT NULL,
    schedule_id    bigint GENERATED ALWAYS AS IDENTITY,
    id             uuid NOT NULL DEFAULT {{schema}}.outbox_uuidv7(),
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
    PRIMARY KEY (available_at, schedule_id),
{{event_checks}});

{{side_tables}}

-- The table as schema.table; for a relay of some tenants the side tables add /tenant,...
CREATE FUNCTION {{schema}}.outbox_source() RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT n.nspname || '.' || c.relname
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE c.oid = E'{{schema_text}}.outbox_events'::regclass
$$;

{{status_view}}
-- For writers of a key that nothing else serialises: waits until no other transaction holds one of
-- the keys and keeps them until the transaction ends. Sorted, so that two calls cannot deadlock.
CREATE FUNCTION {{schema}}.outbox_lock_keys(VARIADIC keys text[]) RETURNS void
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- 0x6f7574626f78 is "outbox": keeps clear of other users of advisory locks.
    PERFORM pg_advisory_xact_lock(hash)
    FROM (SELECT DISTINCT hashtextextended(k, 122550254464888) AS hash
          FROM unnest(keys) AS k WHERE k IS NOT NULL ORDER BY 1) AS sorted;
END
$$;

-- Writes one event in the caller's transaction and returns its id. Delayed until `available_at`
-- where that is given; `lock_key` takes the per-key lock first.
CREATE FUNCTION {{schema}}.outbox_emit(
    topic          text DEFAULT NULL,
    payload        {{payload_type}} DEFAULT NULL,
    aggregate_type text DEFAULT NULL,
    aggregate_id   text DEFAULT NULL,
    event_type     text DEFAULT NULL,
    key            text DEFAULT NULL,
    headers        jsonb DEFAULT NULL,
    traceparent    text DEFAULT NULL,
    tenant_id      text DEFAULT NULL,
    routing_key    text DEFAULT NULL,
    schema_id      text DEFAULT NULL,
    schema_version text DEFAULT NULL,
    occurred_at    timestamptz DEFAULT NULL,
    available_at   timestamptz DEFAULT NULL,
    id             uuid DEFAULT NULL,
    lock_key       boolean DEFAULT false)
RETURNS uuid
LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
BEGIN
    id := coalesce(id, {{schema}}.outbox_uuidv7());
    -- What is no object is left as it is for the table to refuse.
    IF traceparent IS NOT NULL AND jsonb_typeof(coalesce(headers, '{}')) = 'object' THEN
        headers := coalesce(headers, '{}') || jsonb_build_object('traceparent', traceparent);
    END IF;
    IF lock_key AND coalesce(nullif(key, ''), aggregate_id) IS NOT NULL THEN
        PERFORM {{schema}}.outbox_lock_keys(coalesce(nullif(key, ''), aggregate_id));
    END IF;
    IF available_at IS NOT NULL THEN
        INSERT INTO {{schema}}.outbox_scheduled (available_at, id, aggregate_type, aggregate_id,
            event_type, payload, headers, tenant_id, schema_id, schema_version, occurred_at, topic,
            key, routing_key)
        VALUES (available_at, id, aggregate_type, aggregate_id, event_type, payload, headers,
            coalesce(tenant_id, 'default'), schema_id, schema_version,
            coalesce(occurred_at, clock_timestamp()), topic, key, routing_key);
    ELSE
        INSERT INTO {{schema}}.outbox_events (id, aggregate_type, aggregate_id, event_type,
            payload, headers, tenant_id, schema_id, schema_version, occurred_at, topic, key,
            routing_key)
        VALUES (id, aggregate_type, aggregate_id, event_type, payload, headers,
            coalesce(tenant_id, 'default'), schema_id, schema_version,
            coalesce(occurred_at, clock_timestamp()), topic, key, routing_key);
    END IF;
    RETURN id;
END
$$;
