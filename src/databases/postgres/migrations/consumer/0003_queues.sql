-- What the consumers of queues write down beside the messages.

-- Messages that came again and again, how often their handler was begun and nobody saw its end: the
-- process may have ended with it. One that was not begun for a month is forgotten.
CREATE TABLE {{schema}}.outbox_inbox_begun (
    consumer   text NOT NULL,
    message_id text NOT NULL,
    times      integer NOT NULL,
    begun_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    PRIMARY KEY (consumer, message_id)
) WITH (fillfactor = 80);

-- What waits in a queue for all members of it, beside what waits for this member alone (lag).
ALTER TABLE {{schema}}.outbox_inbox_stats ADD COLUMN queue text;
ALTER TABLE {{schema}}.outbox_inbox_stats ADD COLUMN queue_lag bigint;
