-- Consumer's side: messages delivered without a broker, the ids of what was applied, and the
-- messages given up on. `migrate` sets search_path to the schema of these tables first.

{{mailbox}}

-- Ids that a consumer has dealt with (applied, or moved to its dead letters), written in the
-- transaction of the effect. message_time is the event's own time, the same on each repeat.
CREATE TABLE outbox_inbox (
    consumer     text NOT NULL,
    message_id   text NOT NULL CHECK (message_id <> ''),
    message_time timestamptz NOT NULL DEFAULT '-infinity',
    applied_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, message_id)
);

-- Messages whose handler failed for good, whole. Setting retry_requested_at has the consumer try
-- the message once more.
CREATE TABLE outbox_inbox_dead_letters (
    consumer           text NOT NULL,
    message_id         text NOT NULL,
    topic              text NOT NULL,
    key                text,
    headers            json,
    payload            bytea,
    attempts           integer NOT NULL,
    error_code         text NOT NULL,
    error              text NOT NULL,
    died_at            timestamptz NOT NULL DEFAULT clock_timestamp(),
    retry_requested_at timestamptz,
    PRIMARY KEY (consumer, message_id)
);
CREATE INDEX outbox_inbox_dead_letters_retry
    ON outbox_inbox_dead_letters (consumer, retry_requested_at)
    WHERE retry_requested_at IS NOT NULL;

-- True: the message is new and now remembered; false: a repeat, or one that another transaction has
-- just applied (waits for that one to end). Call it first in the transaction that applies the
-- message. Under REPEATABLE READ and SERIALIZABLE a concurrent repeat raises 40001: run the
-- transaction again.
CREATE FUNCTION inbox_accept(consumer text, message_id text, message_time timestamptz DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    INSERT INTO outbox_inbox (consumer, message_id, message_time)
    VALUES (inbox_accept.consumer, inbox_accept.message_id,
            coalesce(inbox_accept.message_time, '-infinity'))
    ON CONFLICT DO NOTHING;
    RETURN FOUND;
END
$$;

-- Requests that carry an Idempotency-Key, with the answer they were given. Without a status the
-- request is under way (lease_until set) or was committed without an answer.
CREATE TABLE outbox_idempotency (
    scope       text NOT NULL,
    key         text NOT NULL CHECK (key <> ''),
    fingerprint text NOT NULL,
    attempt     integer NOT NULL DEFAULT 1,
    lease_until timestamptz,
    status      integer,
    headers     json,
    body        bytea,
    created_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at  timestamptz NOT NULL,
    PRIMARY KEY (scope, key)
) WITH (fillfactor = 70);
CREATE INDEX outbox_idempotency_expiry ON outbox_idempotency (expires_at);

-- Claims the key for the transaction that does the request's work, so that the claim lives and dies
-- with it. state: 'new' (do the work, then idempotency_complete), 'repeat' (give the stored answer;
-- a null status: it was done and no answer was kept), 'running' (another transaction has it now),
-- 'mismatch' (the key was used for another request). Never waits. With a lease the claim is to be
-- committed before the work, which may then change things outside the database: a lease that ran
-- out is taken over, and attempt says how often. The scope is the authenticated caller.
CREATE FUNCTION idempotency_claim(scope text, key text, fingerprint text,
                                  retention interval DEFAULT '1 day',
                                  lease interval DEFAULT NULL,
                                  OUT state text, OUT attempt integer, OUT status integer,
                                  OUT headers json, OUT body bytea)
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
DECLARE
    known outbox_idempotency%ROWTYPE;
BEGIN
    -- An answer is final: it is read without the lock, so that repeats do not hinder each other.
    SELECT * INTO known FROM outbox_idempotency i
    WHERE i.scope = idempotency_claim.scope AND i.key = idempotency_claim.key
        AND i.status IS NOT NULL AND i.expires_at > clock_timestamp();
    IF NOT FOUND THEN
        IF NOT pg_try_advisory_xact_lock(
                hashtextextended(idempotency_claim.scope || E'\x1f' || idempotency_claim.key,
                                 'outbox_idempotency'::regclass::oid::bigint)) THEN
            idempotency_claim.state := 'running';
            RETURN;
        END IF;
        INSERT INTO outbox_idempotency AS i (scope, key, fingerprint, lease_until, expires_at)
        VALUES (idempotency_claim.scope, idempotency_claim.key, idempotency_claim.fingerprint,
                clock_timestamp() + idempotency_claim.lease,
                clock_timestamp() + idempotency_claim.retention)
        ON CONFLICT (scope, key) DO UPDATE SET
            attempt = CASE WHEN i.expires_at <= clock_timestamp() THEN 1 ELSE i.attempt + 1 END,
            fingerprint = excluded.fingerprint, lease_until = excluded.lease_until,
            status = NULL, headers = NULL, body = NULL,
            created_at = excluded.created_at, expires_at = excluded.expires_at
        WHERE i.expires_at <= clock_timestamp()
            OR (i.status IS NULL AND i.lease_until <= clock_timestamp()
                AND i.fingerprint = excluded.fingerprint)
        RETURNING i.attempt INTO idempotency_claim.attempt;
        IF FOUND THEN
            idempotency_claim.state := 'new';
            RETURN;
        END IF;
        SELECT * INTO known FROM outbox_idempotency i
        WHERE i.scope = idempotency_claim.scope AND i.key = idempotency_claim.key;
    END IF;
    idempotency_claim.attempt := known.attempt;
    IF known.fingerprint <> idempotency_claim.fingerprint THEN
        idempotency_claim.state := 'mismatch';
    ELSIF known.status IS NULL AND known.lease_until IS NOT NULL THEN
        idempotency_claim.state := 'running';
    ELSE
        idempotency_claim.state := 'repeat';
        idempotency_claim.status := known.status;
        idempotency_claim.headers := known.headers;
        idempotency_claim.body := known.body;
    END IF;
END
$$;

-- Keeps the answer for repeats, without headers that belong to one caller's session. False: the
-- claim is not this attempt's any more (its lease ran out and another took over): roll back.
CREATE FUNCTION idempotency_complete(scope text, key text, attempt integer, status integer,
                                     headers json DEFAULT NULL, body bytea DEFAULT NULL)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    UPDATE outbox_idempotency i
    SET status = idempotency_complete.status, body = idempotency_complete.body, lease_until = NULL,
        headers = (SELECT json_object_agg(h.key, h.value)
                   FROM json_each_text(idempotency_complete.headers) h
                   WHERE lower(h.key) NOT IN ('set-cookie', 'authorization'))
    WHERE i.scope = idempotency_complete.scope AND i.key = idempotency_complete.key
        AND i.attempt = idempotency_complete.attempt AND i.status IS NULL;
    RETURN FOUND;
END
$$;

-- Gives a leased claim back after work that changed nothing, so that a repeat need not wait.
CREATE FUNCTION idempotency_release(scope text, key text, attempt integer)
RETURNS boolean
LANGUAGE plpgsql VOLATILE
SET search_path FROM CURRENT
AS $$
#variable_conflict use_column
BEGIN
    UPDATE outbox_idempotency i SET lease_until = '-infinity'
    WHERE i.scope = idempotency_release.scope AND i.key = idempotency_release.key
        AND i.attempt = idempotency_release.attempt AND i.status IS NULL
        AND i.lease_until IS NOT NULL;
    RETURN FOUND;
END
$$;
