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
